"""Small real things the tests share: a problem folder, kernels, a lineage in a temporary repository."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ksflow.kernels.hardware.target import detect
from ksflow.lineage import Lineage
from ksflow.records import (
    Comparison,
    Evaluation,
    Evidence,
    Experiment,
    Kernel,
    Origin,
    Population,
    Timing,
    Trial,
    Verdict,
)
from ksflow.stages.evaluator.local import LocalEvaluator

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # what hundreds of processes import is compiled once, not by each
sys.dont_write_bytecode = False
if (
    threading.current_thread() is threading.main_thread()
):  # a job in a shell's background ignores Ctrl-C, its children too
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_runtest_setup() -> None:
    """One thread for each of pytest-xdist's workers, as the judge has it: torch's threads would spin beside them."""
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where nobody else's cache is; what is compiled and measured there is shared by pytest-xdist's workers."""
    folder = tmp_path_factory.getbasetemp()
    return (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "cache"


@pytest.fixture(autouse=True)
def own_folders(shared_cache: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Caches go where nobody else's are."""
    monkeypatch.setenv("DSPY_CACHEDIR", str(tmp_path_factory.getbasetemp() / "dspy"))
    monkeypatch.setenv("KSFLOW_CACHE", str(shared_cache))


@pytest.fixture(scope="session")
def evaluator() -> Iterator[LocalEvaluator]:
    """On this machine: one for all tests, as its judge takes seconds to start, and is meant to live long."""
    made = LocalEvaluator(detect())
    yield made
    made.close()


@pytest.fixture
def lineage(tmp_path: Path) -> Iterator[Lineage]:
    """An empty lineage with a clock that stands still; what is in it is not packed at the end."""
    made = Lineage(tmp_path / "lineage.git", "toy", clock=lambda: 1_700_000_000)
    yield made
    for one in (made, *_OPENED):
        one.store.close()
    _OPENED.clear()


_OPENED: list[Lineage] = []


def again(lineage: Lineage) -> Lineage:
    """The same lineage as another process would open it; the test's end closes it."""
    _OPENED.append(Lineage(lineage.store.path, lineage.problem, lineage.run))
    return _OPENED[-1]


def kernel(text: str = "int x = 1;\n") -> Kernel:
    """A kernel that nobody will run."""
    return Kernel("cpp", {"kernel.cpp": text}, "says what it did")


def accepted(us: float) -> Evaluation:
    """A verdict with one benchmark."""
    return Evaluation(
        Verdict.ACCEPT, "", us, (Timing("8x8", us, (us, us + 1)),), Evidence(more={"seed": 7}), "none", "t"
    )


def paired(trials: Iterable[Trial], *rest: Any, **fields: Any) -> Population:
    """A population in which every accepted kernel that was timed beside nothing was so beside the best until then, as
    in a search: its ratio is that of the scores, within 1 %."""
    made: list[Trial] = []
    best: Trial | None = None
    for trial in trials:
        evaluation, ratio = trial.evaluation, 2.0
        if best and best.score_us and evaluation and trial.score_us:
            ratio = best.score_us / trial.score_us
            if not (evaluation.evidence.against or evaluation.claim or trial.stale):
                row = Comparison(id=best.id, speedup=ratio, low=ratio / 1.01, high=ratio * 1.01)
                trial = replace(trial, evaluation=evaluation.with_evidence(against=(row,)))
        best = trial if trial.score_us and ratio > 1.03 else best
        made.append(trial)
    return Population(tuple(made), *rest, **fields)


def over(other: str, ratio: float, us: float, half: float = 1.01) -> Evaluation:
    """A verdict of a kernel that was timed beside another one."""
    row = Comparison(id=other, speedup=ratio, low=ratio / half, high=ratio * half)
    return accepted(us).with_evidence(against=(row,))


def rejected() -> Evaluation:
    """A verdict without a time."""
    return Evaluation(Verdict.INCORRECT, "element 3 is off", evidence=Evidence(more={"seed": 7}), target="t")


def draft(*parents: str, idea: str = "unroll the loop") -> Trial:
    """An experiment that has no id yet."""
    return Trial("", Origin.EXPERIMENT, parents, Experiment(idea, "it is unrolled", (1.0, 5.0), 10.0))


def plant(lineage: Lineage, text: str, us: float) -> Trial:
    """A judged seed."""
    from dataclasses import replace

    (seed,) = lineage.add_seeds([Trial("", Origin.SEED, kernel=kernel(text), name="seed.cpp")])
    done = replace(seed, evaluation=accepted(us))
    lineage.evaluate(done)
    return done


def until(seen: Callable[[], Any], seconds: float = 300.0) -> Any:
    """What it says, once it says something."""
    deadline = time.monotonic() + seconds
    while not (found := seen()):
        assert time.monotonic() < deadline, "did not happen"
        time.sleep(0.01)
    return found
