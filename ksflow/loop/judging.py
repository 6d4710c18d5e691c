"""Asking an evaluator: what its answer holds for, and the answer with that written on it."""

import sys
import time
from dataclasses import replace

from ksflow.errors import StageError, boundary, expect_type
from ksflow.protocols import Evaluator
from ksflow.records import Evaluation, Kernel, Key, Problem, Trial, Verdict


def key(problem: Problem, evaluate: Evaluator) -> Key:
    """What a verdict given now holds for."""
    return Key(problem.digest, evaluate.judge, evaluate.fingerprint, evaluate.level)


def close(evaluate: Evaluator) -> None:
    """End its helpers; but not where a person abandons what it is at work on, who would wait."""
    if not isinstance(sys.exc_info()[1], KeyboardInterrupt):
        evaluate.close()


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
    if not (wall_s or evaluate.recorded):
        wall_s = round(time.monotonic() - started, 3)
    return replace(evaluation, judge=judge, problem=problem.digest, wall_s=wall_s)
