"""Predicted against measured gains: how far a designer's ranges can be believed. Pure arithmetic over a population.

An experiment counts with what its last attempt came to, repairs included. One that failed has no gain and is counted
apart. Left out: what nothing was predicted of (a range of 0 to 0), what could not be timed, what was timed on too noisy
a machine, and what is stale. Gains are in percent of the base's speed, as timed side by side where that was done. It
describes the record; it does not say what the next experiment will gain.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from ksflow.errors import one_line
from ksflow.records import Experiment, Population, Trial, base_of, first_attempt

FEW = 8
"""With fewer accepted experiments nothing is said of how ranges should change."""
_HELD = 0.8  # the share of accepted experiments that a range of the right width holds
_Z = 1.96
_LATEST = 6  # predictions that a designer is shown one by one
_WORDS = 90  # characters of a description there


@dataclass(frozen=True)
class Prediction:
    """What was predicted of an experiment, and what was measured."""

    trial: str
    """The first attempt's id."""
    by: str
    """What designed it: `Trial.by`."""
    experiment: Experiment
    gain_percent: float | None
    """None where nothing right came of it."""

    @property
    def middle(self) -> float:
        """Of the predicted range, in percent."""
        return sum(self.experiment.gain_percent) / 2

    @property
    def held(self) -> bool:
        """Whether what was measured lies in the range."""
        low, high = self.experiment.gain_percent
        return self.gain_percent is not None and low <= self.gain_percent <= high


@dataclass(frozen=True)
class Calibration:
    """One designer's predictions beside what was measured; figures of gains are over accepted experiments."""

    by: str
    experiments: int
    accepted: int
    held: int
    """Accepted ones whose gain lies in the predicted range."""
    range_percent: tuple[float, float] | None
    """Medians of the ranges' lower and upper ends."""
    predicted_percent: float | None
    """Median of the ranges' middles."""
    measured_percent: float | None
    """Median."""
    shift_points: float | None
    """By how much ranges should move, in percentage points. None with fewer than `FEW` accepted."""
    width_factor: float | None
    """How many times as wide the moved ranges should be to hold eight of ten. None with fewer than `FEW` accepted."""


def predictions(population: Population) -> tuple[Prediction, ...]:
    """Every experiment that something was predicted of and that was measured, in the order of their ids."""
    last: dict[str, Trial] = {}
    for trial in population.trials:
        first = first_attempt(trial, population.by_id)
        if first is not None and first.experiment is not None and any(first.experiment.gain_percent):
            last[first.id] = trial
    known = []
    for name, trial in last.items():
        first, evaluation, gain = population.by_id[name], trial.evaluation, None
        if evaluation is not None and evaluation.accepted:
            base = base_of(first, population.by_id)
            speed = population.speedup(trial, base) if not evaluation.unranked else None
            if speed is None:
                continue
            gain = speed.gain_percent
        elif not trial.failure and (evaluation is None or evaluation.verdict.blameless):
            continue
        assert first.experiment is not None
        known.append(Prediction(first.id, first.by, first.experiment, gain))
    return tuple(known)


def calibrations(population: Population) -> tuple[Calibration, ...]:
    """One for each designer, who has predicted most first."""
    groups: dict[str, list[Prediction]] = defaultdict(list)
    for prediction in predictions(population):
        groups[prediction.by].append(prediction)
    return tuple(_calibration(group) for group in sorted(groups.values(), key=lambda group: (-len(group), group[0].by)))


def _calibration(record: Sequence[Prediction]) -> Calibration:
    """Of one designer's predictions, at least one."""
    pairs = [(prediction, prediction.gain_percent) for prediction in record if prediction.gain_percent is not None]
    middles, gains = [prediction.middle for prediction, _ in pairs], [gain for _, gain in pairs]
    ends = list(zip(*(prediction.experiment.gain_percent for prediction, _ in pairs), strict=True))
    shift = statistics.median(gain - prediction.middle for prediction, gain in pairs) if len(pairs) >= FEW else None
    return Calibration(
        record[0].by,
        len(record),
        len(pairs),
        sum(prediction.held for prediction, _ in pairs),
        (statistics.median(ends[0]), statistics.median(ends[1])) if pairs else None,
        statistics.median(middles) if pairs else None,
        statistics.median(gains) if pairs else None,
        shift,
        None if shift is None else _width(pairs, shift),
    )


def share(part: int, whole: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share, of at least one."""
    p, z2 = part / whole, _Z * _Z
    middle = (p + z2 / (2 * whole)) / (1 + z2 / whole)
    half = _Z * math.sqrt(p * (1 - p) / whole + z2 / (4 * whole * whole)) / (1 + z2 / whole)
    return max(0.0, middle - half), min(1.0, middle + half)


def advice(population: Population, by: str) -> str:
    """A designer's own record as a few lines for its prompt, the latest predictions one by one; empty without one."""
    record = [prediction for prediction in predictions(population) if prediction.by == by]
    if not record:
        return ""
    calibration = _calibration(record)
    lines = [
        f"Of {calibration.experiments} experiments that you predicted, {calibration.accepted} were right and timed, "
        f"{calibration.experiments - calibration.accepted} failed."
    ]
    if calibration.predicted_percent is not None:
        lines.append(
            f"Your ranges held {calibration.held} of these {calibration.accepted}; "
            f"the median of their middles was {calibration.predicted_percent:+.1f} %, "
            f"of the measured gains {calibration.measured_percent:+.1f} %."
        )
    return "\n".join([*lines, *_changes(calibration), "The latest:", *map(_line, reversed(record[-_LATEST:]))])


def _changes(calibration: Calibration) -> list[str]:
    """How the ranges should change, where enough was measured to say so."""
    if calibration.shift_points is None:
        return ["That is too few to say how your ranges should change."] if calibration.accepted else []
    wide = "" if calibration.width_factor is None else f" and be {calibration.width_factor:.2g} times as wide"
    return [f"To hold eight of ten, your ranges should move by {calibration.shift_points:+.1f} points{wide}."]


def _line(prediction: Prediction) -> str:
    low, high = prediction.experiment.gain_percent
    came = "failed" if prediction.gain_percent is None else f"measured {prediction.gain_percent:+.1f} %"
    words = one_line(prediction.experiment.description, _WORDS)
    return f"- {prediction.trial}: predicted {low:.3g} to {high:.3g} %, {came}: {words}"


def _width(pairs: Sequence[tuple[Prediction, float]], shift: float) -> float | None:
    """The factor with which the moved ranges hold eight of ten; None where most are points."""
    ranges = [(*forecast.experiment.gain_percent, abs(gain - forecast.middle - shift)) for forecast, gain in pairs]
    needed = [2 * away / (high - low) for low, high, away in ranges if high > low]
    return sorted(needed)[math.ceil(_HELD * len(needed)) - 1] if len(needed) >= FEW else None
