"""Asking an evaluator: what its answer holds for, and the answer with that written on it."""

import sys
import time
from contextlib import suppress
from dataclasses import replace

from ksflow.errors import StageError, boundary, expect_type
from ksflow.protocols import Evaluator
from ksflow.records import Evaluation, Kernel, Key, Problem, Trial, Verdict


def key(problem: Problem, evaluate: Evaluator) -> Key:
    """What a verdict given now holds for."""
    told = (str(getattr(evaluate, name, "")) for name in ("judge", "fingerprint", "level"))
    return Key(problem.digest, *told)


def devices(evaluate: Evaluator) -> int:
    """How many kernels it judges at once."""
    return int(getattr(evaluate, "devices", 1))


def close(evaluate: Evaluator) -> None:
    """End its helpers, where it has any; but not where a person abandons what it is at work on, who would wait."""
    if hasattr(evaluate, "close") and not isinstance(sys.exc_info()[1], KeyboardInterrupt):
        evaluate.close()


def prepare(problem: Problem, evaluate: Evaluator, kernel: Kernel) -> None:
    """Let the evaluator do what needs no device (compile), while another kernel has it. What fails fails again when it
    is asked for the verdict.
    """
    if hasattr(evaluate, "prepare"):
        with suppress(StageError), boundary("evaluator"):
            evaluate.prepare(problem, kernel)


def verdict(problem: Problem, evaluate: Evaluator, kernel: Kernel, against: tuple[Trial, ...]) -> Evaluation:
    """The judge's word with its key and what it took; a harness error, which is nobody's fault, where it fails."""
    started, held = time.monotonic(), key(problem, evaluate)
    try:
        with boundary("evaluator"):
            evaluation = expect_type(Evaluation, evaluate(problem, kernel, against))
    except StageError as error:
        evaluation = Evaluation(Verdict.HARNESS, str(error), target=held.target)
    judge = evaluation.judge or held.judge
    wall_s = evaluation.wall_s
    if not (wall_s or getattr(evaluate, "recorded", False)):
        wall_s = round(time.monotonic() - started, 3)
    return replace(evaluation, judge=judge, problem=problem.digest, wall_s=wall_s)
