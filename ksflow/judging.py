"""Asking an evaluator: what its answer holds for, and the answer with that written on it."""

import time
from dataclasses import replace

from ksflow.errors import boundary
from ksflow.protocols import Evaluator
from ksflow.records import Evaluation, Kernel, Key, Problem, Trial


def key(problem: Problem, evaluate: Evaluator) -> Key:
    """What a verdict given now holds for."""
    return Key(problem.digest, getattr(evaluate, "judge", ""), getattr(evaluate, "fingerprint", ""))


def verdict(problem: Problem, evaluate: Evaluator, kernel: Kernel, against: tuple[Trial, ...]) -> Evaluation:
    """The judge's word with its key and what it took. Raises StageError when the evaluator fails."""
    started = time.monotonic()
    with boundary("evaluator"):
        evaluation = evaluate(problem, kernel, against)
    judge = evaluation.judge or key(problem, evaluate).judge
    return replace(evaluation, judge=judge, problem=problem.digest, wall_s=round(time.monotonic() - started, 3))
