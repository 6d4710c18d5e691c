"""ksflow from Python: `run`, `evaluate` and `Study`, which take the words of the command line.

outcome = ksflow.run("problem=softmax", "loop.evaluations=20")
outcome.best.id, outcome.score_us, outcome.best.kernel.main
ksflow.evaluate("my_kernel.cpp", "problem=softmax").verdict
with ksflow.Study("softmax", budget=20) as study:
    trial = study.result(study.submit(ksflow.Kernel("cpp", {"kernel.cpp": text})))
"""

import os
import sys
import time
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, Self

from ksflow import log
from ksflow.cli import verbs
from ksflow.cli.task import run_parts
from ksflow.config import compose
from ksflow.errors import KsflowError, NothingTried
from ksflow.loop import judging
from ksflow.loop.assistant import AskTell
from ksflow.loop.schedule import Outcome
from ksflow.problem.loader import kernel_file
from ksflow.records import Evaluation, Kernel, Origin, Trial


def run(*overrides: str, quiet: bool = False) -> Outcome:
    """Search as `python -m ksflow OVERRIDES` does, in this process, and return what came of it.

    The run is kept in `runs/` below the current folder and is gone on with by the same words. quiet: write nothing to
    stdout and stderr. Raises KsflowError with the line that the command would print. One at a time in a process.
    """
    found: list[Outcome] = []
    began = time.monotonic()

    def job(cfg: Any) -> float | None:
        found.append(verbs.search(cfg, began))
        return found[-1].score_us

    with ExitStack() as undo:
        undo.callback(setattr, sys, "argv", sys.argv)
        undo.callback(log.close)
        if quiet:
            nowhere = undo.enter_context(open(os.devnull, "w", encoding="utf-8"))
            undo.enter_context(redirect_stdout(nowhere))
            undo.enter_context(redirect_stderr(nowhere))
        compose.launch(job, list(overrides))
    if found and all(outcome.idle for outcome in found):
        raise NothingTried(found[0].idle)
    if not found:
        raise KsflowError("these words show something and run nothing: leave --cfg and its like out")
    return found[-1]


class Study(AskTell):
    """A run that a Python program drives: it plans experiments and submits kernels, the judge answers.

        with ksflow.Study("softmax", budget=20) as study:
            while not study.reason:
                study.result(study.submit(better_than(study.best.kernel)))

    The run is opened, and its seeds are judged, by the constructor; the end of the `with` statement, or `close`, ends
    its judge and releases its lineage. It is kept in `runs/` as any other, and the same words go on with it. Nothing is
    written to stdout and stderr. overrides: the words of the command line; a first one without "=" names the problem.
    budget: how often the judge may be asked, as `loop.evaluations=`. Raises KsflowError.
    """

    def __init__(self, *overrides: str, budget: int | None = None) -> None:
        log.keep_quiet()
        first, *rest = overrides or ("",)
        named = [f"problem={first}"] if first and "=" not in first and not first.startswith("-") else [*overrides[:1]]
        cfg = compose.compose([*named, *rest, *([] if budget is None else [f"loop.evaluations={budget}"])])
        with ExitStack() as opened:
            made = opened.enter_context(run_parts(cfg, driven=True))
            super().__init__(made.run(), made.seeds, made.profiler)
            self.open(made.settings)
            opened.callback(super().close)
            self.begin()
            self.wait_seeds()
            self._opened = opened.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Wait for what the judge is at work on, then end it; the same words go on with the run."""
        self._opened.close()


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
