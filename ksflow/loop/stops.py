"""What a run has used, and why it begins nothing more."""

import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ksflow.loop.budget import Meter

INTERRUPTED, KEPT = "interrupted", "every verdict is kept, and the same command goes on"


@dataclass
class Tally:
    """What a run has used so far; the run counts."""

    most: float = math.inf
    """Questions to the judge that the budget covers."""
    started: float = field(default_factory=time.monotonic)
    dispatched: int = 0
    """Questions to the judge that are taken from the budget, answered or not."""
    judged: int = 0
    """Experiments that were judged."""
    repeats: int = 0
    """Those that were answered from the record."""
    checks: int = 0
    """Kernels that were judged while being written."""
    tried: int = 0
    """Experiments that came to a kernel."""
    rounds: int = 0
    """Rounds that have begun."""
    planning: set[str] = field(default_factory=set)
    """Those of them that have not said yet how many experiments they bring."""
    barren: int = 0
    """Rounds in a row without a trial."""
    harness_errors: int = 0
    """Questions in a row that the judge could not answer."""
    judge_s: float = 0.0
    trouble: str = ""
    """Why the newest experiment, or the newest round, came to nothing."""


class Budget:
    """The most that may be used of something: `spent` says how much is."""

    def __init__(self, name: str, most: float, spent: Callable[[Tally], float]) -> None:
        self.name, self.most, self.spent = name, most, spent
        self.at_once = name != "rounds"
        """Whether rounds in flight end at their next step; if not, no other round begins."""

    def used_share(self, tally: Tally) -> float:
        """The share of it that is used."""
        return self.spent(tally) / self.most if self.most else 1.0

    def remaining(self, tally: Tally) -> float:
        """How much of it is left; evaluations in flight are not."""
        return max(self.most - (tally.dispatched if self.name == "evaluations" else self.spent(tally)), 0.0)

    def reason(self, tally: Tally) -> str:
        """Names the budget and its amount, and says how many evaluations were checks."""
        if self.used_share(tally) < 1:
            return ""
        checks = tally.checks if self.name == "evaluations" else 0
        return f"{self.name}={self.most:g} used up{f', {checks} of them as checks by the writer' if checks else ''}"


_OF_RUN: Mapping[str, Callable[[Tally], float]] = {
    "evaluations": lambda tally: tally.judged + tally.checks,
    "rounds": lambda tally: tally.rounds,
    "minutes": lambda tally: (time.monotonic() - tally.started) / 60,
    "stages.evaluator.minutes": lambda tally: tally.judge_s / 60,
}


def budgets(caps: Mapping[str, float], meter: Meter) -> tuple[Budget, ...]:
    """The budgets of a run by their names; the meter counts those of models."""

    def budget(name: str, most: float) -> Budget:
        return Budget(name, most, _OF_RUN.get(name, lambda tally: meter.amount(name)))

    return tuple(budget(name, most) for name, most in caps.items())


class RunLimits:
    """When a run has had enough: its budgets, Ctrl-C, an error, or what a round could not go on from."""

    def __init__(self, tally: Tally, interrupted: threading.Event) -> None:
        self.tally, self.interrupted = tally, interrupted
        self.budgets: tuple[Budget, ...] = ()
        self.most_barren = self.most_failures = math.inf
        """Rounds in a row without a trial, and questions in a row that the judge could not answer, which end a run."""
        self.hold = False
        """Whether stops end what has begun: not before the search, nor where recorded steps are repeated one by one."""
        self.ended = ""
        """Why no more rounds begin."""
        self.error: BaseException | None = None

    def is_reached(self) -> bool:
        """Whether nothing more is to be begun. Asked before each trial, and between the steps of a round."""
        if self.interrupted.is_set() or self.error:
            return True
        return self.hold and bool(self.ended or self.stop_reason(at_once=True))

    def stop_reason(self, at_once: bool = False) -> str:
        """Why no more rounds begin, or with `at_once` why those in flight end; empty where there is no reason."""
        tally = self.tally
        budgets = (budget.reason(tally) for budget in self.budgets if budget.at_once or not at_once)
        if reason := next(filter(None, budgets), ""):
            return reason
        if tally.barren >= self.most_barren:
            return ": ".join(filter(None, (f"{tally.barren} rounds in a row brought no trial", tally.trouble)))
        failures = tally.harness_errors
        return f"the judge failed {failures} times in a row: {tally.trouble}" if failures >= self.most_failures else ""

    @property
    def reason(self) -> str:
        """Why it ends."""
        interrupted = INTERRUPTED if self.interrupted.is_set() else "nothing more may begin"
        return self.ended or self.stop_reason() or interrupted
