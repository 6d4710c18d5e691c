"""How well a candidate can be held here: the levels, and which one this machine reaches."""

from dataclasses import dataclass, field
from functools import cache

LEVELS = ("none", "rlimits", "landlock", "userns", "full")
"""Weakest first."""


@dataclass(frozen=True)
class Probe:
    """What was found."""

    level: str
    """The best of LEVELS that works here."""
    layers: dict[str, str] = field(default_factory=dict)
    """Layer -> what it is, or why it is missing."""


@cache
def probe() -> Probe:
    """Try the layers out, once per process."""
    return Probe("rlimits")
