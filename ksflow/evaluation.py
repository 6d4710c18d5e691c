"""Asking an evaluator: what its answer holds for, and the answer with that written on it."""

import time
from dataclasses import replace

from ksflow.errors import boundary
from ksflow.protocols import Evaluator
from ksflow.records import Evaluation, Kernel, Key, Problem, Trial


def key(problem: Problem, evaluate: Evaluator) -> Key:
    """What a verdict given now holds for."""
    told = (str(getattr(evaluate, name, "")) for name in ("judge", "fingerprint", "level"))
    return Key(problem.digest, *told)


def prepare(problem: Problem, evaluate: Evaluator, kernel: Kernel) -> None:
    """Let the evaluator do what needs no device (compile), while another kernel has it. Raises StageError."""
    if hasattr(evaluate, "prepare"):
        with boundary("evaluator"):
            evaluate.prepare(problem, kernel)


def verdict(problem: Problem, evaluate: Evaluator, kernel: Kernel, against: tuple[Trial, ...]) -> Evaluation:
    """The judge's word with its key and what it took. Raises StageError when the evaluator fails."""
    started = time.monotonic()
    with boundary("evaluator"):
        evaluation = evaluate(problem, kernel, against)
    judge = evaluation.judge or key(problem, evaluate).judge
    wall_s = evaluation.wall_s
    if not (wall_s or getattr(evaluate, "recorded", False)):
        wall_s = round(time.monotonic() - started, 3)
    return replace(evaluation, judge=judge, problem=problem.digest, wall_s=wall_s)
