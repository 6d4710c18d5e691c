"""Why a run begins nothing more. A stop says whether it is enough, and a budget also how much of it is used."""

import time
from collections.abc import Callable, Iterable, Mapping

from ksflow.loop.budget import Meter
from ksflow.loop.trial_state import Tally


class Stop:
    """A reason to end a run."""

    at_once = True
    """Whether rounds in flight end at their next step; if not, no other round begins."""

    def reason(self, tally: Tally) -> str:
        """Why it is enough; empty while it is not."""
        raise NotImplementedError


class Budget(Stop):
    """The most that may be used of something: `spent` says how much is."""

    def __init__(self, name: str, most: float, spent: Callable[[Tally], float], at_once: bool = True) -> None:
        self.name, self.most, self.spent, self.at_once = name, most, spent, at_once

    def used(self, tally: Tally) -> float:
        """The share of it that is used."""
        return self.spent(tally) / self.most if self.most else 1.0

    def reason(self, tally: Tally) -> str:
        """Names the budget and its amount."""
        return f"{self.name}={self.most:g} used up" if self.used(tally) >= 1 else ""


class Evaluations(Budget):
    """Experiments written and judged, and kernels judged while they are written."""

    def __init__(self, most: float) -> None:
        super().__init__("evaluations", most, lambda tally: tally.judged + tally.checks)

    def reason(self, tally: Tally) -> str:
        """Also says how many were checks."""
        checks = f", {tally.checks} of them as checks by the writer" if tally.checks else ""
        return f"{found}{checks}" if (found := super().reason(tally)) else ""


class BarrenRounds(Stop):
    """So many rounds in a row brought no trial."""

    def __init__(self, most: int) -> None:
        self.most = most

    def reason(self, tally: Tally) -> str:
        """Says how many, and what was said last."""
        found = (f"{tally.barren} rounds in a row brought no trial", tally.trouble)
        return ": ".join(filter(None, found)) if tally.barren >= self.most else ""


class JudgeFails(Stop):
    """The judge could not answer so many times in a row, which is no kernel's fault."""

    def __init__(self, most: int = 10) -> None:
        self.most = most

    def reason(self, tally: Tally) -> str:
        """Says what the judge said last."""
        times = tally.harness_errors
        return f"the judge failed {times} times in a row: {tally.trouble}" if times >= self.most else ""


class NothingPromises(Stop):
    """So many rounds in a row the designer itself expected that every experiment of its plan would lose."""

    at_once = False

    def __init__(self, most: int) -> None:
        self.most = most

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


def first_reason(stops: Iterable[Stop], tally: Tally, at_once: bool = False) -> str:
    """Of the first that is enough, of all or of those that end rounds in flight; empty where there is none."""
    return next(filter(None, (stop.reason(tally) for stop in stops if stop.at_once or not at_once)), "")
