"""Why a run begins nothing more. A stop says whether it is enough, and a budget also how much of it is used."""

import time
from collections.abc import Mapping

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
    """The most that may be used of something."""

    name = ""

    def __init__(self, most: float) -> None:
        self.most = most

    def spent(self, tally: Tally) -> float:
        """How much is used."""
        raise NotImplementedError

    def used(self, tally: Tally) -> float:
        """The share of it that is used."""
        return self.spent(tally) / self.most if self.most else 1.0

    def reason(self, tally: Tally) -> str:
        """Names the budget and its amount."""
        return f"{self.name}={self.most:g} used up" if self.used(tally) >= 1 else ""


class Evaluations(Budget):
    """Experiments written and judged, and kernels judged while they are written."""

    name = "evaluations"

    def spent(self, tally: Tally) -> float:
        """Both."""
        return tally.judged + tally.checks

    def reason(self, tally: Tally) -> str:
        """Also says how many were checks."""
        checks = f", {tally.checks} of them as checks by the writer" if tally.checks else ""
        return f"{found}{checks}" if (found := super().reason(tally)) else ""


class Rounds(Budget):
    """Rounds begun; those in flight are finished."""

    name, at_once = "rounds", False

    def spent(self, tally: Tally) -> float:
        """Of this call of the run."""
        return tally.rounds


class Minutes(Budget):
    """Of the whole call."""

    name = "minutes"

    def spent(self, tally: Tally) -> float:
        """Since it began."""
        return (time.monotonic() - tally.started) / 60


class JudgeMinutes(Budget):
    """Of the judge at work."""

    name = "stages.evaluator.minutes"

    def spent(self, tally: Tally) -> float:
        """As the verdicts tell."""
        return tally.judge_s / 60


class OfModels(Budget):
    """Dollars, tokens, calls or minutes of models, of all stages or of one, which a meter counts."""

    def __init__(self, name: str, most: float, meter: Meter) -> None:
        super().__init__(most)
        self.name, self._meter = name, meter

    def spent(self, tally: Tally) -> float:
        """Since the meter was made."""
        return self._meter.amount(self.name)


class BarrenRounds(Stop):
    """So many rounds in a row brought no trial."""

    def __init__(self, most: int) -> None:
        self.most = most

    def reason(self, tally: Tally) -> str:
        """Says how many."""
        return f"{tally.barren} rounds in a row brought no trial" if tally.barren >= self.most else ""


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


_OF_RUN = {kind.name: kind for kind in (Evaluations, Rounds, Minutes, JudgeMinutes)}


def budgets(caps: Mapping[str, float], meter: Meter) -> tuple[Budget, ...]:
    """The budgets of a run by their names: its own ones first, then those of models."""
    own = tuple(_OF_RUN[name](most) for name, most in caps.items() if name in _OF_RUN)
    return (*own, *(OfModels(name, most, meter) for name, most in caps.items() if name not in _OF_RUN))
