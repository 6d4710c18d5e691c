"""Rounds to learn from, to choose by, and to measure on: divided so that no answer leaks from one part into another.

A round's outcomes are shown to whoever learns from earlier ones: a selector is graded by the best kernel that was ever
made from its base, a designer by what the nearest experiment on record did. Rounds of one run, drawn at random, would
so tell the outcomes of those that are held out. Therefore whole problems are held out where there are several, else
whole runs, else the rounds that came last; and in each run a round is graded by what was known before the first round
of a later part began (`Division.reach`).
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ksflow.errors import ConfigError, counted
from ksflow.optimize.history import History, Moment
from ksflow.records import family

PARTS = {"train": 0.4, "validation": 0.3, "held out": 0.3}
"""Part -> its share of the rounds, in the order in which the parts may know of each other."""
_LEAST = 2
"""Rounds that each part needs."""
_TOO_MUCH = 2.0
"""How many times its share a part may be at most where whole problems or runs go into it."""
_UNITS: dict[str, Callable[[Moment], str]] = {
    "problem": lambda moment: family(moment.problem.name),
    "run": lambda moment: f"{moment.problem.name}/{moment.run}",
}


@dataclass(frozen=True)
class Division:
    """Which rounds are in which part."""

    parts: Mapping[str, frozenset[str]]
    """Part -> the names of its rounds."""
    how: str
    """For the card: what divides them."""

    @cached_property
    def _rank(self) -> Mapping[str, int]:
        return {name: rank for rank, part in enumerate(PARTS) for name in self.parts[part]}

    def reach(self, history: History, moment: Moment) -> History:
        """The run as far as a grade of this round may look: until the first round of a later part began."""
        rank = self._rank.get(moment.name, 0)
        later = (one for one in history.moments if self._rank.get(one.name, rank) > rank)
        first = next(later, None)
        return history.until(first) if first else history


def divide(moments: Iterable[Moment], seed: int, what: str) -> Division:
    """The rounds in three parts. ConfigError says how many rounds there are and how many are needed.

    `seed` draws which problems are held out; runs and rounds are held out by their time alone.
    """
    known = sorted(enumerate(moments), key=lambda pair: (pair[1].began, pair[0]))
    ordered = [moment for _, moment in known]
    least = _LEAST * len(PARTS)
    if len(ordered) < least:
        raise ConfigError(
            f"{counted(len(ordered), 'round')} to learn from for {what}, and at least {least} are needed: "
            "search on with `python -m ksflow`, or name more with optimize.runs= or optimize.problems="
        )
    total = len(ordered)
    rest, held, last = _without(ordered, PARTS["held out"] * total, 2 * _LEAST, seed)
    train, checked, middle = _without(rest, PARTS["validation"] * total, _LEAST, seed)
    parts = {
        name: frozenset(moment.name for moment in part)
        for name, part in zip(PARTS, (train, checked, held), strict=True)
    }
    return Division(parts, f"held out {last}; validation {middle}")


def _without(moments: Sequence[Moment], wanted: float, left: int, seed: int) -> tuple[list[Moment], list[Moment], str]:
    """(the rest, about `wanted` rounds set apart, how in words); at least `left` rounds stay."""
    for unit, of in _UNITS.items():
        names = list(dict.fromkeys(map(of, moments)))  # in the order in which they began
        if unit == "problem":
            random.Random(f"{seed} {unit}").shuffle(names)
        if chosen := _chosen([(name, sum(of(moment) == name for moment in moments)) for name in names], wanted, left):
            apart = [moment for moment in moments if of(moment) in chosen]
            rest = [moment for moment in moments if of(moment) not in chosen]
            return rest, apart, f"by {unit} ({', '.join(sorted(chosen))})"
    count = min(max(_LEAST, round(wanted)), len(moments) - left)
    rest, apart = list(moments[:-count]), list(moments[-count:])
    return rest, apart, f"by time (from round {apart[0].name} on; what came later is out of reach of what was earlier)"


def _chosen(groups: Sequence[tuple[str, int]], wanted: float, left: int) -> frozenset[str]:
    """The last groups that together come nearest to `wanted` rounds; none where no number of them will do."""
    total, fitting = sum(count for _, count in groups), {}
    for first in range(1, len(groups)):
        count = sum(size for _, size in groups[first:])
        if _LEAST <= count <= _TOO_MUCH * wanted and total - count >= left:
            fitting[abs(count - wanted), -first] = frozenset(name for name, _ in groups[first:])
    return fitting[min(fitting)] if fitting else frozenset()
