"""What a run has used, and why it begins nothing more.

A stop says whether it is enough, and a budget also how much of it is used.
"""

import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ksflow.loop.budget import Meter


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
    unpromising: int = 0
    """Plans in a row without a promise."""
    harness_errors: int = 0
    """Questions in a row that the judge could not answer."""
    judge_s: float = 0.0
    trouble: str = ""
    """Why the newest experiment, or the newest round, came to nothing."""


class Stop:
    """A reason to end a run: so many, or so much, of something."""

    at_once = True
    """Whether rounds in flight end at their next step; if not, no other round begins."""

    def __init__(self, most: float) -> None:
        self.most = most

    def reason(self, tally: Tally) -> str:
        """Why it is enough; empty while it is not."""
        raise NotImplementedError


class Budget(Stop):
    """The most that may be used of something: `spent` says how much is."""

    def __init__(self, name: str, most: float, spent: Callable[[Tally], float], at_once: bool = True) -> None:
        super().__init__(most)
        self.name, self.spent, self.at_once = name, spent, at_once

    def used_share(self, tally: Tally) -> float:
        """The share of it that is used."""
        return self.spent(tally) / self.most if self.most else 1.0

    def remaining(self, tally: Tally) -> float:
        """How much of it is left."""
        return max(self.most - self.spent(tally), 0.0)

    def reason(self, tally: Tally) -> str:
        """Names the budget and its amount."""
        return f"{self.name}={self.most:g} used up" if self.used_share(tally) >= 1 else ""


class Evaluations(Budget):
    """Experiments written and judged, and kernels judged while they are written."""

    def __init__(self, most: float) -> None:
        super().__init__("evaluations", most, lambda tally: tally.judged + tally.checks)

    def remaining(self, tally: Tally) -> float:
        """What is in flight is not left."""
        return max(self.most - tally.dispatched, 0.0)

    def reason(self, tally: Tally) -> str:
        """Also says how many were checks."""
        checks = f", {tally.checks} of them as checks by the writer" if tally.checks else ""
        return f"{reason}{checks}" if (reason := super().reason(tally)) else ""


class BarrenRounds(Stop):
    """So many rounds in a row brought no trial."""

    def reason(self, tally: Tally) -> str:
        """Says how many, and what was said last."""
        reasons = (f"{tally.barren} rounds in a row brought no trial", tally.trouble)
        return ": ".join(filter(None, reasons)) if tally.barren >= self.most else ""


class JudgeFails(Stop):
    """The judge could not answer so many times in a row, which is no kernel's fault."""

    def reason(self, tally: Tally) -> str:
        """Says what the judge said last."""
        times = tally.harness_errors
        return f"the judge failed {times} times in a row: {tally.trouble}" if times >= self.most else ""


class NothingPromises(Stop):
    """So many rounds in a row the designer itself expected that every experiment of its plan would lose."""

    at_once = False

    def reason(self, tally: Tally) -> str:
        """Says how many."""
        rounds = tally.unpromising
        return f"nothing promises: {rounds} plans in a row expect no gain" if rounds >= self.most else ""


_OF_RUN: Mapping[str, Callable[[Tally], float]] = {
    "rounds": lambda tally: tally.rounds,
    "minutes": lambda tally: (time.monotonic() - tally.started) / 60,
    "stages.evaluator.minutes": lambda tally: tally.judge_s / 60,
}


def budgets(caps: Mapping[str, float], meter: Meter) -> tuple[Budget, ...]:
    """The budgets of a run by their names; the meter counts those of models."""
    return tuple(_budget(name, most, meter) for name, most in caps.items())


def _budget(name: str, most: float, meter: Meter) -> Budget:
    if name == "evaluations":
        return Evaluations(most)
    spent = _OF_RUN.get(name, lambda tally: meter.amount(name))
    return Budget(name, most, spent, at_once=name != "rounds")


class RunLimits:
    """When a run has had enough: its stops, Ctrl-C, an error, or what a round could not go on from."""

    def __init__(self, tally: Tally, interrupted: threading.Event) -> None:
        self.tally, self.interrupted = tally, interrupted
        self.stops: list[Stop] = []
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
        """The first stop's reason, of those that end rounds in flight or of all; empty where there is none."""
        asked = (stop for stop in self.stops if stop.at_once or not at_once)
        return next(filter(None, (stop.reason(self.tally) for stop in asked)), "")

    @property
    def reason(self) -> str:
        """Why it ends."""
        interrupted = "interrupted" if self.interrupted.is_set() else "nothing more may begin"
        return self.ended or self.stop_reason() or interrupted
