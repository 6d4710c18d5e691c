"""Moves applied to a base: which untried configurations the catalogue leads to from here."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from random import Random

from ksflow.records import Trial
from ksflow.search.catalogue import Catalogue, Move
from ksflow.search.surrogate import Forecast, SurrogateModel
from ksflow.source.families import Config, Space
from ksflow.source.tunables import Tunable, values

_DETOURS = 8  # risky single moves for which ways round are looked for
_RISKY = 0.3
_PAIRED = 14  # single moves whose pairs are looked at
_STRANGERS = 20
_STRANGE = Move(
    "a configuration by chance",
    (),
    "other",
    "Moves from here are few or known; a stranger may show what they cannot reach.",
    (-50.0, 20.0),
    60.0,
)
_JUMP = Move(
    "the values the measurements favour",
    (),
    "favoured",
    "Each tunable takes the value that did best, whatever kernel it was measured in.",
    (0.0, 50.0),
    45.0,
)
_DETOUR = Move(
    "away from what it may clash with",
    (),
    "other",
    "What failed before may have failed because of this value, so it is changed along.",
    (-20.0, 20.0),
    50.0,
)


@dataclass(frozen=True)
class Proposal:
    """A configuration, what it changes in the base, and the moves that lead to it."""

    moves: tuple[Move, ...]
    changes: Config
    config: Config


def proposals(catalogue: Catalogue, space: Space, reference: Trial, model: SurrogateModel, seed: str) -> list[Proposal]:
    """Untried configurations, each once, under the first moves that lead to it."""
    values_there = values(reference.kernel.main) if reference.kernel else {}
    neighbourhood = _Neighbourhood(catalogue, space, values_there, model)
    singles = _distinct(space, neighbourhood.singles())
    strange = [Proposal((_STRANGE,), space.changes(c), c) for c in space.sample_untried(Random(seed), _STRANGERS)]
    pairs, detours = neighbourhood.pairs(singles), neighbourhood.detours(singles)
    found = _distinct(space, [*singles, *pairs, *detours, *neighbourhood.climbs(), *strange])
    return [proposal for proposal in found if space.untried(proposal.config)]


class _Neighbourhood:
    """What moves lead to from one base."""

    def __init__(self, catalogue: Catalogue, space: Space, reference: Mapping[str, str], model: SurrogateModel) -> None:
        self.moves, self.space, self.reference, self.model = catalogue.moves, space, reference, model
        self.kinds: dict[str, list[Tunable]] = {}
        for tunable in space.tunables:
            self.kinds.setdefault(catalogue.kind(tunable).name, []).append(tunable)

    def singles(self) -> Iterator[Proposal]:
        """One move each."""
        for move in self.moves:
            for changes in self._applied(move):
                yield Proposal((move,), changes, {**self.space.base, **changes})

    def pairs(self, singles: Sequence[Proposal]) -> Iterator[Proposal]:
        """Two moves on different tunables, from those that promise most."""
        for (_, one), (_, two) in combinations(self._by_promise(singles)[:_PAIRED], 2):
            if not one.changes.keys() & two.changes.keys():
                yield Proposal((*one.moves, *two.moves), {**one.changes, **two.changes}, {**one.config, **two.changes})

    def detours(self, singles: Sequence[Proposal]) -> Iterator[Proposal]:
        """Promising moves that are likely to fail here, each with one more value changed."""
        risky = [single for forecast, single in self._by_promise(singles) if forecast.risk > _RISKY]
        for single in risky[:_DETOURS]:
            for tunable in self.space.tunables:
                if tunable.name not in single.changes:
                    for value in self._targets(tunable, "other"):
                        more = {tunable.name: value}
                        yield Proposal((*single.moves, _DETOUR), {**single.changes, **more}, {**single.config, **more})

    def climbs(self) -> Iterator[Proposal]:
        """From the base, tunable by tunable to the value that looks best, until none looks better."""
        for optimism in (0.0, 1.0, 2.0):
            config = dict(self.space.base)
            for _ in range(2 * len(self.space.tunables)):
                near = [{**config, t.name: o} for t in self.space.tunables for o in t.options if o != config[t.name]]
                forecasts = self.model.forecast([*near, config])
                merits = [f.mean + optimism * f.deviation + 3 * math.log1p(-f.risk) for f in forecasts]
                best = max(range(len(merits)), key=merits.__getitem__)
                if best == len(near):
                    break
                config = near[best]
                yield Proposal((_JUMP,), self.space.changes(config), config)

    def _by_promise(self, singles: Sequence[Proposal]) -> list[tuple[Forecast, Proposal]]:
        forecasts = self.model.forecast([single.config for single in singles])
        pairs = zip(forecasts, singles, strict=True)
        return sorted(pairs, key=lambda pair: -(pair[0].mean + pair[0].deviation))

    def _applied(self, move: Move) -> Iterator[Config]:
        """What `move` can change here. Kinds that move along do what they can."""
        ways = [*move.along.items(), *((kind, move.how) for kind in move.kinds if move.scope == "each")]
        along: dict[str, str] = {}  # of each tunable that has one, the first value that its way leads to
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
                applies = {
                    "always": True,
                    "stuck": self.space.stuck,
                    "gained": any(gain > 0 for gain in gains),
                    "lost": any(gain < 0 for gain in gains),
                }
                if applies[move.when]:
                    yield {**along, tunable.name: value}

    def _targets(self, tunable: Tunable, how: str) -> list[str]:
        """The values `how` leads to, from the base's."""
        options, here = tunable.options, tunable.options.index(self.space.base[tunable.name])
        if how == "favoured":  # the one that the measurements favour
            forecasts = self.model.forecast([{**self.space.base, tunable.name: option} for option in options])
            best = max(range(len(forecasts)), key=lambda i: forecasts[i].mean)
            found = options[best : best + 1]
        else:
            found = {
                "next": options[here + 1 : here + 2],
                "previous": options[max(here - 1, 0) : here],
                "last": options[-1:],
                "first": options[:1],
                "other": options,
                "reference": tuple(o for o in options if o == self.reference.get(tunable.name)),
            }[how]
        return [value for value in found if value != self.space.base[tunable.name]]


def _distinct(space: Space, found: Iterable[Proposal]) -> list[Proposal]:
    seen: dict[tuple[str, ...], Proposal] = {}
    for proposal in found:
        if proposal.changes:
            seen.setdefault(space.key(proposal.config), proposal)
    return list(seen.values())
