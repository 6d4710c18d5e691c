"""Moves: the catalogue of optimisations (`catalogue.yaml`), and the untried configurations that it leads to."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import yaml

from ksflow.kernels.source.families import Config, Space
from ksflow.kernels.source.tunables import Tunable, values
from ksflow.records import Trial

if TYPE_CHECKING:
    from ksflow.search.forecast import Forecasts  # which needs numpy

_HOWS = ("next", "previous", "last", "first", "other", "reference", "favoured")
_WHENS = ("always", "lost")
_PAIRED = 14  # single moves that are combined in pairs
_STRANGERS = 20


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


_STRANGE = Move((), "other", (-50.0, 20.0), 60.0)  # a random configuration


@dataclass(frozen=True)
class Proposal:
    """A configuration, its changes of the base, and the moves that lead to it."""

    moves: tuple[Move, ...]
    changes: Config
    config: Config


def proposals(catalogue: Catalogue, space: Space, reference: Trial, model: "Forecasts", seed: str) -> list[Proposal]:
    """Return untried configurations, each once, with the first moves that lead to it."""
    values_there = values(reference.kernel.main) if reference.kernel else {}
    around = _Neighbourhood(catalogue, space, values_there, model)
    steps = ((move, changes) for move in catalogue.moves for changes in around.applied(move))
    singles = _distinct(space, (_proposal(space, (move,), made) for move, made in steps))
    forecasts = model.predict([single.config for single in singles])
    promising = sorted(zip(forecasts, singles, strict=True), key=lambda pair: -(pair[0].mean + pair[0].deviation))
    pairs = [  # two promising moves on different tunables
        _proposal(space, (*a.moves, *b.moves), {**a.changes, **b.changes})
        for (_, a), (_, b) in combinations(promising[:_PAIRED], 2)
        if not a.changes.keys() & b.changes.keys()
    ]
    strange = [Proposal((_STRANGE,), space.changes(c), c) for c in space.sample_untried(Random(seed), _STRANGERS)]
    distinct = _distinct(space, [*singles, *pairs, *strange])
    return [proposal for proposal in distinct if space.is_untried(proposal.config)]


def _proposal(space: Space, moves: tuple[Move, ...], made: Config) -> Proposal:
    config = space.effective_config({**space.base, **made})
    return Proposal(moves, {name: value for name, value in made.items() if name in config}, config)


class _Neighbourhood:
    """The changes that moves make from one base."""

    def __init__(self, catalogue: Catalogue, space: Space, reference: Mapping[str, str], model: "Forecasts") -> None:
        self.space, self.reference, self.model = space, reference, model
        self.kinds: dict[str, list[Tunable]] = {}
        for tunable in space.tunables:
            self.kinds.setdefault(catalogue.kind(tunable).name, []).append(tunable)

    def applied(self, move: Move) -> Iterator[Config]:
        ways = [*move.along.items(), *((kind, move.how) for kind in move.kinds if move.scope == "each")]
        along: dict[str, str] = {}  # tunable -> the first value that its way leads to
        for kind, how in ways:
            for tunable in self.kinds.get(kind, ()):
                if values := self._targets(tunable, how):
                    along[tunable.name] = values[0]
        if move.scope == "each":
            yield along
            return
        for tunable in (tunable for kind in move.kinds for tunable in self.kinds.get(kind, ())):
            for value in self._targets(tunable, move.how):
                gains = self.space.steps.get((tunable.name, self.space.base[tunable.name], value), ())
                if move.when == "always" or any(gain < 0 for gain in gains):
                    yield {**along, tunable.name: value}

    def _targets(self, tunable: Tunable, how: str) -> list[str]:
        options, here = tunable.options, tunable.options.index(self.space.base[tunable.name])
        if how == "favoured":  # the value with the best forecast
            forecasts = self.model.predict([{**self.space.base, tunable.name: option} for option in options])
            best = max(range(len(forecasts)), key=lambda i: forecasts[i].mean)
            targets = options[best : best + 1]
        else:
            targets = {
                "next": options[here + 1 : here + 2],
                "previous": options[max(here - 1, 0) : here],
                "last": options[-1:],
                "first": options[:1],
                "other": options,
                "reference": tuple(o for o in options if o == self.reference.get(tunable.name)),
            }[how]
        return [value for value in targets if value != self.space.base[tunable.name]]


def _distinct(space: Space, proposals: Iterable[Proposal]) -> list[Proposal]:
    seen: dict[tuple[str, ...], Proposal] = {}
    for proposal in proposals:
        if proposal.changes:
            seen.setdefault(space.key(proposal.config), proposal)
    return list(seen.values())
