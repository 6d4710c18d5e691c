"""ksflow from Python: `run`, `evaluate` and `Study`, which take the words of the command line."""

import os
import sys
import time
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Self

from ksflow import log
from ksflow.cli import verbs
from ksflow.config import compose
from ksflow.config.parts import parts
from ksflow.errors import KsflowError
from ksflow.kernels.problem.kernel_file import kernel_file
from ksflow.loop import judging
from ksflow.loop.assistant import AskTell
from ksflow.loop.schedule import RunOutcome
from ksflow.records import Evaluation, Kernel


def run(*overrides: str, quiet: bool = False) -> RunOutcome:
    """Search as `python -m ksflow OVERRIDES` does, in this process, and return what came of it.

    The run is kept in `runs/` below the current folder and is gone on with by the same words. quiet: write nothing to
    stdout and stderr. Raises KsflowError with the line that the command would print. One at a time in a process.
    """
    with ExitStack() as undo:
        undo.callback(setattr, sys, "argv", sys.argv)
        undo.callback(log.close)
        if quiet:
            nowhere = undo.enter_context(open(os.devnull, "w", encoding="utf-8"))
            undo.enter_context(redirect_stdout(nowhere))
            undo.enter_context(redirect_stderr(nowhere))
        outcome = verbs.searched(list(overrides), time.monotonic())
    if outcome is None:
        raise KsflowError("these words show something and run nothing: leave --cfg and its like out")
    return outcome


class Study(AskTell):
    """A run that a Python program drives: it plans experiments and submits kernels, the judge answers.

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
            made = opened.enter_context(parts(cfg, driven=True))
            super().__init__(made.run(), made.seeds, made.settings, made.profiler)
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
    try:
        return judging.verdict(problem, judge, given, judging.baselines(problem, given))
    finally:
        judging.close(judge)
