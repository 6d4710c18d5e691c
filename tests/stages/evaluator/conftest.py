"""A toy problem, and how kernels for it are judged."""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ksflow.records import Evaluation, Kernel, Problem
from ksflow.stages.evaluator.local import LocalEvaluator

from . import toy

Judge = Callable[..., Evaluation]


def in_the_end(judge: Callable[[], Evaluation], right: Callable[[Evaluation], bool]) -> Evaluation:
    """An evaluation that is right: on a machine that others use too perhaps not the first."""
    for _ in range(12):
        if right(found := judge()):
            return found
    raise AssertionError(found)


@pytest.fixture(scope="session")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    """Vector addition."""
    return toy.problem(tmp_path_factory.mktemp("add"))


@pytest.fixture
def judge(evaluator: LocalEvaluator, problem: Problem) -> Judge:
    """Kernel, and what to compare it with -> evaluation: timed on one case, as each takes the judge seconds."""
    timed_once = replace(problem, benchmarks=problem.benchmarks[-1:])

    def evaluate(kernel: Kernel, *versus: Kernel) -> Evaluation:
        trials = tuple(toy.trial(other, f"{index:05d}") for index, other in enumerate(versus))
        return evaluator(timed_once, kernel, trials)

    return evaluate


@pytest.fixture
def folder() -> Iterator[Path]:
    """Writable by any user, for kernels that leave traces: as root, a kernel runs as a user of its own."""
    with tempfile.TemporaryDirectory(prefix="ksflow-test-") as name:
        path = Path(name)
        path.chmod(0o777)
        yield path
