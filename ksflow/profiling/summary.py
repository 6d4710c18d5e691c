"""A page of counters that a person or a model can read: a block for each kernel, the longest first, never long."""

from collections.abc import Sequence
from dataclasses import dataclass

LINES = 40
"""The most a page has."""
_WIDTH = 600
"""Characters of a line: a kernel chooses its own name."""
_BUSY = 60.0
"""Percent of its peak below which nobody calls a unit the limit."""


@dataclass(frozen=True)
class Block:
    """What is said of one kernel."""

    kernel: str
    launches: int
    us: float
    """Of all launches together."""
    shape: str
    """Grid, block and what a block takes."""
    lines: tuple[str, ...]


def page(blocks: Sequence[Block], room: int = LINES) -> str:
    """At most so many lines. Kernels that have no room are counted."""
    whole = sum(block.us for block in blocks) or 1.0
    lines: list[str] = []
    order = sorted(blocks, key=lambda block: -block.us)
    for index, block in enumerate(order):
        times = f"{block.launches} launches, " if block.launches > 1 else ""
        each = f"{block.us / block.launches:.4g} us{' each' if times else ''}"
        head = f"{block.kernel}: {times}{each}, {block.us / whole:.0%} of the time; {block.shape}"
        if len(lines) + 1 + len(block.lines) > room - 1:
            rest = sum(other.us for other in order[index:]) / whole
            lines.append(f"({len(order) - index} more kernels, {rest:.0%} of the time)")
            break
        lines += [head, *(f"  {line}" for line in block.lines)]
    return "\n".join(line[:_WIDTH] for line in lines)


def limit(shares: dict[str, float]) -> str:
    """What bounds a kernel, by how busy each unit is, in percent of its peak."""
    if not shares:
        return "what bounds it is unknown"
    unit, most = max(shares.items(), key=lambda item: item[1])
    if most >= _BUSY:
        return f"bound by {unit}: {most:.0f} % of its peak"
    return f"bound by latency: no unit reaches {_BUSY:.0f} % of its peak, the busiest is {unit} with {most:.0f} %"
