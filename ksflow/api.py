"""ksflow from Python: `ksflow.run(...)` and `ksflow.evaluate(...)`, with the words of the command line.

outcome = ksflow.run("problem=softmax", "loop.evaluations=20")
outcome.best.id, outcome.score_us, outcome.best.kernel.main
ksflow.evaluate("my_kernel.cpp", "problem=softmax").verdict
"""

import sys
import time
from pathlib import Path
from typing import Any

from ksflow.cli import verbs
from ksflow.config import compose
from ksflow.errors import KsflowError, NothingTried
from ksflow.loop import judging
from ksflow.loop.schedule import Outcome
from ksflow.problem.loader import kernel_file
from ksflow.records import Evaluation, Kernel, Origin, Trial


def run(*overrides: str) -> Outcome:
    """Search as `python -m ksflow OVERRIDES` does, in this process; what came of it.

    The run is kept in `runs/` below the current folder and is gone on with by the same words. Raises KsflowError with
    the line that the command would print. One at a time in a process.
    """
    found: list[Outcome] = []
    before, began = sys.argv, time.monotonic()

    def job(cfg: Any) -> float | None:
        found.append(verbs.search(cfg, began))
        return found[-1].score_us

    try:
        compose.launch(job, list(overrides))
    finally:
        sys.argv = before
    if found and all(outcome.idle for outcome in found):
        raise NothingTried(found[0].idle)
    if not found:
        raise KsflowError("these words show something and run nothing: leave --cfg and its like out")
    return found[-1]


def evaluate(kernel: Kernel | str | Path, *overrides: str) -> Evaluation:
    """One verdict on a kernel (a record or a file), as `python -m ksflow evaluate` gives it; nothing is kept.

    It is timed beside the problem's baselines: `evidence.against`. A bad kernel is a verdict, never an exception.
    Raises KsflowError where the configuration or the machine does not do.
    """
    cfg = compose.compose(list(overrides))
    problem = compose.problem(cfg)
    given = kernel if isinstance(kernel, Kernel) else kernel_file(str(kernel), problem.languages)
    judge = compose.evaluator(cfg)
    beside = tuple(
        Trial(seed.name, Origin.SEED, kernel=seed.kernel, name=seed.name)
        for seed in problem.seeds
        if seed.baseline and seed.kernel.digest != given.digest
    )
    try:
        return judging.verdict(problem, judge, given, beside)
    finally:
        judging.close(judge)
