"""The graph of paired measurements: the place of each kernel in it, and the equations of kernels on cycles."""

import heapq
from collections.abc import Mapping
from typing import NamedTuple


class Edge(NamedTuple):
    """A measurement of two kernels: `log` is the logarithm of the first one's speed-up over the second."""

    log: float
    variance: float
    ranked: bool
    ahead: bool  # whether the first was surely faster, by more than the margin


class Node(NamedTuple):
    """A kernel's place: `log` is the logarithm of its speed-up over the root of its component."""

    root: str
    log: float
    ranked: bool
    parent: str  # the neighbour to which it is attached by a single edge; empty for the root and on a cycle
    variance: float  # of that edge
    core: str = ""  # the root of the equations of its cycles; empty if it is on none


class Core(NamedTuple):
    """The eliminated equations of the kernels on cycles; the kernel at 0 is in none."""

    steps: tuple[tuple[str, float, tuple[tuple[str, float], ...]], ...]
    inflation: float  # factor of the variance by which the measurements differ beyond their errors; at least 1

    def solve(self, right: dict[str, float]) -> dict[str, float]:
        for name, whole, others in self.steps:
            if value := right.get(name):
                for other, weight in others:
                    right[other] = right.get(other, 0.0) + value * weight / whole
        found: dict[str, float] = {}
        for name, whole, others in reversed(self.steps):
            found[name] = (
                right.get(name, 0.0) + sum(weight * found.get(other, 0.0) for other, weight in others)
            ) / whole
        return found

    def variance(self, name: str, other: str) -> float:
        known = {step[0] for step in self.steps}
        solved = self.solve({key: sign for key, sign in ((name, 1.0), (other, -1.0)) if key in known and name != other})
        return max(solved.get(name, 0.0) - solved.get(other, 0.0), 0.0) * self.inflation


def place_kernels(anchor: str, edges: Mapping[str, Mapping[str, Edge]]) -> tuple[dict[str, Node], dict[str, Core]]:
    """Return every kernel's place (the anchor's component first, then what is attached to it, then the rest), and the
    equations of each component that has cycles, by the kernel at which they are rooted.
    """
    nodes: dict[str, Node] = {}
    cores: dict[str, Core] = {}
    ranked = {name: {other: edge for other, edge in others.items() if edge.ranked} for name, others in edges.items()}
    loose: list[tuple[str, str]] = []
    """Pairs of a placed and another kernel connected only by a measurement that is not ranked, earliest first."""

    def place(start: Node, name: str) -> None:
        for other in _solve(ranked, name, start, nodes, cores):
            for beyond, edge in edges[other].items():
                if not edge.ranked:
                    heapq.heappush(loose, (other, beyond))
        while loose:
            placed, other = heapq.heappop(loose)
            if other not in nodes:
                edge, at = edges[other][placed], nodes[placed]
                place(Node(at.root, at.log + edge.log, False, placed, edge.variance), other)

    for name in filter(None, (anchor, *edges)):
        if name not in nodes:
            place(Node(name, 0.0, True, "", 0.0), name)
    return nodes, cores


def _solve(
    ranked: Mapping[str, Mapping[str, Edge]], start: str, first: Node, nodes: dict[str, Node], cores: dict[str, Core]
) -> list[str]:
    """Place the kernels that ranked measurements connect to `start`, whose place is `first`; return their ids, sorted.

    Kernels with one neighbour are removed until none is left; the others are solved for together.
    """
    component, queue = {start}, [start]
    for name in queue:
        found = ranked[name].keys() - component
        component |= found
        queue += sorted(found)
    left = {name: dict(ranked[name]) for name in sorted(component)}
    hanging: list[tuple[str, str]] = []
    single = [name for name, others in left.items() if len(others) == 1 and name != start]
    for name in single:
        (other,) = left.pop(name)
        hanging.append((name, other))
        del left[other][name]
        if len(left[other]) == 1 and other != start:
            single.append(other)
    nodes[start] = first
    if len(left) > 1:
        cores[start], logs = _eliminated(left, start)
        nodes[start] = first._replace(core=start)
        for name, log in logs.items():
            nodes[name] = Node(first.root, first.log + log, first.ranked, "", 0.0, start)
    for name, other in reversed(hanging):
        edge, at = ranked[name][other], nodes[other]
        nodes[name] = Node(at.root, at.log + edge.log, at.ranked, other, edge.variance)
    return sorted(component)


def _eliminated(left: Mapping[str, Mapping[str, Edge]], start: str) -> tuple[Core, dict[str, float]]:
    """Return the normal equations of the kernels on cycles, and their solution with `start` at 0.

    Kernels with the fewest neighbours are eliminated first.
    """
    weights = {name: {other: 1 / edge.variance for other, edge in others.items()} for name, others in left.items()}
    heap = [(len(others), name) for name, others in weights.items() if name != start]
    heapq.heapify(heap)
    steps: list[tuple[str, float, tuple[tuple[str, float], ...]]] = []
    while heap:
        count, name = heapq.heappop(heap)
        if name not in weights or count != len(weights[name]):
            continue
        others = tuple(sorted(weights.pop(name).items()))
        whole = sum(weight for _, weight in others)
        steps.append((name, whole, others))
        for other, weight in others:
            row = weights[other]
            del row[name]
            for third, more in others:
                if third != other:
                    row[third] = row.get(third, 0.0) + weight * more / whole
            if other != start:
                heapq.heappush(heap, (len(row), other))
    core = Core(tuple(steps), 1.0)
    right = {name: sum(edge.log / edge.variance for edge in others.values()) for name, others in left.items()}
    logs = core.solve(right)
    pairs = [(a, b, edge) for a, others in left.items() for b, edge in others.items() if a < b]
    misfit = sum((edge.log - logs.get(a, 0.0) + logs.get(b, 0.0)) ** 2 / edge.variance for a, b, edge in pairs)
    free = len(pairs) - len(left) + 1
    return core._replace(inflation=max(misfit / free, 1.0)), logs
