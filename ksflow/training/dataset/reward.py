"""What an outcome is worth to whoever learns from it, model or prompt. Numbers of the record alone; nothing is judged
here.

The reward of a kernel: 0 for an answer that cannot be read and for whatever cheats, 0.1 where it does not compile or
crashes, 0.2 where it is wrong, and 0.5 + log2(speed-up), the logarithm clipped to [-0.25, 2], where it is right: 0.5 is
as fast as what it is measured against, 1.5 twice as fast. None where the record cannot tell: stale, unranked, timed
out, untimed, the harness' own errors, repeats of earlier code, and kernels that were measured under different keys.
"""

import math
from typing import NamedTuple

from ksflow.records import Scale, Speedup, Trial, Verdict

SLOWEST, FASTEST = -0.25, 2.0
BEST = 0.5 + FASTEST  # the highest reward
CHEATS = (Verdict.CHEAT, Verdict.IMPOSSIBLE)
REJECTED = {
    Verdict.MALFORMED: 0.0,
    Verdict.CHEAT: 0.0,
    Verdict.IMPOSSIBLE: 0.0,
    Verdict.COMPILE: 0.1,
    Verdict.CRASH: 0.1,
    Verdict.INCORRECT: 0.2,
}
"""What a kernel that was not accepted is worth. A verdict that is not here says nothing of the kernel."""


class Worth(NamedTuple):
    """What an answer is worth."""

    reward: float
    good: bool  # whether it is faster beyond noise


def are_comparable(trial: Trial, other: Trial) -> bool:
    """Return whether both verdicts count and were given under the same key."""
    return is_valid(trial) and is_valid(other) and verdict_key(trial) == verdict_key(other)


def verdict_key(trial: Trial) -> tuple[str, str, str]:
    """Return what a trial's verdict holds for: the problem's digest, judge and machine."""
    assert trial.evaluation is not None
    return trial.evaluation.key


def is_valid(trial: Trial) -> bool:
    """Return whether a trial's verdict is current, its own and about the kernel."""
    evaluation = trial.evaluation
    if evaluation is None or trial.stale or trial.repeats or not evaluation.cacheable:
        return False
    return evaluation.accepted or evaluation.verdict in REJECTED


def ratio(trial: Trial, other: Trial, scale: Scale) -> Speedup | None:
    """Return how many times as fast `trial` is; None unless both were accepted and can be compared."""
    return scale.ratio(trial.id, other.id) if are_comparable(trial, other) else None


def relative_worth(trial: Trial, beside: Trial | None, scale: Scale) -> Worth | None:
    """Return what a kernel is worth beside another; None if the record cannot tell."""
    gain = ratio(trial, beside, scale) if beside else None
    return _rated(trial, Worth(of_speedup(gain.ratio), _beats(trial, beside, gain)) if gain and beside else None)


def beside_incumbent(trial: Trial, scale: Scale) -> Worth | None:
    """Return what a kernel is worth beside the best when it was judged; None if the record cannot tell."""
    claim = trial.evaluation.claim if trial.evaluation else None
    gain = scale.ratio(trial.id, claim.id) if claim else None
    return _rated(trial, Worth(of_speedup(gain.ratio), claim.ahead) if claim and gain else None)


def review_worth(trial: Trial) -> Worth | None:
    """Of what a verifier said (Brier's score): the nearer its risk is to the judge's verdict, the more, at most 1. Good
    where its findings and the risk are on the judge's side. None where the kernel was mended.
    """
    if trial.review is None or trial.review.mended or trial.evaluation is None or not is_valid(trial):
        return None
    risk, refused = trial.review.risk_percent / 100, not trial.evaluation.accepted
    return Worth(round(1 - (risk - refused) ** 2, 4), refused == bool(trial.review.findings) == (risk > 0.5))


def is_better(trial: Trial, other: Trial, scale: Scale) -> bool:
    """Return whether the judge prefers `trial`: as correct, or as faster beyond noise if both are correct."""
    if not are_comparable(trial, other) or trial.score_us is None:
        return False
    gain = ratio(trial, other, scale)
    return other.score_us is None or bool(gain and _beats(trial, other, gain))


def of_speedup(speedup: float) -> float:
    """Return the reward of a correct kernel with this speed-up."""
    return round(0.5 + min(max(math.log2(speedup), SLOWEST), FASTEST), 4)


def _rated(trial: Trial, right: Worth | None) -> Worth | None:
    """Return `right` for a correct kernel, else the verdict's worth; None if the verdict does not count."""
    evaluation = trial.evaluation
    if evaluation is None or not is_valid(trial):
        return None
    return right if evaluation.accepted else Worth(REJECTED[evaluation.verdict], False)


def _beats(trial: Trial, other: Trial, gain: Speedup) -> bool:
    claim = trial.evaluation.claim if trial.evaluation else None
    return gain.ahead and not (claim and claim.id == other.id and not claim.faster)
