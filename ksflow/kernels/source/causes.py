"""Causes of failures in a family: values that failures have in common, and no accepted kernel has.

Suspected of a failure is every minimal set of its values that no accepted kernel has. Suspects share the blame by the
number of failures for the same reason that have them, with identical wrong answers counted twice, and small sets before
large ones. A set that one of several identical wrong answers lacks is hardly the cause of the others, and values that
the compiler or the judge names come first. If the message states the cause (`FORM = amx needs ...`), that counts alone.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import combinations
from operator import and_

ENOUGH = 3  # failures for one reason after which configurations that probably share the cause are not tried
_REMEMBERED = 150  # failures, and twice as many accepted kernels
_DEEP = 3  # values of a set, as long as there are sets of so few
_SHOWN = 24  # suspects of a failure, those with the most of the blame
_ONE_MORE = 0.3  # how much less a set is suspected for each further value
_CONTEXT = 0.2  # the chance that a value which all failures of a suspect have belongs to the cause
_UNLIKE = 0.05  # the chance that wrong answers which are the same to the digit have different causes
_CLASH = 0.5  # how much of what failed is expected of pairs of values that are new to each other
_SURE = 0.99  # that a cause strikes again

Item = tuple[str, str]  # a tunable and its value


@dataclass(frozen=True)
class Point:
    """A configuration of the family with its result."""

    id: str
    values: Mapping[str, str]
    score_us: float | None
    failed: bool  # the kernel was at fault: wrong, crashed, too slow, not compiled. A harness error does not count.
    named: frozenset[str] = frozenset()  # tunables that the compiler's or the judge's message mentions
    stated: frozenset[Item] = frozenset()
    """The stated cause: `FORM = amx needs AMX` states FORM=amx; values that this configuration lacks are included."""
    artefact: str = ""  # digest of the compiled code, if known
    reason: str = ""  # verdict and message of a failure


def select_points(points: Sequence[Point], most: int) -> list[Point]:
    """Return at most `most` points of a long run, in order: the best third, and the newest."""
    if len(points) <= most:
        return list(points)
    best = sorted(points, key=lambda point: point.score_us or math.inf)[: most // 3]
    chosen = {point.id for point in [*best, *points[-(most - len(best)) :]]}
    return [point for point in points if point.id in chosen]


@dataclass(frozen=True)
class Cause:
    """Values that together made kernels fail."""

    values: frozenset[Item]
    trials: tuple[str, ...]  # the failures


class Failures:
    """The failures of a family with their causes, and the risk that a configuration fails."""

    def __init__(self, points: Iterable[Point], lessons: Iterable[frozenset[Item]] = ()) -> None:
        """lessons: causes known from other runs, which apply until a kernel with such values is accepted."""
        listed = list(points)
        self._accepted = _Having(select_points([point for point in listed if point.score_us], 2 * _REMEMBERED))
        self._failed = [point for point in listed if point.failed][-_REMEMBERED:]
        self._having = _Having(self._failed)
        self._same: dict[str, int] = defaultdict(int)  # reason, with and without figures -> a bit per failure
        for index, point in enumerate(self._failed):
            self._same[point.reason] |= 1 << index
            self._same[_without_figures(point.reason)] |= 1 << index
        self._lessons = tuple(values for values in lessons if not self._accepted(values))
        self._sure: dict[str, float] = {}  # failure -> probability that it had one of its suspects
        self._blamed: dict[frozenset[Item], dict[str, float]] = defaultdict(dict)  # suspects -> failure -> share
        suspects: dict[str, set[frozenset[Item]]] = defaultdict(set)
        for point in self._failed:
            if point.stated and not self._accepted(point.stated):
                self._lessons = (*self._lessons, point.stated)
            else:
                suspects[_without_figures(point.reason)].update(self._suspects(point))
        for point in self._failed:
            for values, share in self._shares(point, suspects[_without_figures(point.reason)]):
                self._blamed[values][point.id] = share
        clashes = len({point.stated for point in self._failed if point.stated in self._lessons}) + len(self.causes())
        self._clash = _CLASH * clashes / (clashes + self._accepted.pairs()) if clashes else 0.0
        """Share of pairs of values that do not work together, among those that were tried."""
        named = {point.id: frozenset(point.values.items()) for point in self._failed}
        self._context = {
            values: frozenset.intersection(*(named[name] for name in shares)) for values, shares in self._blamed.items()
        }

    def risk(self, config: Mapping[str, str]) -> float:
        """Return the probability that `config` fails by a known cause, or by a pair of values that was never tried."""
        alike = self._alike(config, _CONTEXT)
        known = max((share * self._sure.get(name, _SURE) for name, share in alike.items()), default=0.0)
        return 1 - (1 - known) * (1 - self._clash) ** self._accepted.new_pairs(config)

    def bars(self, config: Mapping[str, str]) -> bool:
        """Return whether `config` has the probable cause of so many failures that it is not tried."""
        alike = self._alike(config)
        return "" in alike or sum(share >= 0.5 for share in alike.values()) >= ENOUGH

    def suspect_values(self, config: Mapping[str, str]) -> frozenset[Item]:
        """Return the values of `config` that most probably made another kernel fail; empty if there are none."""
        met = [values for values in self._blamed if values <= config.items()]
        return max(met, key=lambda values: (max(self._blamed[values].values()), sorted(values)), default=frozenset())

    def causes(self) -> list[Cause]:
        """Return the most probable causes of the failures, by number of values."""
        likeliest: dict[str, tuple[float, list[Item]]] = {}
        for values, shares in self._blamed.items():
            for name, share in shares.items():
                likeliest[name] = max(likeliest.get(name, (0.0, [])), (share, sorted(values)))
        causes = {frozenset(values) for _, values in likeliest.values()}
        least = [values for values in causes if not any(less < values for less in causes)]
        having = {values: self._having(values) for values in least}
        failed = [(1 << index, point.id) for index, point in enumerate(self._failed)]
        shortest = [Cause(values, tuple(id for bit, id in failed if having[values] & bit)) for values in least]
        return sorted(shortest, key=lambda cause: (len(cause.values), -len(cause.trials), sorted(cause.values)))

    def _alike(self, config: Mapping[str, str], context: float = 0.0) -> Mapping[str, float]:
        """Return failure -> the probability that `config` has its cause; "" -> 1 for a lesson or a stated cause.
        context: the probability that a value common to all failures of a suspect belongs to the cause, too.
        """
        items = config.items()
        if any(values <= items for values in self._lessons):
            return {"": 1.0}
        chances: dict[str, float] = defaultdict(float)
        for values, shares in self._blamed.items():
            if values <= items:
                certainty = (1 - context) ** len(self._context[values] - items)
                for name, share in shares.items():
                    chances[name] += share * certainty
        return chances

    def _shares(self, point: Point, suspects: Iterable[frozenset[Item]]) -> Iterator[tuple[frozenset[Item], float]]:
        exactly, roughly = self._same[point.reason], self._same[_without_figures(point.reason)]
        pulls = {}
        for values in (some for some in suspects if some <= point.values.items()):
            having = self._having(values)
            explained = (having & exactly).bit_count() + (having & roughly).bit_count()
            pulls[values] = explained**3 * _ONE_MORE ** len(values) * (1 if having & exactly == exactly else _UNLIKE)
        total = sum(pulls.values())
        own = len(point.values) * 2**3 * _ONE_MORE**2  # of a pair that it alone has
        self._sure[point.id] = _SURE * total / (total + own)
        for values in sorted(pulls, key=lambda values: (-pulls[values], sorted(values)))[:_SHOWN]:
            yield values, pulls[values] / total

    def _suspects(self, point: Point) -> list[frozenset[Item]]:
        """Return the minimal sets that no accepted kernel has, of the tunables that the message names, else of all."""
        named = [item for item in point.values.items() if item[0] in point.named]
        for values in (named, list(point.values.items())):
            if not self._accepted(values):
                return list(self._accepted.least_without(values))
        return []


class _Having:
    """Index of points by value: a call returns, as bits, the points that have all given values."""

    def __init__(self, points: Sequence[Point]) -> None:
        self._all = (1 << len(points)) - 1
        self._with: dict[Item, int] = defaultdict(int)
        for index, point in enumerate(points):
            for item in point.values.items():
                self._with[item] |= 1 << index

    def __call__(self, values: Iterable[Item]) -> int:
        return reduce(and_, (self._with.get(item, 0) for item in values), self._all)

    def pairs(self) -> int:
        return sum(bool(a & b) for a, b in combinations(self._with.values(), 2))

    def new_pairs(self, config: Mapping[str, str]) -> int:
        return sum(not a & b for a, b in combinations([self._with.get(item, 0) for item in config.items()], 2))

    def least_without(self, values: Sequence[Item]) -> Iterator[frozenset[Item]]:
        """Yield the minimal sets of these values that no point has: all small ones, else one large one."""
        small = False
        stack: list[tuple[int, tuple[Item, ...], int]] = [(0, (), self._all)]
        while stack:
            start, chosen, having = stack.pop()
            for index in range(start, len(values)):
                some, left = (*chosen, values[index]), having & self._with.get(values[index], 0)
                if left and len(some) < _DEEP:
                    stack.append((index + 1, some, left))
                elif not left and all(self(item for item in some if item != other) for other in some):
                    small = True
                    yield frozenset(some)
        if not small:
            least = frozenset(values)
            for item in values:
                least = least if self(least - {item}) else least - {item}
            yield least


def _without_figures(reason: str) -> str:
    return re.sub(r"0x[0-9a-f]+|[-+\d.]*\d(?:e[-+]?\d+)?|\b(?:inf|nan)\b", "#", reason)
