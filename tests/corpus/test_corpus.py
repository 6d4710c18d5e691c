"""The judge against the corpus: cheats do not win, dangers do no harm, honest kernels are not accused."""

import json
import os
import re
import secrets
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ksflow.evaluation.judge.evaluator import LocalJudge
from ksflow.home import cache
from ksflow.kernels.hardware import target
from ksflow.kernels.problem import loader as problems
from ksflow.records import Evaluation, Limits, Origin, Problem, Trial, Verdict, as_json
from ksflow.stages.evaluator.local import LocalEvaluator

from . import host
from .corpus import ROOT, Specimen, folder, kernel, main_file, specimens

_HONEST_RUNS = 3
_HASTY = Limits(compile_s=15, check_s=5, time_s=20, memory_mb=1024)
_ENDLESS = ("contained", "harmless")
"""What may never end by itself. All else has the problem's own limits, which cut nothing off on any machine."""
_MISTAKE = re.compile(r": (Name|Syntax|Import|ModuleNotFound|Attribute|Type)Error: ")


_THREADS = re.compile(
    r"forge/late_writer|timing/(peeking_thread|works_ahead|busy_after|timed_waits|odd_thread|timers_that|new_helpers)"
)
"""What computes, or keeps cores busy, on threads of its own outside of its turn."""
_QUICK = "cheats/forge/late_writer.py"
THREADED = [
    pytest.param(one, id=one.name, marks=[] if one.name == _QUICK else [pytest.mark.soak])
    for one in specimens("cheats")
    if _THREADS.search(one.name)
]


class Crowded(LocalJudge):
    """Judges kernels with two cores on a machine of two, so on one of them itself."""

    shares_core = True


class Court:
    """An evaluator, the corpus' problems in folders of their own, and a secret."""

    def __init__(self, place: Path, evaluator: LocalJudge | None = None) -> None:
        self.evaluator = evaluator or LocalEvaluator(target.detect())
        self._asked = 0
        self.secret = place / "secret"
        self.secret.write_text(f"word-{secrets.token_hex(16)}\n")
        self.secret.chmod(0o600)
        shutil.copytree(ROOT / "problems", place / "problems")
        self.problems = {path.name: problems.load(str(path)) for path in (place / "problems").iterdir()}

    def judge(self, specimen: Specimen, mark: str, *against: Path) -> Evaluation:
        """Its evaluation, which never holds the secret."""
        problem = self.problems[specimen.problem]
        if specimen.expect in _ENDLESS:
            problem = replace(problem, limits=_HASTY)
        words = self._words(problem, mark)
        rivals = (Trial("00001", Origin.SEED, kernel=kernel(path, specimen.problem, words)) for path in against)
        result = self.evaluator(problem, kernel(specimen.path, specimen.problem, words), tuple(rivals))
        text = json.dumps([result.reason, as_json(result.evidence)], allow_nan=False)
        assert self.secret.read_text().strip() not in text
        assert result.verdict is not Verdict.HARNESS, text
        assert not _broken(specimen, result), f"tests nothing: {result.reason}"
        return result

    def honest(self, name: str = "gauss") -> Evaluation:
        """A plain kernel's evaluation."""
        return self.evaluator(self.problems[name], kernel(folder(name) / "plain.cpp", name, {}), ())

    def ready(self) -> int:
        """The judge's process, which has judged a kernel: one that was never asked is still starting."""
        if self.pid != self._asked:
            assert self.honest().accepted
            self._asked = self.pid
        return self._asked

    def _words(self, problem: Problem, mark: str) -> dict[str, str]:
        values = {"PROBLEM": problem.root, "SECRET": self.secret, "CACHE": cache(), "PORT": host.port(mark)}
        return {"MARK": mark, **{name: str(value) for name, value in values.items()}}

    @property
    def pid(self) -> int:
        """The judge's process."""
        return self.evaluator._slots[0].judge.pid


@pytest.fixture(scope="module")
def court(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Court]:
    made = Court(tmp_path_factory.mktemp("corpus"))
    yield made
    made.evaluator.close()


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Court]:
    made = Court(tmp_path_factory.mktemp("crowded"), Crowded(target.detect(cores=2)))
    yield made
    made.evaluator.close()


@pytest.fixture
def mark() -> Iterator[str]:
    """Short enough for a process' name. What carries it does not outlive the test."""
    while host.taken(made := f"k{secrets.token_hex(5)}"):
        pass
    yield made
    host.clean(made)


def every(category: str) -> Callable[[Any], Any]:
    """One test for each file of a category: those outside the sample are slow, four of five for `make soak`."""
    soak = [pytest.mark.slow, pytest.mark.soak]
    rest = [[pytest.mark.slow], soak, soak, soak, soak]
    rows = [
        pytest.param(one, id=one.name, marks=[] if "sample" in one.header else rest[at % 5])
        for at, one in enumerate(specimens(category))
    ]
    return pytest.mark.parametrize("specimen", rows)


@every("cheats")
def test_cheat_does_not_win(court: Court, specimen: Specimen, mark: str) -> None:
    _needs(court, specimen)
    for _ in range(specimen.runs):
        if specimen.expect == "reject":
            result = court.judge(specimen, mark)
            assert not result.accepted, f"accepted: {result.evidence}"
        elif _seems_faster(court, specimen, mark):  # once may be the machine's noise
            assert not _seems_faster(court, specimen, mark), "looks faster than it is, twice in a row"
    assert host.traces(mark, court.pid) == []


@pytest.mark.slow
@pytest.mark.parametrize("specimen", THREADED)
def test_threads_gain_nothing_on_two_cores_either(crowded: Court, specimen: Specimen, mark: str) -> None:
    if specimen.expect == "true-speed":
        gains = _seems_faster(crowded, specimen, mark) and _seems_faster(crowded, specimen, mark)
        assert not gains, "looks faster than it is, twice in a row"
    else:
        assert not crowded.judge(specimen, mark).accepted
    assert host.traces(mark, crowded.pid) == []


@every("dangers")
def test_danger_does_no_harm(court: Court, specimen: Specimen, mark: str) -> None:
    _needs(court, specimen)
    judge, here = court.ready(), set(os.listdir())
    result = court.judge(specimen, mark)
    assert specimen.expect == "harmless" or not result.accepted
    assert host.traces(mark, judge) == []
    assert set(os.listdir()) == here
    after = court.honest()
    assert after.accepted, after.reason
    assert court.pid == judge


@every("honest")
def test_honest_kernel_is_not_accused(court: Court, specimen: Specimen, mark: str) -> None:
    for _ in range(1 if "sample" in specimen.header else _HONEST_RUNS):
        result = court.judge(specimen, mark)
        assert result.accepted, f"{result.verdict}: {result.reason}\n{result.evidence}"


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "problems").iterdir()))
def test_twins_are_accepted(court: Court, name: str) -> None:
    for path in sorted(folder(name).glob("plain.*")):
        result = court.evaluator(court.problems[name], kernel(path, name, {}), ())
        assert result.accepted, f"{path.name}: {result.reason}"


def test_traces_are_seen_and_removed(mark: str) -> None:
    key, path = host.port(mark), Path("/dev/shm", mark)
    path.touch()
    with (
        subprocess.Popen(["sh", "-c", f"echo; sleep 100; : {mark}"], stdout=subprocess.PIPE) as process,
        socket.socket() as port,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        assert process.stdout
        assert process.stdout.readline()
        port.bind(("127.0.0.1", key))
        port.listen()
        abstract.bind(f"\0{mark}")
        found = "\n".join(host.traces(mark, os.getpid(), 0.0))
        for word in (f"process {process.pid}", f"file {path}", f"listens on {key}", "unix: "):
            assert word in found
        host.clean(mark)
    assert host.traces(mark, os.getpid()) == []


def test_corpus_is_large_and_its_headers_are_whole() -> None:
    allowed = {
        "cheats": {"reject", "true-speed"},
        "dangers": {"contained", "harmless"},
        "honest": {"accept"},
    }
    fewest = {"cheats": 60, "dangers": 20, "honest": 20}
    for category, words in allowed.items():
        found = specimens(category)
        assert len(found) >= fewest[category]
        for specimen in found:
            assert specimen.expect in words, specimen.name
            assert (folder(specimen.problem) / "problem.yaml").exists(), specimen.name
            assert main_file(specimen.twin).exists(), specimen.name


def _seems_faster(court: Court, specimen: Specimen, mark: str) -> bool:
    """Whether it is accepted and is called faster than its twin, judged beside it."""
    result = court.judge(specimen, mark, specimen.twin)
    if result.score_us is None:
        return False
    assert result.evidence.against, f"its twin was not timed: {result.evidence}"
    row = result.evidence.against[0]
    return row.ranked and row.low > specimen.gain


def _broken(specimen: Specimen, result: Evaluation) -> bool:
    """Whether a mistake in the corpus kept the kernel from trying anything."""
    if result.verdict is Verdict.COMPILE:
        return "compiles" not in specimen.header
    return result.verdict is Verdict.CRASH and _MISTAKE.search(result.reason) is not None


def _needs(court: Court, specimen: Specimen) -> None:
    if "needs" in specimen.header and os.getuid() and court.evaluator.level not in ("userns", "full"):
        pytest.skip("a box runs as this user here, and can reach the user's own processes and files")
