"""Calibration: predicted against measured gains of each designer.

An experiment counts with the result of its last attempt, repairs included. A failed one has no gain and is counted
separately. Left out: experiments without a prediction (a range of 0 to 0), untimed, unranked and stale ones. Gains are
in percent of the base's speed, as timed side by side if they were. The figures describe the record, not the next
experiment.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from ksflow.errors import one_line
from ksflow.records import Experiment, Population, Trial, base_of, first_attempt

FEW = 8  # accepted experiments below which ranges are not evaluated
_HELD = 0.8  # share of accepted experiments within a range of the right width
_Z = 1.96
_LATEST = 6  # predictions that a designer is shown one by one
_WORDS = 90  # characters of a description there


@dataclass(frozen=True)
class Prediction:
    """An experiment's predicted and measured gain."""

    trial: str  # the first attempt's id
    by: str  # the designer: `Trial.by`
    experiment: Experiment
    gain_percent: float | None  # None if no attempt was right

    @property
    def midpoint(self) -> float:
        """The middle of the predicted range, in percent."""
        return sum(self.experiment.gain_percent) / 2

    @property
    def came_true(self) -> bool:
        """Whether the measured gain is in the range."""
        low, high = self.experiment.gain_percent
        return self.gain_percent is not None and low <= self.gain_percent <= high


@dataclass(frozen=True)
class Calibration:
    """One designer's predictions and the measurements; gains are those of accepted experiments."""

    by: str
    experiments: int
    accepted: int
    held: int  # accepted ones whose gain is in the predicted range
    range_percent: tuple[float, float] | None  # medians of the ranges' lower and upper ends
    predicted_percent: float | None  # median of the ranges' middles
    measured_percent: float | None
    shift_points: float | None  # percentage points by which ranges should move. None with fewer than `FEW` accepted.
    width_factor: float | None
    """Factor on the width of the moved ranges to contain eight of ten. None with fewer than `FEW` accepted."""


def predictions(population: Population) -> tuple[Prediction, ...]:
    """Return every predicted and measured experiment, in the order of their ids."""
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
            speed = population.speedup(trial, base) if not evaluation.why_unranked else None
            if speed is None:
                continue
            gain = speed.gain_percent
        elif not trial.failure and (evaluation is None or evaluation.verdict.inconclusive):
            continue
        assert first.experiment is not None
        known.append(Prediction(first.id, first.by, first.experiment, gain))
    return tuple(known)


def calibrations(population: Population) -> tuple[Calibration, ...]:
    """Return a calibration for each designer, the one with most predictions first."""
    groups: dict[str, list[Prediction]] = defaultdict(list)
    for prediction in predictions(population):
        groups[prediction.by].append(prediction)
    return tuple(_calibration(group) for group in sorted(groups.values(), key=lambda group: (-len(group), group[0].by)))


def _calibration(record: Sequence[Prediction]) -> Calibration:
    pairs = [(prediction, prediction.gain_percent) for prediction in record if prediction.gain_percent is not None]
    middles, gains = [prediction.midpoint for prediction, _ in pairs], [gain for _, gain in pairs]
    ends = list(zip(*(prediction.experiment.gain_percent for prediction, _ in pairs), strict=True))
    shift = statistics.median(gain - prediction.midpoint for prediction, gain in pairs) if len(pairs) >= FEW else None
    return Calibration(
        record[0].by,
        len(record),
        len(pairs),
        sum(prediction.came_true for prediction, _ in pairs),
        (statistics.median(ends[0]), statistics.median(ends[1])) if pairs else None,
        statistics.median(middles) if pairs else None,
        statistics.median(gains) if pairs else None,
        shift,
        None if shift is None else _width(pairs, shift),
    )


def share(part: int, whole: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share, for whole >= 1."""
    p, z2 = part / whole, _Z * _Z
    middle = (p + z2 / (2 * whole)) / (1 + z2 / whole)
    half = _Z * math.sqrt(p * (1 - p) / whole + z2 / (4 * whole * whole)) / (1 + z2 / whole)
    return max(0.0, middle - half), min(1.0, middle + half)


def advice(population: Population, by: str) -> str:
    """Return a designer's own record as a few lines for its prompt, with the latest predictions; "" without one."""
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
    if calibration.shift_points is not None:
        wide = "" if calibration.width_factor is None else f" and be {calibration.width_factor:.2g} times as wide"
        lines.append(f"To hold eight of ten, your ranges should move by {calibration.shift_points:+.1f} points{wide}.")
    elif calibration.accepted:
        lines.append("That is too few to say how your ranges should change.")
    return "\n".join([*lines, "The latest:", *map(_line, reversed(record[-_LATEST:]))])


def _line(prediction: Prediction) -> str:
    low, high = prediction.experiment.gain_percent
    came = "failed" if prediction.gain_percent is None else f"measured {prediction.gain_percent:+.1f} %"
    words = one_line(prediction.experiment.description, _WORDS)
    return f"- {prediction.trial}: predicted {low:.3g} to {high:.3g} %, {came}: {words}"


def _width(pairs: Sequence[tuple[Prediction, float]], shift: float) -> float | None:
    """Return the factor with which the moved ranges contain eight of ten; None if most have no width."""
    ranges = [(*forecast.experiment.gain_percent, abs(gain - forecast.midpoint - shift)) for forecast, gain in pairs]
    needed = [2 * away / (high - low) for low, high, away in ranges if high > low]
    return sorted(needed)[math.ceil(_HELD * len(needed)) - 1] if len(needed) >= FEW else None
