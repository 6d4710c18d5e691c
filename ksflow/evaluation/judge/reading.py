"""The speed-up of one kernel over another, and what may be said of it."""

import math
from dataclasses import dataclass

from ksflow.evaluation.judge import statistics
from ksflow.records.base import Json, round_significant
from ksflow.records.evidence import BUSY, RESOLVED

MARGIN = math.log(RESOLVED)
_FEW, _CLOSE, _CLOSE_BESIDE_OTHERS = 4, math.log(1.1), math.log(1.5)
"""With fewer replicates than _FEW, a smaller difference is not called faster or slower. The last value applies while
other programs use the machine."""
_WIDE = math.log(1.1)  # an interval that contains 1 and is wider than this decides nothing
_HOPE = 0.05  # a claim less likely to succeed is given up
_DISAGREE = 0.01  # p value below which replicates are said to disagree


@dataclass(frozen=True)
class Reading:
    """The speed-up of one kernel over another."""

    effect: statistics.RandomEffects  # the logarithm
    mean: statistics.RandomEffects  # the logarithm by the mean over all calls
    clocks: list[str]  # names of the clocks
    usable: bool  # whether enough calls were undisturbed
    calm: bool = True  # whether hardly any call was disturbed

    def row(self) -> Json:
        """Return the record; a speed-up above 1 means that the first kernel is faster."""
        effect, mean = self.effect, self.mean
        ends = (effect.low, effect.high) if self._claims else (min(effect.low, 0.0), max(effect.high, 0.0))
        speedup, low, high = (round_significant(math.exp(end)) for end in (effect.mean, *ends))
        values = [round_significant(math.exp(value)) for value in self.effect.values]
        return {
            "speedup": speedup,
            "low": low,
            "high": high,
            "mean": [round_significant(math.exp(end)) for end in (mean.mean, mean.low, mean.high)],
            "replicates": values,
            "tau": round(effect.tau, 5),
            "heterogeneity_p": round(effect.p, 6),
            "clocks": self.clocks,
            "ranked": not self.doubt,
            "why": self.doubt,
        }

    def clear(self, claimed: bool, patient: bool, most: int) -> bool:
        """Return whether further replicates could not change the decision.

        That is so if one kernel is surely faster or the first is surely not ahead by `RESOLVED`; without a claim, also
        if the first does not seem ahead; with a claim, also if it is unlikely to succeed within `most` replicates. If
        the usual calls decide nothing and `patient` is False, the mean over all calls may decide.
        """
        if self.doubt:
            return not patient and self.mean.reach < MARGIN
        if self.effect.reach < MARGIN:
            return True
        if claimed and not patient and self.effect.chance(len(self.effect.values), most, MARGIN) < _HOPE:
            return True
        return abs(self.sure_log) > MARGIN or (not claimed and self.effect.mean < MARGIN)

    @property
    def sure_log(self) -> float:
        """Return the logarithm of the certain lead, below 0 if the other kernel leads; 0 if neither does."""
        return self._apart if self._claims else 0.0

    @property
    def _apart(self) -> float:
        return max(self.effect.low, 0.0) + min(self.effect.high, 0.0)

    @property
    def _claims(self) -> bool:
        """Return whether there are enough replicates for a claim: a few agree by chance too often."""
        if len(self.effect.values) >= _FEW:
            return True
        return abs(self._apart) > _CLOSE if self.calm else abs(self.effect.mean) > _CLOSE_BESIDE_OTHERS

    @property
    def doubt(self) -> str:
        """Return why the two kernels cannot be ranked, or ""."""
        effect, mean = self.effect, self.mean
        seen = ", ".join(f"x{math.exp(value):.3g}" for value in effect.values)
        if (count := len(effect.values)) > _FEW:
            least, most = math.exp(min(effect.values)), math.exp(max(effect.values))
            seen = f"x{least:.3g} to x{most:.3g} in {count} comparisons"
        if not self.usable:
            why = "most of their calls were preempted"
        elif not self.sure_log and 2 * min(effect.half, effect.with_prior.half) > _WIDE:
            ends = f"x{math.exp(effect.low):.3g} to x{math.exp(effect.high):.3g}"
            why = f"replicates disagree: {seen}" if effect.p < _DISAGREE else f"{seen}: the interval {ends} is too wide"
        elif abs(self.sure_log) > MARGIN and not (mean.low > 0 if self.sure_log > 0 else mean.high < 0):
            ends = f"x{math.exp(mean.mean):.3g} [{math.exp(mean.low):.3g}, {math.exp(mean.high):.3g}]"
            why = f"x{math.exp(effect.mean):.3g} by the usual call, and {ends} by the mean over all calls"
        else:
            return ""
        return f"{why} {BUSY}"
