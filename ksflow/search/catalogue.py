"""Reads `catalogue.yaml`: kinds of tunables with their usual effects, and moves."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from ksflow.kernels.source.tunables import Tunable

_HOWS = ("next", "previous", "last", "first", "other", "reference", "favoured")
_WHENS = ("always", "gained", "lost", "stuck")


@dataclass(frozen=True)
class ChoiceKind:
    """The usual effect of a kind of tunable."""

    name: str
    worth_percent: tuple[float, float]
    risk_percent: float
    ordered: bool
    guess: str


@dataclass(frozen=True)
class Move:
    """A general optimisation: its changes, and their usual gain."""

    kinds: tuple[str, ...]
    how: str
    gain_percent: tuple[float, float]
    innovation: float
    scope: str = "one"
    along: Mapping[str, str] = field(default_factory=dict)
    when: str = "always"

    def __post_init__(self) -> None:
        known = self.how in _HOWS and self.when in _WHENS and self.scope in ("one", "each")
        if not known or any(how not in _HOWS for how in self.along.values()):
            raise ValueError(f"move of {self.kinds}: how {self.how}, scope {self.scope}, when {self.when}")


@dataclass(frozen=True)
class Catalogue:
    """All kinds and moves, in the order of the file."""

    kinds: Mapping[str, ChoiceKind]
    moves: tuple[Move, ...]

    def kind(self, tunable: Tunable) -> ChoiceKind:
        """Return the declared kind, or the one that the name suggests."""
        if tunable.kind in self.kinds:
            return self.kinds[tunable.kind]
        name = tunable.name.upper()
        return next(kind for kind in self.kinds.values() if re.search(kind.guess, name))


@cache
def catalogue(path: str = "") -> Catalogue:
    """Return the catalogue in `path`, or the shipped one."""
    source = Path(path) if path else Path(__file__).with_name("catalogue.yaml")
    data: dict[str, Any] = yaml.safe_load(source.read_text(encoding="utf-8"))
    moves = ({"along" if key == "with" else key: value for key, value in entry.items()} for entry in data["moves"])
    return Catalogue(
        {name: ChoiceKind(name, **entry) for name, entry in data["kinds"].items()},
        tuple(Move(**entry) for entry in moves),
    )
