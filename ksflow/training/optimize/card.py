"""What is said of a compiled prompt: where it comes from, what it cost, and whether it is better."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ksflow.errors import pluralize
from ksflow.records import Cost

_DRAWS = 5000
_LEAST = 6
"""Rounds without which chance alone makes all of them better, or worse, more often than once in twenty times."""


@dataclass(frozen=True)
class ScoreComparison:
    """Scores of the same held-out questions, before and after."""

    before: tuple[float, ...]
    after: tuple[float, ...]
    seed: int = 0
    rounds: tuple[str, ...] = ()
    """The round that each question is from; without them each is a round of its own."""

    @cached_property
    def interval(self) -> tuple[float, float]:
        """95 % of the mean paired difference, by drawing whole rounds again: the questions of one round have the same
        base and the same notes, so they are no evidence of their own.
        """
        drawn = np.random.default_rng(self.seed).integers(len(self._by_round), size=(_DRAWS, len(self._by_round)))
        sums, counts = (np.array([*map(of, self._by_round)])[drawn].sum(1) for of in (sum, len))
        low, high = np.quantile(sums / counts, (0.025, 0.975))
        return float(low), float(high)

    @cached_property
    def _by_round(self) -> list[list[float]]:
        """The paired differences of each round."""
        grouped: dict[str, list[float]] = {}
        names = self.rounds or [str(number) for number in range(len(self.before))]
        for name, before, after in zip(names, self.before, self.after, strict=True):
            grouped.setdefault(name, []).append(after - before)
        return [*grouped.values()]

    @property
    def verdict(self) -> str:
        """Better, worse, undecided or not better, with the reason."""
        low, high = self.interval
        if low <= 0 <= high:
            return "not better: the interval holds 0"
        if len(self._by_round) < _LEAST:
            return f"undecided: {pluralize(len(self._by_round), 'round')}, and at least {_LEAST} are needed to tell"
        return "better" if low > 0 else "worse"

    def __str__(self) -> str:
        low, high = self.interval
        before, after = statistics.fmean(self.before), statistics.fmean(self.after)
        asked = f"{len(self.before)} held-out examples of {pluralize(len(self._by_round), 'round')}"
        change = f"difference {after - before:+.3f} [{low:+.3f}, {high:+.3f}]"
        return f"{before:.3f} -> {after:.3f} on {asked}, {change}: {self.verdict}"


def card(name: str, rows: Mapping[str, str], compared: ScoreComparison, before: str, after: str) -> str:
    """Markdown. `rows`: what is worth knowing, with its value; before, after: the instructions."""
    lines = (f"| {key} | {' '.join(value.split()).replace('|', chr(92) + '|')} |" for key, value in rows.items())
    table = "\n".join(lines)
    same = "The instruction is unchanged." if before == after else f"## Instruction after\n\n{_quoted(after)}"
    return (
        f"# {name}\n\n**{compared}** (95 % interval of the paired difference, bootstrap over rounds)\n\n"
        f"| | |\n|---|---|\n{table}\n\n"
        f"## Instruction before\n\n{_quoted(before)}\n\n{same}\n"
    )


def _quoted(text: str) -> str:
    """As a block that nothing in it can end."""
    return "\n".join(f"    {line}".rstrip() for line in text.splitlines())


def describe_cost(cost: Cost) -> str:
    """A cost in words."""
    return ", ".join(filter(None, (cost.dollars(4), pluralize(cost.calls, "call"), f"{cost.tokens} tokens")))
