"""What is said of a compiled prompt: where it comes from, what it cost, and whether it is better."""

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from ksflow.errors import counted
from ksflow.records import Cost

_DRAWS = 5000
_LEAST = 6
"""Pairs without which chance alone makes all of them better, or worse, more often than once in twenty times."""


@dataclass(frozen=True)
class Comparison:
    """Scores of the same held-out questions, before and after."""

    before: tuple[float, ...]
    after: tuple[float, ...]
    seed: int = 0

    @property
    def difference(self) -> float:
        """Of the means."""
        return statistics.fmean(self.after) - statistics.fmean(self.before)

    @property
    def interval(self) -> tuple[float, float]:
        """95 % of the mean paired difference, by drawing the pairs again."""
        pairs = [after - before for before, after in zip(self.before, self.after, strict=True)]
        draw = random.Random(self.seed)
        means = sorted(statistics.fmean(draw.choices(pairs, k=len(pairs))) for _ in range(_DRAWS))
        return means[int(0.025 * _DRAWS)], means[int(0.975 * _DRAWS) - 1]

    @property
    def verdict(self) -> str:
        """In words."""
        low, high = self.interval
        if low <= 0 <= high:
            return "not better: the interval holds 0"
        if len(self.before) < _LEAST:
            return f"undecided: {counted(len(self.before), 'example')}, and at least {_LEAST} are needed to tell"
        return "better" if low > 0 else "worse"

    def __str__(self) -> str:
        low, high = self.interval
        return (
            f"{statistics.fmean(self.before):.3f} -> {statistics.fmean(self.after):.3f} on {len(self.before)} held-out "
            f"examples, difference {self.difference:+.3f} [{low:+.3f}, {high:+.3f}]: {self.verdict}"
        )


def card(name: str, rows: Sequence[tuple[str, str]], compared: Comparison, before: str, after: str) -> str:
    """Markdown. `rows`: what is worth knowing, with its value; before, after: the instructions."""
    table = "\n".join(f"| {key} | {' '.join(value.split()).replace('|', chr(92) + '|')} |" for key, value in rows)
    same = "The instruction is unchanged." if before == after else f"## Instruction after\n\n{_quoted(after)}"
    return (
        f"# {name}\n\n**{compared}** (95 % interval of the paired difference, bootstrap)\n\n"
        f"| | |\n|---|---|\n{table}\n\n"
        f"## Instruction before\n\n{_quoted(before)}\n\n{same}\n"
    )


def _quoted(text: str) -> str:
    """As a block that nothing in it can end."""
    return "\n".join(f"    {line}".rstrip() for line in text.splitlines())


def spent(cost: Cost) -> str:
    """In words."""
    return f"${cost.usd:.4f}, {counted(cost.calls, 'call')}, {cost.tokens} tokens"
