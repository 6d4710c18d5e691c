"""Asking an evaluator, when it is one's turn: what its answer holds for, and the answer with that written on it."""

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from ksflow.errors import StageError, stage_boundary
from ksflow.protocols import Evaluator
from ksflow.records import Comparison, Evaluation, Kernel, Key, Origin, Problem, Trial, Verdict, schema

_ALONE = 1.03  # how far scores of two moments may be off, where an evaluator times nothing side by side


def current_key(problem: Problem, evaluate: Evaluator) -> Key:
    """What a verdict given now holds for. StageError where the evaluator cannot say what it is."""
    with stage_boundary("evaluator"):
        return schema.check_answer(Key, Key(problem.digest, evaluate.judge, evaluate.fingerprint, evaluate.level))


def baselines(problem: Problem, kernel: Kernel) -> tuple[Trial, ...]:
    """The problem's baselines other than the kernel, as trials to time it beside."""
    seeds = (seed for seed in problem.seeds if seed.baseline and seed.kernel.digest != kernel.digest)
    return tuple(Trial(seed.name, Origin.SEED, kernel=seed.kernel, name=seed.name) for seed in seeds)


def close(evaluate: Evaluator) -> None:
    """End its helpers; but not where a person abandons what it is at work on, who would wait."""
    if not isinstance(sys.exc_info()[1], KeyboardInterrupt):
        with suppress(StageError), stage_boundary("evaluator"):
            evaluate.close()


def verdict(problem: Problem, evaluate: Evaluator, kernel: Kernel, versus: tuple[Trial, ...]) -> Evaluation:
    """The judge's word with its key and what it took; a harness error, which is nobody's fault, where it fails."""
    started, held = time.monotonic(), Key(problem.digest, "", "")
    try:
        with stage_boundary("evaluator"):
            held = current_key(problem, evaluate)
            evaluation = schema.check_answer(Evaluation, evaluate(problem, kernel, versus))
    except StageError as error:
        evaluation = Evaluation(Verdict.HARNESS, str(error), target=held.target)
    if not evaluate.recorded:
        evaluation = _beside(evaluation, versus)
    judge = evaluation.judge or held.judge
    wall_s = evaluation.wall_s
    if not (wall_s or evaluate.recorded):
        wall_s = round(time.monotonic() - started, 3)
    return replace(evaluation, judge=judge, problem=problem.digest, wall_s=wall_s)


def _beside(evaluation: Evaluation, versus: tuple[Trial, ...]) -> Evaluation:
    """A verdict of an evaluator that times each kernel alone, with how its scores compare: within `_ALONE`."""
    record, score = evaluation.evidence, evaluation.score_us
    if score is None or record.against or record.claim or record.unranked or record.skipped or record.failed_rivals:
        return evaluation
    ratios = {trial.id: trial.score_us / score for trial in versus if trial.score_us}
    rows = (
        Comparison(id=name, speedup=ratio, low=ratio / _ALONE, high=ratio * _ALONE, clocks=("score",))
        for name, ratio in ratios.items()
    )
    more = {key: value for key, value in record.more.items() if key != "against"}
    return evaluation.with_evidence(against=tuple(rows), more=more)


class DeviceQueue:
    """Lets `places` threads through at a time, in the order of their coming. `busy_s`: how long places were taken."""

    def __init__(self, places: int) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[object] = deque()
        self._taken = 0
        self.places = places
        self.busy_s = 0.0

    @contextmanager
    def hold_place(self) -> Iterator[None]:
        """Wait for one, and have it meanwhile."""
        ticket = object()
        with self._changed:
            self._waiting.append(ticket)
            while self._waiting[0] is not ticket or self._taken >= self.places:
                self._changed.wait()
            self._waiting.popleft()
            self._taken += 1
            self._changed.notify_all()
        since = time.monotonic()
        try:
            yield
        finally:
            with self._changed:
                self._taken -= 1
                self.busy_s += time.monotonic() - since
                self._changed.notify_all()

    def verdict(
        self,
        problem: Problem,
        evaluate: Evaluator,
        kernel: Kernel,
        versus: Callable[[], tuple[Trial, ...]],
        known: Callable[[str], Evaluation | None] | None = None,
    ) -> Evaluation:
        """The judge's word, as the function `verdict` has it, when it is the thread's turn: `versus` is asked then.

        known: what was said of a kernel that compiles to the same code, which is then the answer.
        """
        with self.hold_place():
            said = None
            if known:
                with suppress(StageError), stage_boundary("evaluator"):  # what fails here fails again below
                    said = known(evaluate.code(problem, kernel))
            return said or verdict(problem, evaluate, kernel, versus())
