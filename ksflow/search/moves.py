"""Moves applied to a base: which untried configurations the catalogue leads to from here."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from random import Random

from ksflow.records import Trial
from ksflow.search.belief import Belief
from ksflow.search.catalogue import Catalogue, Move
from ksflow.source.families import Config, Space
from ksflow.source.tunables import Tunable, values

DETOURS = 8  # risky single moves for which ways round are looked for
RISKY = 0.3
PAIRED = 14  # single moves whose pairs are looked at
STRANGERS = 20
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


def proposals(moves: Catalogue, around: Space, reference: Trial, belief: Belief, seed: str) -> list[Proposal]:
    """Untried configurations, each once, under the first moves that lead to it."""
    rng = Random(seed)
    board = _Board(moves, around, values(reference.kernel.main) if reference.kernel else {}, belief)
    singles = _distinct(around, board.singles())
    pairs = _distinct(around, board.pairs(singles))
    jumps = _distinct(around, board.climbs())
    detours = _distinct(around, board.detours(singles))
    strange = [Proposal((_STRANGE,), around.changes(c), c) for c in around.strangers(rng, STRANGERS)]
    return [
        proposal
        for proposal in _distinct(around, [*singles, *pairs, *detours, *jumps, *strange])
        if around.untried(proposal.config)
    ]


class _Board:
    def __init__(self, moves: Catalogue, around: Space, reference: Mapping[str, str], belief: Belief) -> None:
        self.moves, self.space, self.reference, self.belief = moves, around, reference, belief
        self.kinds: dict[str, list[Tunable]] = {}
        for tunable in around.tunables:
            self.kinds.setdefault(moves.kind(tunable).name, []).append(tunable)

    def singles(self) -> Iterator[Proposal]:
        for move in self.moves.moves:
            for changes in self._applied(move):
                yield self._proposal((move,), changes)

    def pairs(self, singles: Sequence[Proposal]) -> Iterator[Proposal]:
        """Two moves on different tunables, from those that promise most."""
        guesses = self.belief.guess([single.config for single in singles])
        order = sorted(range(len(singles)), key=lambda i: -(guesses[i].mean + guesses[i].deviation))
        best = [singles[i] for i in order[:PAIRED]]
        for one, two in combinations(best, 2):
            if not one.changes.keys() & two.changes.keys():
                yield self._proposal((*one.moves, *two.moves), {**one.changes, **two.changes})

    def detours(self, singles: Sequence[Proposal]) -> Iterator[Proposal]:
        """Promising moves that are likely to fail here, each with one more value changed."""
        guesses = self.belief.guess([single.config for single in singles])
        risky = [i for i, guess in enumerate(guesses) if guess.risk > RISKY]
        risky.sort(key=lambda i: -(guesses[i].mean + guesses[i].deviation))
        for index in risky[:DETOURS]:
            single = singles[index]
            for tunable in self.space.tunables:
                if tunable.name not in single.changes:
                    for value in self._targets(tunable, "other"):
                        yield self._proposal((*single.moves, _DETOUR), {**single.changes, tunable.name: value})

    def climbs(self) -> Iterator[Proposal]:
        """From the base, tunable by tunable to the value that looks best, until none looks better."""
        for optimism in (0.0, 1.0, 2.0):
            config = dict(self.space.base)
            for _ in range(2 * len(self.space.tunables)):
                near = [{**config, t.name: o} for t in self.space.tunables for o in t.options if o != config[t.name]]
                guesses = self.belief.guess([*near, config])
                merits = [g.mean + optimism * g.deviation + 3 * math.log1p(-g.risk) for g in guesses]
                best = max(range(len(merits)), key=merits.__getitem__)
                if best == len(near):
                    break
                config = near[best]
                yield self._proposal((_JUMP,), self.space.changes(config))

    def _proposal(self, moves: tuple[Move, ...], changes: Config) -> Proposal:
        return Proposal(moves, changes, {**self.space.base, **changes})

    def _applied(self, move: Move) -> Iterator[Config]:
        """What `move` can change here. Kinds that move along do what they can."""
        along: dict[str, str] = {}
        for kind, how in move.along.items():
            for tunable in self.kinds.get(kind, []):
                along.update(self._first(tunable, how))
        if move.scope == "each":
            each: dict[str, str] = {}
            for tunable in self._of(move.kinds):
                each.update(self._first(tunable, move.how))
            yield {**along, **each}
            return
        for tunable in self._of(move.kinds):
            for value in self._targets(tunable, move.how):
                if self._timely(move, tunable.name, value):
                    yield {**along, tunable.name: value}

    def _timely(self, move: Move, name: str, value: str) -> bool:
        """Whether the move's `when` holds for this step."""
        if move.when == "stuck":
            return self.space.stuck
        gains = self.space.steps.get((name, self.space.base[name], value), ())
        return {
            "always": True,
            "gained": any(gain > 0 for gain in gains),
            "lost": any(gain < 0 for gain in gains),
        }[move.when]

    def _of(self, kinds: Iterable[str]) -> list[Tunable]:
        return [tunable for kind in kinds for tunable in self.kinds.get(kind, [])]

    def _first(self, tunable: Tunable, how: str) -> Config:
        value = next(iter(self._targets(tunable, how)), None)
        return {} if value is None else {tunable.name: value}

    def _targets(self, tunable: Tunable, how: str) -> list[str]:
        """The values `how` leads to, from the base's."""
        options, here = tunable.options, tunable.options.index(self.space.base[tunable.name])
        found = {
            "next": options[here + 1 : here + 2],
            "previous": options[max(here - 1, 0) : here],
            "last": options[-1:],
            "first": options[:1],
            "other": options,
            "reference": tuple(o for o in options if o == self.reference.get(tunable.name)),
            "favoured": self._favoured(tunable),
        }[how]
        return [value for value in found if value != self.space.base[tunable.name]]

    def _favoured(self, tunable: Tunable) -> tuple[str, ...]:
        configs = [{**self.space.base, tunable.name: option} for option in tunable.options]
        guesses = self.belief.guess(configs)
        best = max(range(len(guesses)), key=lambda i: guesses[i].mean)
        return (tunable.options[best],)


def _distinct(around: Space, found: Iterable[Proposal]) -> list[Proposal]:
    seen: dict[tuple[str, ...], Proposal] = {}
    for proposal in found:
        if proposal.changes:
            seen.setdefault(around.key(proposal.config), proposal)
    return list(seen.values())
