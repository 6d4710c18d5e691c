"""Base of all records, and small helpers."""

import hashlib
import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

Scalar = bool | int | float | str
Json = dict[str, Any]


class Record:
    """Base of the records that are read from JSON: strict types, finite numbers, no unknown keys."""

    __slots__ = ()
    __pydantic_config__: ClassVar[dict[str, Any]] = {
        "extra": "forbid",
        "allow_inf_nan": False,
        "ser_json_inf_nan": "constants",
        "strict": True,
    }


def digest(*texts: str, digits: int = 16) -> str:
    """Return a digest of the texts with so many hexadecimal digits."""
    return hashlib.sha256("\0".join(texts).encode("utf-8", "replace")).hexdigest()[:digits]


def are_plausible(*values: float) -> bool:
    """Return whether all can be times or ratios: positive, and no quotient of two of them is infinite or zero."""
    return all(1e-100 < value < 1e100 for value in values)


def by_number(id: str) -> tuple[float, str]:
    """Return a sort key of trial ids: numbers by value, so 99999 comes before 100000; then other names."""
    return (int(id) if id.isdecimal() else math.inf if id else -1, id)


def round_significant(value: float) -> float:
    """Return the number rounded to six significant digits, as ratios are recorded; small ones do not become 0."""
    return float(f"{value:.6g}")


def relative_weights(weights: Sequence[float]) -> list[float]:
    """Return the weights divided by their mean: exactly 1 each if all are equal."""
    return [weight * len(weights) / math.fsum(weights) for weight in weights]


def mean(values: Iterable[float], weights: Sequence[float] = ()) -> float:
    """Return the mean of numbers, each with its weight; without weights each counts alike."""
    if not weights:
        return statistics.fmean(values)
    return statistics.fmean(v * w for v, w in zip(values, relative_weights(weights), strict=True))


def geomean(values: Iterable[float], weights: Sequence[float] = ()) -> float:
    """Return the geometric mean of positive numbers, each with its weight; without weights each counts alike."""
    return math.exp(mean(map(math.log, values), weights))
