"""Rounds to learn from, to choose by, and to measure on: split so that no answer leaks from one part into another.

A round's outcomes are shown to whoever learns from earlier ones: a selector is graded by the best kernel that was ever
made from its base, a designer by what the nearest experiment on record did. Rounds of one run, drawn at random, would
so tell the outcomes of those that are held out. Therefore whole problems are held out where there are several, else
whole runs, else the rounds that came last; and in each run a round is graded by what was known before the first round
of a later part began (`HeldOutSplit.visible_history`).
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ksflow.errors import ConfigError, pluralize
from ksflow.lineage.history import RoundSnapshot, RunHistory
from ksflow.records import name_without_precision

PARTS = {"train": 0.4, "validation": 0.3, "held out": 0.3}
"""Part -> its share of the rounds, in the order in which the parts may know of each other."""
_LEAST = 2
"""Rounds that each part needs."""
_ENOUGH, _TOO_MUCH = 2 / 3, 2.0
"""How many times its share a part may be, at least and at most, where whole problems or runs go into it."""
_UNITS: dict[str, Callable[[RoundSnapshot], str]] = {
    "problem": lambda snapshot: name_without_precision(snapshot.problem),
    "run": lambda snapshot: f"{snapshot.problem}/{snapshot.run}",
}


@dataclass(frozen=True)
class HeldOutSplit:
    """Which rounds are in which part."""

    parts: Mapping[str, frozenset[str]]
    """Part -> the names of its rounds."""
    how: str
    """For the card: what divides them."""

    @cached_property
    def _rank(self) -> Mapping[str, int]:
        return {name: rank for rank, part in enumerate(PARTS) for name in self.parts[part]}

    def visible_history(self, history: RunHistory, snapshot: RoundSnapshot) -> RunHistory:
        """The run as far as a grade of this round may look: until the first round of a later part began."""
        rank = self._rank.get(snapshot.name, 0)
        first = next((other for other in history.rounds if self._rank.get(other.name, rank) > rank), None)
        return replace(history, final=first.population) if first else history


def split_rounds(snapshots: Iterable[RoundSnapshot], seed: int, what: str) -> HeldOutSplit:
    """The rounds in three parts. ConfigError says how many rounds there are and how many are needed.

    `seed` draws which problems are held out; runs and rounds are held out by their time alone.
    """
    ordered = sorted(snapshots, key=lambda snapshot: snapshot.began)
    least, total = _LEAST * len(PARTS), len(ordered)
    if total < least:
        raise ConfigError(
            f"{pluralize(total, 'round')} to learn from for {what}, and at least {least} are needed: "
            "search on with `python -m ksflow`, or name more with optimize.runs= or optimize.problems="
        )
    rest, held, last = _set_apart(ordered, PARTS["held out"] * total, 2 * _LEAST, seed)
    train, checked, middle = _set_apart(rest, PARTS["validation"] * total, _LEAST, seed)
    names = [frozenset(snapshot.name for snapshot in part) for part in (train, checked, held)]
    return HeldOutSplit(dict(zip(PARTS, names, strict=True)), f"held out {last}; validation {middle}")


def _set_apart(
    snapshots: Sequence[RoundSnapshot], wanted: float, left: int, seed: int
) -> tuple[list[RoundSnapshot], list[RoundSnapshot], str]:
    """(the rest, about `wanted` rounds set apart, how in words); at least `left` rounds stay."""
    for unit, of in _UNITS.items():
        names = list(dict.fromkeys(map(of, snapshots)))  # in the order in which they began
        if unit == "problem":
            random.Random(f"{seed} {unit}").shuffle(names)
        sizes, chosen, count = Counter(map(of, snapshots)), set[str](), 0
        while count < max(_LEAST, _ENOUGH * wanted):
            chosen.add(names[-1 - len(chosen)])
            count = sum(sizes[name] for name in chosen)
        if count <= _TOO_MUCH * wanted and len(snapshots) - count >= left:
            rest, apart = ([each for each in snapshots if (of(each) in chosen) is wanted] for wanted in (False, True))
            return rest, apart, f"by {unit} ({', '.join(sorted(chosen))})"
    count = min(max(_LEAST, round(wanted)), len(snapshots) - left)
    rest, apart = list(snapshots[:-count]), list(snapshots[-count:])
    return rest, apart, f"by time (from round {apart[0].name} on; what came later is out of reach of what was earlier)"
