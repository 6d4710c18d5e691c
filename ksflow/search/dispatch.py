"""Dispatching kernels, with other values for some cases: predicted gains from timings, and the search within a class.

Thresholds of the problem's sizes divide the cases, as a tree with few leaves; each leaf is a class with the
configuration that was best on its cases. Only kernels with launch lines and numeric tunables can have dispatch lines.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from random import Random
from statistics import median
from typing import Any

from ksflow.kernels.source.causes import Point
from ksflow.kernels.source.expressions import calculate, numbers
from ksflow.kernels.source.families import Config, Space, constants_of, dispatches_of, family, point, values_of
from ksflow.kernels.source.tunables import DISPATCH, has_launches, number
from ksflow.records import Case, Experiment, Population, Problem, Scalar, geomean

_CLASSES = 4
_CUTS = 8  # thresholds of a size, at most; chosen evenly
_MARGIN = math.log(1.02)  # promised beyond the best kernel there is
_NOISE = 0.01  # of the logarithm of one case's time
_SHORTLIST = 3  # configurations for each case

Key = tuple[str, ...]  # the values of the tunables, in order; empty for those without effect
Lines = Mapping[str, Mapping[str, str]]  # condition -> tunable -> value; the first that holds decides


@dataclass(frozen=True)
class DispatchLeaf:
    """A class of cases, and its configuration."""

    when: str
    cases: tuple[str, ...]
    key: Key


def combine_best(problem: Problem, population: Population, around: Space) -> Experiment | None:
    """Return the most promising dispatching kernel, None if its gain is too small or it was judged."""
    table = Table(problem, population, around)
    if not can_dispatch(around) or not table.complete:
        return None
    leaves, raw, sure = table.best_leaves()
    if sure < _MARGIN or len({leaf.key for leaf in leaves}) < 2 or table.was_judged(leaves):
        return None
    order = [t.name for t in around.tunables]
    common, _ = Counter(leaf.key for leaf in leaves for _ in leaf.cases).most_common(1)[0]
    differing = [i for i in range(len(order)) if len({leaf.key[i] for leaf in leaves}) > 1]
    lines = {f"{DISPATCH}{when}": "" for when in dispatches_of(around.kernel.main)}
    for leaf in leaves:
        if leaf.key != common:
            lines[f"{DISPATCH}{leaf.when}"] = _pairs({order[i]: leaf.key[i] for i in differing if leaf.key[i]})
    shared = {name: value for name, value in zip(order, common, strict=True) if value}
    changes = {**around.changes(shared), **lines}
    parts = "; ".join(f"{leaf.when or 'all'}: as measured on {len(leaf.cases)} cases" for leaf in leaves)
    gains = (round(100 * math.expm1(sure), 1), round(100 * math.expm1(raw), 1))
    return Experiment(
        f"Each class of cases gets the values that did best on it ({parts}).",
        "the source has these dispatch lines; right on every case and faster than every single configuration",
        gains,
        60.0,
        changes,
    )


def can_dispatch(around: Space) -> bool:
    """Return whether the base can have dispatch lines."""
    try:
        for tunable in around.tunables:
            for option in tunable.options:
                number(option)
    except ValueError:
        return False
    names, text = {tunable.name for tunable in around.tunables}, around.kernel.main
    return names <= constants_of(text).keys() and has_launches(text)


class Table:
    """Configuration -> benchmark -> the logarithm of its time by the case's weight, from all kernels using it."""

    def __init__(self, problem: Problem, population: Population, around: Space) -> None:
        self._cases = {case.name: case for case in problem.benchmarks}
        sizes = {dim: [case.params.get(dim) for case in problem.benchmarks] for dim in problem.dims}
        self._cuts = {dim: _cuts(values) for dim, values in sizes.items() if all(type(size) is int for size in values)}
        self._weights = problem.weights or dict.fromkeys(self._cases, 1.0)
        order = [t.name for t in around.tunables]
        logs: dict[Key, dict[str, list[float]]] = {}
        self._totals = [math.inf]
        self._mixes: set[tuple[Key, ...]] = set()
        for member in family(population, around.kernel):
            effectives = {name: effective(member.kernel.main, case.params) for name, case in self._cases.items()}
            configs = {name: around.effective_config(config) for name, config in effectives.items()}
            mix = {name: tuple(config.get(tunable, "") for tunable in order) for name, config in configs.items()}
            self._mixes.add(tuple(mix.values()))
            timings = member.trial.evaluation.timings if member.trial.evaluation else ()
            times = {row.case: self._weights[row.case] * math.log(row.us) for row in timings if row.case in mix}
            if times and len(times) == len(mix):
                self._totals.append(sum(times.values()))
                for name, time in times.items():
                    logs.setdefault(mix[name], {}).setdefault(name, []).append(time)
        self._logs = {key: {name: median(seen) for name, seen in row.items()} for key, row in logs.items()}
        self._memo: dict[tuple[frozenset[str], int], tuple[float, tuple[DispatchLeaf, ...]]] = {}

    @cached_property
    def complete(self) -> list[Key]:
        """The configurations that were measured on every case."""
        return [key for key, row in self._logs.items() if len(row) == len(self._cases)]

    def was_judged(self, leaves: Sequence[DispatchLeaf]) -> bool:
        """Return whether a judged kernel used the leaves' configuration on every case."""
        keys = {name: leaf.key for leaf in leaves for name in leaf.cases}
        return tuple(keys[name] for name in self._cases) in self._mixes

    def best_leaves(self) -> tuple[tuple[DispatchLeaf, ...], float, float]:
        """Return the leaves, and the log gain over the best kernel: as measured, and corrected for luck."""
        cost, leaves = self._tree(frozenset(self._cases), _CLASSES, ())
        before, count = min(self._totals), len(self._cases)
        raw = sum(self._logs[leaf.key][name] for leaf in leaves for name in leaf.cases)
        return leaves, (before - raw) / count, (before - cost) / count

    @cached_property
    def _single(self) -> Key:
        return min(self.complete, key=lambda key: sum(self._logs[key].values()))

    @cached_property
    def _pool(self) -> list[Key]:
        pool = {self._single}
        for name in self._cases:
            near = sorted((row[name], key) for key, row in self._logs.items() if name in row)
            pool.update(key for _, key in near[:_SHORTLIST])
        return sorted(pool)

    def _tree(
        self, cases: frozenset[str], leaves: int, path: tuple[str, ...]
    ) -> tuple[float, tuple[DispatchLeaf, ...]]:
        """Return the least cost of serving the cases with so many classes, and the leaves."""
        known = (cases, leaves)
        if known not in self._memo:
            options = [self._leaf(cases, path)]
            if leaves > 1:
                for left, right, low, high in self._splits(cases):
                    for share in range(1, leaves):
                        first = self._tree(left, share, (*path, low))
                        second = self._tree(right, leaves - share, (*path, high))
                        options.append((first[0] + second[0], first[1] + second[1]))
            self._memo[known] = min(options, key=lambda option: (round(option[0], 9), len(option[1])))
        return self._memo[known]

    def _leaf(self, cases: frozenset[str], path: tuple[str, ...]) -> tuple[float, tuple[DispatchLeaf, ...]]:
        """Return the cost of one class; the best of many on few cases is partly luck, which is added."""
        squares = sum(self._weights[name] ** 2 for name in cases)
        luck = _NOISE * math.sqrt(2 * math.log(max(len(self._pool), 2)) * squares)
        rows = {key: self._logs[key] for key in self._pool if cases <= self._logs[key].keys()}
        sums = {key: sum(row[name] for name in cases) for key, row in rows.items()}
        cost, key = min((time if key == self._single else time + luck, key) for key, time in sums.items())
        named = tuple(name for name in self._cases if name in cases)
        bounds: dict[tuple[str, str], float] = {}  # the tightest of each size
        for step in path:
            dim, sign, size = step.split()
            tighter = min if sign == "<=" else max
            bounds[dim, sign] = tighter(number(size), bounds.get((dim, sign), number(size)))
        sides = [(dim, sign) for dim in self._cuts for sign in (">", "<=") if (dim, sign) in bounds]
        when = " and ".join(f"{dim} {sign} {bounds[dim, sign]}" for dim, sign in sides)
        return cost, (DispatchLeaf(when, named, key),)

    def _splits(self, cases: frozenset[str]) -> Iterator[tuple[frozenset[str], frozenset[str], str, str]]:
        for dim, cuts in self._cuts.items():
            sizes = {name: int(self._cases[name].params[dim]) for name in cases}
            before: frozenset[str] = frozenset()
            for size in cuts:
                left = frozenset(name for name in cases if sizes[name] <= size)
                if left not in (before, cases):
                    yield left, cases - left, f"{dim} <= {size}", f"{dim} > {size}"
                before = left


@dataclass(frozen=True)
class ClassSpace(Space):
    """The space of one class of a dispatching base: its changes do not affect other classes."""

    when: str = ""  # the class's condition; empty for cases without a dispatch line
    lines: Lines = field(default_factory=dict)

    def changes(self, config: Mapping[str, str]) -> Config:
        """Return the values of `config` that differ from the class's."""
        changes = super().changes(config)
        if self.when:
            return {f"{DISPATCH}{self.when}": _pairs({**self.lines[self.when], **changes})}
        dispatched = {}
        for when, pairs in self.lines.items():
            if left := {name: self.base[name] for name in changes if name not in pairs}:
                dispatched[f"{DISPATCH}{when}"] = _pairs({**pairs, **left})
        return {**changes, **dispatched}


def class_spaces(problem: Problem, population: Population, around: Space, rng: Random) -> list[Space]:
    """Return the spaces to search from a base: those of its classes in an order drawn by size, or the only one."""
    lines = dispatches_of(around.kernel.main)
    if not lines or not can_dispatch(around):
        return [around]
    members: dict[str, list[Case]] = {}
    for case in problem.benchmarks:
        members.setdefault(_chosen(around.kernel.main, case.params), []).append(case)
    order = sorted(members, key=lambda when: -(rng.random() ** (1 / len(members[when]))))
    spaces: list[Space] = []
    for when in order:  # points: kernels of the family with one configuration on all of the class's cases
        cases, names = members[when], {case.name for case in members[when]}
        points: list[Point] = []
        tried: set[Key] = set()
        for member in family(population, around.kernel):
            config, *others = [around.effective_config(effective(member.kernel.main, case.params)) for case in cases]
            if any(other != config for other in others):
                continue
            tried.add(tuple(config.get(t.name, "") for t in around.tunables))
            sample = point(member.trial, config, member.us)
            times = {case: us for case, us in population.scale.times_us(member.trial.id).items() if case in names}
            if sample.failed or (sample.score_us and len(times) == len(cases)):
                weights = [problem.weights.get(case, 1.0) for case in times]
                score = geomean(times.values(), weights) if sample.score_us else None
                points.append(replace(sample, score_us=score, artefact=""))
        right = {tuple(p.values.items()) for p in points if p.score_us}
        usable = tuple(p for p in points if p.score_us or tuple(p.values.items()) not in right)
        base = effective(around.kernel.main, cases[0].params)
        own = (around.tunables, base, usable, frozenset(tried), around.kernel, around.features, around.lessons)
        spaces.append(ClassSpace(*own, when, lines))
    return spaces


def effective(text: str, params: Mapping[str, Scalar]) -> dict[str, str]:
    """Return the values that a source has for a case."""
    return {**values_of(text), **dispatches_of(text).get(_chosen(text, params), {})}


def _chosen(text: str, params: Mapping[str, Scalar]) -> str:
    lines = dispatches_of(text)
    if not lines:
        return ""
    known = {**constants_of(text), **numbers(params)}
    try:
        return next((when for when in lines if calculate(when, known)), "")
    except ValueError:  # the judge has rejected such a kernel
        return ""


def _cuts(sizes: Iterable[Any]) -> list[int]:
    smaller = sorted(set(sizes))[:-1]
    return smaller if len(smaller) <= _CUTS else [smaller[len(smaller) * index // _CUTS] for index in range(_CUTS)]


def _pairs(config: Mapping[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in config.items())
