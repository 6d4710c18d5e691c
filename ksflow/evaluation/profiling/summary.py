"""A page of counters for people and models: a block for each kernel, the longest first, limited in size."""

from collections.abc import Sequence
from typing import NamedTuple

LINES = 40  # of a page, at most
_WIDTH = 600  # characters of a line: a kernel chooses its own name
_BUSY = 60.0  # percent of its peak from which on a unit is called the limit


class KernelSummary(NamedTuple):
    """Figures of one kernel over all its launches."""

    kernel: str
    launches: int
    us: float
    shape: str  # grid, block and resources of a block
    lines: Sequence[str]  # empty ones are left out


def page(summaries: Sequence[KernelSummary], lines_left: int = LINES) -> str:
    """Return at most so many lines. Kernels without room are counted."""
    whole = sum(summary.us for summary in summaries) or 1.0
    lines: list[str] = []
    order = sorted(summaries, key=lambda summary: -summary.us)
    for index, summary in enumerate(order):
        times = f"{summary.launches} launches, " if summary.launches > 1 else ""
        each = f"{summary.us / summary.launches:.4g} us{' each' if times else ''}"
        block = [f"{summary.kernel}: {times}{each}, {summary.us / whole:.0%} of the time; {summary.shape}"]
        block += [f"  {line}" for line in summary.lines if line]
        if len(lines) + len(block) > lines_left - 1:
            rest = sum(other.us for other in order[index:]) / whole
            lines.append(f"({len(order) - index} more kernels, {rest:.0%} of the time)")
            break
        lines += block
    return "\n".join(line[:_WIDTH] for line in lines)


def limit(shares: dict[str, float]) -> str:
    """Describe the bound of a kernel, from each unit's use in percent of its peak."""
    if not shares:
        return "what bounds it is unknown"
    unit, most = max(shares.items(), key=lambda item: item[1])
    if most >= _BUSY:
        return f"bound by {unit}: {most:.0f} % of its peak"
    return f"bound by latency: no unit reaches {_BUSY:.0f} % of its peak, the busiest is {unit} with {most:.0f} %"


def describe_utilization(shares: dict[str, float], occupancy: float | None, allowed: float | None = None) -> str:
    """Describe each unit's use, and the occupancy, in percent."""
    parts = [f"{unit} {share:.0f} %" for unit, share in shares.items()]
    if occupancy is not None:
        most = f" of {allowed:.0f} % that its resources allow" if allowed is not None else ""
        parts.append(f"occupancy {occupancy:.0f} %{most}")
    return f"busy: {', '.join(parts)}" if parts else ""


def size(numbers: Sequence[str]) -> str:
    """Return a grid's or block's size: `132`, `8x16`, without trailing ones."""
    sizes = list(numbers)
    while len(sizes) > 1 and sizes[-1] in ("1", ""):
        sizes.pop()
    return "x".join(sizes)
