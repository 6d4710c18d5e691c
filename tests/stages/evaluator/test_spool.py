"""Verdicts through a folder: real workers in processes of their own, which have nothing but the folder and torch."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import accepted, until
from test_suite import at_work

from ksflow.errors import ConfigError, StageError
from ksflow.evaluation.compilers import build
from ksflow.evaluation.judge import VERSION
from ksflow.evaluation.judge.evaluator import LocalJudge
from ksflow.evaluation.remote import job_store, worker, worker_payload
from ksflow.evaluation.remote.job_store import JobStore
from ksflow.evaluation.sandbox import levels
from ksflow.formats.runtime import SourceFiles
from ksflow.kernels.hardware import target
from ksflow.kernels.hardware.target import fits
from ksflow.protocols import override_call
from ksflow.records import Evaluation, Kernel, Problem, Target, Verdict, as_json, parse
from ksflow.stages.evaluator.spool import SpoolEvaluator

from . import gpu_toy, toy

BARRED = """
import sys

class Barred:
    names = {"hydra", "omegaconf", "pydantic", "dspy", "git", "structlog", "jsonschema", "yaml", "rich", "optuna"}

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ImportError(f"{name} is not installed here")

sys.meta_path.insert(0, Barred())
"""
"""Python imports it by itself where it lies on the path: in the worker, the judge and the boxes."""
WRONG = toy.cpp("out[0] = 1;")
HANGS = toy.cpp("for (volatile int64_t i = 0;; i++) {}")


class Started:
    """A worker, run from the folder's own copy of the code."""

    def __init__(self, root: Path, *options: str, **environment: str) -> None:
        code = root / worker_payload.FOLDER
        (code / "sitecustomize.py").write_text(BARRED)
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "KSFLOW_CACHE") if name in os.environ}
        kept |= environment
        self.output = root.parent / f"worker-{time.monotonic_ns()}.txt"
        command = [sys.executable, "-m", "ksflow", "worker", "..", *options]
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(command, cwd=code, env=kept, stderr=output)

    @property
    def lines(self) -> str:
        return self.output.read_text()

    def end(self, by: signal.Signals = signal.SIGINT) -> int:
        self.process.send_signal(by)
        return self.process.wait(300)


@contextmanager
def working(root: Path, *options: str, **environment: str) -> Iterator[Started]:
    started = Started(root, *options, **environment)
    try:
        yield started
    finally:
        started.process.kill()
        started.process.wait()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SpoolEvaluator, Started]]:
    """An evaluator and a worker that have a folder in common."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KSFLOW_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        evaluator = SpoolEvaluator(target.detect(), str(tmp_path_factory.mktemp("shared") / "spool"))
        evaluator.start()
        with working(evaluator.spool.root) as started:
            yield evaluator, started


@pytest.fixture
def problem(problem: Problem) -> Problem:
    """The toy problem, with time enough for a slow machine."""
    return replace(problem, limits=replace(problem.limits, compile_s=300, check_s=300, time_s=300))


@pytest.fixture
def asking(tmp_path: Path) -> SpoolEvaluator:
    """An evaluator whose folder has no worker."""
    evaluator = SpoolEvaluator(target.detect(), str(tmp_path / "spool"))
    evaluator.start()
    return evaluator


def posted(evaluator: SpoolEvaluator, problem: Problem, kernel: Kernel) -> str:
    """A job that nobody waits for: its caller has died, or will look again later."""
    return evaluator.spool.post(job_store.job(evaluator.judge, problem, kernel, (), evaluator.target))


def said(us: float = 5.0) -> Evaluation:
    """A verdict on the toy problem."""
    found = accepted(us)
    timings = tuple(replace(found.timings[0], case=name) for name in ("n30000", "n65536"))
    return replace(found, timings=timings, judge=f"local-{VERSION}")


def in_background(evaluator: SpoolEvaluator, problem: Problem, kernel: Kernel) -> list[Evaluation]:
    """Where the verdict appears."""
    found: list[Evaluation] = []
    threading.Thread(target=lambda: found.append(evaluator(problem, kernel, ())), daemon=True).start()
    return found


# -- compiled before it is sent ------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("nvcc"), reason="needs nvcc")
@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("out[i] =", "out[i] = nothing +", 'kernel.cu(10): error: identifier "nothing" is undefined'),
        ("// launch: add", "// launch: sum", "launch: sum: the code has no kernel of this name"),
        ("(a, b, out, n)\n", "(a, b, out, m)\n", "m"),
    ],
)
def test_a_gpu_kernel_that_does_not_compile_here_is_never_sent(tmp_path: Path, old: str, new: str, reason: str) -> None:
    evaluator = SpoolEvaluator(gpu_toy.H200, str(tmp_path / "spool"))
    evaluator.start()
    problem, kernel = gpu_toy.problem(tmp_path), gpu_toy.cuda(gpu_toy.CUDA.replace(old, new, 1))
    found = evaluator(problem, kernel, ())
    assert found.verdict is Verdict.COMPILE
    assert found.reason == " ".join(build(problem, kernel, gpu_toy.H200).reason.split())
    assert reason in found.reason
    assert (found.judge, found.target) == (f"local-{VERSION}", evaluator.fingerprint)
    assert "nvcc" in found.evidence.more["compiled_before_sending"]
    assert not list(evaluator.spool.jobs.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["compiles", "slow", "no compiler", "not asked for"])
def test_what_the_compiler_here_has_nothing_against_is_sent(
    tmp_path: Path, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluator = SpoolEvaluator(gpu_toy.H200, str(tmp_path / "spool"), compile_first=fault != "not asked for")
    problem, text = gpu_toy.problem(tmp_path), gpu_toy.CUDA
    if fault == "no compiler":
        monkeypatch.setattr("ksflow.evaluation.compilers.nvcc.find", lambda: None)
    if fault == "slow":
        problem = replace(problem, limits=replace(problem.limits, compile_s=0.001))
        text = text.replace("BLOCK = 256", "BLOCK = 512")  # not found among what was made before
    kernel = gpu_toy.cuda(text if fault in ("compiles", "slow") else text.replace("int i", "int j"))
    evaluator.prepare(problem, kernel)
    found = in_background(evaluator, problem, kernel)
    until(lambda: evaluator.spool.jobs.is_dir() and [*evaluator.spool.jobs.glob("*.json")])
    (job,) = evaluator.spool.jobs.glob("*.json")
    evaluator.spool.answer(job.stem, said())
    until(lambda: found)
    assert found[0].accepted


def test_a_worker_reads_the_job_that_was_sent(asking: SpoolEvaluator, problem: Problem) -> None:
    name = posted(asking, replace(problem, check=replace(problem.check, allow="tf32")), toy.RIGHT_CPP)
    job = asking.spool.job(name)
    assert job
    assert job.problem.check.allow == "tf32"
    assert job.kernel == replace(toy.RIGHT_CPP, report="")


# -- with a worker ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_worker_with_nothing_but_torch_judges(shared: tuple[SpoolEvaluator, Started], problem: Problem) -> None:
    evaluator, started = shared
    found = evaluator(problem, toy.RIGHT_CPP, (toy.trial(toy.slow(8)),))
    assert found.verdict is Verdict.ACCEPT, found.reason
    assert found.evidence.device  # the chip, which tables and pages name
    assert found.claim.id == "00001"
    assert found.target == evaluator.fingerprint
    assert found.evidence.more["worker"]["machine"].startswith("auto-")
    assert evaluator(problem, WRONG, ()).verdict is Verdict.INCORRECT
    refused = evaluator(problem, toy.cpp("syntax error"), ())
    assert refused.verdict is Verdict.COMPILE
    assert "error" in refused.reason
    for words in ("add (cpp): accept", "add (cpp): reject-incorrect", "add (cpp): compile-error, kernel.cpp"):
        until(lambda words=words: words in started.lines)


@pytest.mark.slow
def test_a_question_is_answered_once_and_a_late_copy_is_harmless(
    shared: tuple[SpoolEvaluator, Started], problem: Problem
) -> None:
    evaluator, _ = shared
    spool, kernel = evaluator.spool, toy.cpp("/* asked twice */ out[0] = 1;")
    before = set(spool.taken.iterdir())
    first = evaluator(problem, kernel, ())
    (taken,) = set(spool.taken.iterdir()) - before
    shutil.copy(taken, spool.results)
    second = evaluator(problem, kernel, ())
    assert first.verdict is second.verdict is Verdict.INCORRECT
    assert len(set(spool.taken.iterdir()) - before) == 2
    assert not list(spool.jobs.iterdir())
    (spool.results / taken.name).unlink()


@pytest.mark.slow
def test_a_verdict_that_came_while_nobody_waited_is_taken_at_once(
    shared: tuple[SpoolEvaluator, Started], problem: Problem
) -> None:
    evaluator, _ = shared
    kernel = toy.cpp("/* the caller died */ out[0] = 2;")
    name = posted(evaluator, problem, kernel)
    came = until(lambda: evaluator.spool.result(name))
    again = SpoolEvaluator(evaluator.target, str(evaluator.spool.root))
    assert again(problem, kernel, ()).evidence == came.evidence


@pytest.mark.slow
def test_half_a_job_is_not_there_yet_and_a_forged_one_is_left_alone(
    shared: tuple[SpoolEvaluator, Started], problem: Problem
) -> None:
    evaluator, started = shared
    spool = evaluator.spool
    elsewhere = JobStore(spool.root.parent / "elsewhere")
    elsewhere.make()
    job = job_store.job(evaluator.judge, problem, toy.cpp("out[0] = 3;"), (), evaluator.target)
    name = elsewhere.post(job)
    whole = (elsewhere.jobs / f"{name}.json").read_bytes()
    (spool.jobs / f"{name}.json").write_bytes(whole[:-100])
    forged = "0" * 32 + "-0"
    (spool.jobs / f"{forged}.json").write_bytes(whole.replace(name.encode(), forged.encode()))
    (spool.jobs / "notes.json").write_text("{}")
    os.mkfifo(spool.jobs / ("1" * 32 + "-0.json"))
    assert evaluator(problem, toy.cpp("out[0] = 4;"), ()).verdict is Verdict.INCORRECT
    (spool.jobs / f"{name}.json").write_bytes(whole)
    until(lambda: spool.result(name))
    assert started.lines.count(f"job {forged} is left alone: its content is not what its name says") == 1
    until(lambda: name in started.lines)
    assert started.process.poll() is None
    for path in (*spool.jobs.iterdir(), *spool.results.iterdir()):
        path.unlink()


@pytest.mark.parametrize("name", ["../beside.py", "/tmp/beside.py", "a/../../beside.py", "", "a\0b.py"])
def test_a_job_that_would_write_outside_its_folder_is_left_alone(
    asking: SpoolEvaluator, problem: Problem, name: str
) -> None:
    """Sandboxes and importers put a problem's files into folders, as whoever judges."""
    job = job_store.job(asking.judge, problem, toy.cpp("out[0] = 3;"), (), asking.target)
    whole = as_json(job)
    whole["problem"]["files"] = {name: "x"}
    base = hashlib.sha256(json.dumps(whole, allow_nan=False).encode()).hexdigest()[:32]
    found = {"version": job_store.VERSION, "id": f"{base}-0", "job": whole}
    (asking.spool.jobs / f"{base}-0.json").write_text(json.dumps(found))
    with pytest.raises(job_store.InvalidFile, match="would lie outside its folder"):
        asking.spool.job(f"{base}-0")
    with pytest.raises(ValueError, match="would lie outside its folder"):
        SourceFiles({name: "x"})


def test_a_worker_prints_nothing_that_a_terminal_acts_upon(capfd: pytest.CaptureFixture[str]) -> None:
    """A compiler's log repeats what stands in the kernel."""
    worker.say("compile-error, kernel.cpp: \x1b]0;owned\x07\x1b[2J \u202e error")
    said = capfd.readouterr().err
    assert "error" in said
    assert said.removesuffix("\n").isprintable()


# -- the caller's side -----------------------------------------------------------------------------


def test_a_damaged_result_is_removed_and_judged_again(asking: SpoolEvaluator, problem: Problem, tmp_path: Path) -> None:
    found = in_background(asking, problem, toy.RIGHT_CPP)
    (job,) = until(lambda: list(asking.spool.jobs.glob("*.json")))
    path = asking.spool.results / job.name
    path.write_text('{"version": 1, "id"')  # still on its way
    aside = JobStore(tmp_path / "aside")
    aside.make()
    aside.answer(job.stem, said())
    good = (aside.results / path.name).read_bytes()
    other_time = replace(said(), score_us=4.0)
    for damaged in (good.replace(b"5.0", b"6.0"), good.replace(b'"version": 1', b'"version": 9'), other_time):
        if isinstance(damaged, bytes):
            path.write_bytes(damaged)
        else:
            asking.spool.answer(job.stem, damaged)
        until(lambda: not path.exists())
    assert not found
    path.write_bytes(good)
    until(lambda: found)
    assert found[0] == replace(said(), target=asking.fingerprint)


@pytest.mark.parametrize(
    "change",
    [
        {"verdict": "excellent"},
        {"score_us": "fast"},
        {"score_us": None},
        {"timings": [["n30000", 1.0]]},
        {"command": "rm"},
        {"isolation": 1},
    ],
)
def test_a_result_is_believed_when_every_field_fits(change: dict[str, Any]) -> None:
    whole = json.loads(json.dumps(as_json(said())))
    assert parse(Evaluation, whole) == said()
    with pytest.raises((ValueError, TypeError)):
        parse(Evaluation, {**whole, **change})


def test_numbers_that_are_none_are_not_read(tmp_path: Path) -> None:
    for text in ('{"a": NaN}', '{"a": 1e999}', "[1]", "[" * 100_000, ""):
        (tmp_path / "file.json").write_text(text)
        assert job_store.read_json(tmp_path / "file.json") is None
    (tmp_path / "link.json").symlink_to(tmp_path / "file.json")
    (tmp_path / "file.json").write_text('{"a": 1}')
    assert job_store.read_json(tmp_path / "file.json") == {"a": 1}
    assert job_store.read_json(tmp_path / "link.json") is None


def test_everything_that_could_change_the_verdict_changes_the_id(problem: Problem, tmp_path: Path) -> None:
    spool, here = JobStore(tmp_path), target.detect()
    spool.make()
    two = Kernel("cpp", {"a.cpp": "x", "b.cpp": "y"})
    turned = Kernel("cpp", {"b.cpp": "y", "a.cpp": "x"})
    jobs = [
        job_store.job("local-1", problem, two, (), here),
        job_store.job("local-2", problem, two, (), here),
        job_store.job("local-1", problem, turned, (), here),
        job_store.job("local-1", problem, two, (toy.trial(two),), here),
        job_store.job("local-1", replace(problem, digest="other"), two, (), here),
        job_store.job("local-1", problem, two, (), replace(here, chip="other")),
    ]
    names = [spool.post(job) for job in jobs]
    assert len(set(names)) == len(jobs)
    assert [spool.job(name) for name in names] == jobs
    retold = job_store.job("local-1", replace(problem, statement="told better"), replace(two, report="so"), (), here)
    assert spool.post(retold) == names[0]


def test_the_folders_code_starts_by_itself(tmp_path: Path) -> None:
    JobStore(tmp_path).make()
    worker_payload.refresh(tmp_path)
    command = [sys.executable, "-m", "ksflow", "worker", "..", "once=true"]
    (tmp_path / "worker" / "sitecustomize.py").write_text(BARRED)
    done = subprocess.run(command, cwd=tmp_path / "worker", capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "waits for jobs" in done.stderr


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize("words", [(), ("profile=true",), ("sanitize=false",)])
def test_counters_and_the_sanitizer_are_the_workers_choice(
    words: tuple[str, ...], tmp_path: Path, problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    class Watched(LocalJudge):
        def __init__(self, target: Target, profile: bool = False, sanitize: bool = True) -> None:
            made.append((profile, sanitize))
            super().__init__(target, profile=profile, sanitize=sanitize)

    monkeypatch.setattr(worker, "LocalJudge", Watched)
    evaluator = SpoolEvaluator(target.default_target(), str(tmp_path / "spool"))
    evaluator.start()
    name = posted(evaluator, problem, WRONG)
    assert worker.main([str(tmp_path / "spool"), "once=true", *words]) == 0
    assert made == [("profile=true" in words, "sanitize=false" not in words)]
    assert evaluator.spool.result(name)


@pytest.mark.slow
def test_patience_ends_with_what_to_run_where(tmp_path: Path, problem: Problem) -> None:
    wanted = target.from_data_sheet("h200", "NVIDIA H200 SXM", "sm_90a", {})
    evaluator = SpoolEvaluator(wanted, str(tmp_path / "spool"), patience_minutes=0.02)
    with pytest.raises(ConfigError, match=r"on a machine with NVIDIA H200 SXM .*run: cd .*spool/worker && python -m"):
        evaluator(problem, toy.RIGHT_CPP, ())


def test_ctrl_c_ends_the_wait_for_a_worker_that_is_not_there(
    tmp_path: Path, problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job stays, and with it a worker's answer for the next run."""
    asked = threading.Event()

    @contextmanager
    def waiting() -> Iterator[Callable[[], bool]]:
        asked.set()
        yield asked.is_set

    monkeypatch.setattr("ksflow.evaluation.remote.job_client._QUIET_S", 0.1)
    evaluator = SpoolEvaluator(target.default_target(), str(tmp_path / "spool"))
    with (
        override_call(unanswered=waiting),
        pytest.raises(StageError, match=r"the job stays\. on any machine, run"),
    ):
        evaluator(problem, toy.RIGHT_CPP, ())
    assert asked.is_set()
    assert len(list((tmp_path / "spool" / "jobs").iterdir())) == 1


def test_a_worker_on_another_machine_says_so_and_answers_nothing(
    tmp_path: Path, problem: Problem, capfd: pytest.CaptureFixture[str]
) -> None:
    wanted = target.from_data_sheet("h200", "NVIDIA H200 SXM", "sm_90a", {})
    evaluator = SpoolEvaluator(wanted, str(tmp_path / "spool"))
    evaluator.start()
    for kernel in (toy.RIGHT_CPP, toy.RIGHT_PYTHON):
        posted(evaluator, problem, kernel)
    assert worker.main([str(tmp_path / "spool"), "once=true"]) == 0
    words = capfd.readouterr().err
    assert words.count("jobs want a gpu NVIDIA H200 SXM (sm_90a); this is a cpu") == 1
    assert len(list(evaluator.spool.jobs.iterdir())) == 2
    assert not list(evaluator.spool.results.iterdir())
    assert not list(evaluator.spool.workers.iterdir())


@pytest.mark.parametrize(
    ("name", "chip", "march", "found", "arch", "fit"),
    [
        ("h200", "NVIDIA H200 SXM", "sm_90a", "NVIDIA H200", "sm_90a", True),
        ("h100", "NVIDIA H100 SXM", "sm_90a", "NVIDIA H100 80GB HBM3", "sm_90a", True),
        ("auto", "NVIDIA H100 80GB HBM3", "sm_90a", "NVIDIA H100 80GB HBM3", "sm_90a", True),
        ("h200", "NVIDIA H200 SXM", "sm_90a", "NVIDIA H100 80GB HBM3", "sm_90a", False),
        ("h20", "NVIDIA H20", "sm_90a", "NVIDIA H200", "sm_90a", False),
        ("h200", "NVIDIA H200 SXM", "sm_90a", "NVIDIA H200", "sm_90", False),
        ("mi300x", "AMD Instinct MI300X", "gfx942", "AMD Instinct MI300X OAM", "gfx942", True),
    ],
)
def test_a_gpu_fits_by_architecture_and_name(
    name: str, chip: str, march: str, found: str, arch: str, fit: bool
) -> None:
    here = target.from_data_sheet("auto", found, arch, {})
    assert fits(target.from_data_sheet(name, chip, march, {}), here) is fit
    assert not fits(target.detect(), here)


@pytest.mark.slow
def test_a_refusal_is_part_of_what_the_caller_is_told(tmp_path: Path, problem: Problem) -> None:
    evaluator = SpoolEvaluator(target.detect(), str(tmp_path / "spool"), patience_minutes=0.03)
    evaluator.start()
    name = posted(evaluator, problem, toy.RIGHT_CPP)
    job_store.write(evaluator.spool.workers / "far-1.json", {"refuses": {name: "no C++ compiler found"}})
    with pytest.raises(ConfigError, match="a worker says: no C\\+\\+ compiler found"):
        evaluator(problem, toy.RIGHT_CPP, ())


@pytest.mark.slow
def test_a_job_that_cannot_be_judged_now_is_judged_later(
    asking: SpoolEvaluator, problem: Problem, folder: Path
) -> None:
    """A compiler that is installed while the worker waits."""
    tools = folder / "bin"
    tools.mkdir()
    tools.chmod(0o755)
    (tools / "sitecustomize.py").write_text(
        BARRED.replace('"hydra"', '"ziglang"')
    )  # a compiler that pip may have brought
    found = in_background(asking, problem, WRONG)
    with working(asking.spool.root, PATH=str(tools), PYTHONPATH=str(tools)) as started:
        until(lambda: "cannot be judged here: no C++ compiler found" in started.lines)
        (sign,) = asking.spool.workers.glob("*.json")
        (why,) = until(lambda: list((job_store.read_json(sign) or {})["refuses"].values()))
        assert "no C++ compiler found: apt install g++" in why
        assert "(tried again every 5 s)" in why
        assert not found
        wrapper = tools / "g++.draft"
        wrapper.write_text(f'#!/bin/sh\nPATH={os.environ["PATH"]} exec {shutil.which("g++")} "$@"\n')
        wrapper.chmod(0o755)
        wrapper.rename(tools / "g++")
        until(lambda: found)
        assert found[0].verdict is Verdict.INCORRECT
        assert (job_store.read_json(sign) or {})["refuses"] == {}
    assert started.lines.count("no C++ compiler found") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "which folder"),
        (["nowhere"], "no folder .*nowhere: make it"),
        (["s3://bucket/path"], "s3://bucket/path is a URL, .*rclone.*evaluator=ray"),
        ([".", "onc=true"], "cannot read onc=true"),
        ([".", "profile=yes"], "profile=yes; valid: true, false"),
        ([".", "devices=0,1"], "cannot read devices=0,1"),
        ([".", "idle_minutes=soon"], "idle_minutes=soon is not a number"),
        ([".", "isolation_floor=high"], "isolation_floor=high; valid: none, rlimits, landlock, userns, full"),
    ],
)
def test_a_mistyped_worker_is_answered_in_one_line(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=message):
        worker.main(words)


def test_a_worker_below_its_floor_judges_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for level, words in (("landlock", ["isolation_floor=userns"]), ("none", [])):
        monkeypatch.setattr(
            "ksflow.evaluation.remote.worker.probe", lambda level=level: levels.SandboxSupport(level, {})
        )
        with pytest.raises(ConfigError, match=rf"isolation_floor=\w+, but sandboxes reach only {level} here"):
            worker.main([str(tmp_path), "once=true", *words])


def test_a_url_is_no_folder_for_the_search_either() -> None:
    with pytest.raises(ConfigError, match=r"s3://bucket/path is a URL, .*rclone"):
        SpoolEvaluator(target.detect(), "s3://bucket/path")


def test_the_copy_of_the_code_follows_the_code(asking: SpoolEvaluator) -> None:
    code = asking.spool.root / worker_payload.FOLDER
    assert not (code / "ksflow/lm").exists()
    manifest = job_store.read_json(code / "manifest.json")
    assert manifest is not None
    gone, changed = code / "ksflow/old.py", code / "ksflow/kernels/hardware/cost_model.py"
    gone.write_text("")
    changed.write_text("")
    files = {**manifest["files"], "ksflow/old.py": "1", "ksflow/kernels/hardware/cost_model.py": "2", "../../keep": "3"}
    (asking.spool.root.parent / "keep").write_text("")
    job_store.write(code / "manifest.json", {"files": files})
    worker_payload.refresh(asking.spool.root)
    assert not gone.exists()
    assert (asking.spool.root.parent / "keep").exists()
    assert changed.read_bytes() == (worker_payload.PACKAGE / "kernels/hardware/cost_model.py").read_bytes()
    assert job_store.read_json(code / "manifest.json") == manifest


# -- claims ----------------------------------------------------------------------------------------


def test_a_claim_holds_until_its_owner_is_dead(
    asking: SpoolEvaluator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "_BEAT_S", 0.02)
    ours, theirs = (worker.Worker(asking.spool, worker.Options(), tmp_path) for _ in range(2))
    ours._publish_sign()
    theirs._publish_sign()
    ours._claim = claim = ours._taken("job")
    assert claim
    assert theirs._taken("job") is None
    pulse = threading.Thread(target=ours._beat, daemon=True)
    pulse.start()
    for _ in range(3):
        os.utime(claim, (0, 0))
        until(lambda: claim.stat().st_mtime > 0)
        assert theirs._taken("job") is None  # it is touched
    ours._over.set()
    pulse.join()
    os.utime(claim, (0, 0))
    assert theirs._taken("job") == claim  # it is not
    assert ours._taken("job") is None
    assert list(asking.spool.claims.iterdir()) == [claim]


# -- several workers, and those that die -----------------------------------------------------------


@pytest.mark.slow
def test_two_workers_share_ten_jobs(asking: SpoolEvaluator, problem: Problem) -> None:
    with working(asking.spool.root) as one, working(asking.spool.root) as two:
        until(lambda: all("waits for jobs" in started.lines for started in (one, two)))
        names = [posted(asking, problem, toy.cpp(f"out[0] = {number};")) for number in range(10)]
        until(lambda: all(name in one.lines + two.lines for name in names))
        assert all(asking.spool.result(name) for name in names)
        lines = [len([name for name in names if name in started.lines]) for started in (one, two)]
        assert sum(lines) == 10
        assert all(lines)
        assert [one.end(), two.end()] == [0, 0]
    assert not list(asking.spool.claims.iterdir())
    assert not list(asking.spool.workers.iterdir())


@pytest.mark.slow
def test_a_killed_workers_job_is_judged_by_the_next(asking: SpoolEvaluator, tmp_path: Path) -> None:
    folder = tmp_path / "slow"
    folder.mkdir()
    problem = toy.problem(folder)
    name = posted(asking, replace(problem, limits=replace(toy.HASTY, check_s=8)), HANGS)
    with working(asking.spool.root) as killed:
        (claim,) = until(lambda: list(asking.spool.claims.iterdir()))
        killed.process.kill()
        killed.process.wait()
    os.utime(claim, (0, 0))  # its last heartbeat is long ago
    with working(asking.spool.root):
        assert until(lambda: asking.spool.result(name)).verdict is Verdict.TIMEOUT
        until(lambda: not list(asking.spool.claims.iterdir()))


@pytest.mark.slow
def test_a_signal_finishes_the_job_and_once_more_frees_it(asking: SpoolEvaluator, tmp_path: Path) -> None:
    folder = tmp_path / "slow"
    folder.mkdir()
    problem = toy.problem(folder, toy.HASTY)
    with working(asking.spool.root) as started:
        name = posted(asking, problem, HANGS)
        until(lambda: list(asking.spool.claims.iterdir()))
        assert started.end(signal.SIGTERM) == 0
        assert asking.spool.result(name)
    longer = replace(problem, limits=replace(toy.HASTY, check_s=600))
    for twice in (signal.SIGINT, signal.SIGTERM):
        with working(asking.spool.root) as started:
            posted(asking, longer, HANGS)
            until(lambda: list(asking.spool.claims.iterdir()))
            started.process.send_signal(signal.SIGINT)
            until(lambda started=started: "Ctrl-C again" in started.lines)
            started.process.send_signal(twice)
            assert started.process.wait(300) == 130
        assert not list(asking.spool.claims.iterdir())


@pytest.mark.slow
def test_a_worker_starts_itself_again_with_newer_code(asking: SpoolEvaluator, problem: Problem) -> None:
    with working(asking.spool.root) as started:
        until(lambda: "waits for jobs" in started.lines)
        manifest = asking.spool.root / worker_payload.FOLDER / "manifest.json"
        job_store.write(manifest, {"files": {**(job_store.read_json(manifest) or {})["files"], "ksflow/old.py": "1"}})
        until(lambda: started.lines.count("waits for jobs") == 2)
        name = posted(asking, problem, WRONG)
        assert until(lambda: asking.spool.result(name)).verdict is Verdict.INCORRECT


MODEL = """import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2


def get_inputs():
    return [torch.rand(SIZE, 64)]


def get_init_inputs():
    return []
"""


@pytest.mark.slow
@pytest.mark.soak
def test_a_suite_goes_through_the_folder_and_goes_on(tmp_path: Path) -> None:
    (tmp_path / "level1").mkdir()
    for number in (1, 2):
        (tmp_path / "level1" / f"{number}_Scale.py").write_text(MODEL.replace("SIZE", str(32 * number)))
    words = ["problem=kernelbench", "problem.root=.", "problem.level=1", "problem.id=1,2", "problem.cap=null"]
    words += ["evaluator=spool", "evaluator.folder=spool", "suite.at_once=2", "loop.confirm=false"]
    command = [sys.executable, "-m", "ksflow", "suite", *words]
    spool = tmp_path / "spool"
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL) as killed:
        until(lambda: len(list(spool.glob("jobs/*.json"))) == 2)  # nobody judges
        killed.kill()
    until(lambda: not at_work(tmp_path))
    jobs = {job.stem for job in spool.glob("jobs/*.json")}
    with working(spool) as started:
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert all(started.lines.count(job) == 1 for job in jobs)
    report = json.loads((tmp_path / "runs/suites/suite/report.json").read_text())
    assert all(row["figures"]["baselines"]["00_eager.py"]["us"] > 0 for row in report["rows"])
    assert {taken.stem for taken in spool.glob("taken/*.json")} == jobs  # none was asked twice
    assert not list((spool / "jobs").iterdir())
