"""Kernels that declare the same tunables are a family: what of it was tried, what came of that, and what is left.

The one notion of it: selectors, designers and digesters all ask here. A kernel belongs to a family by the names of its
tunables alone. Times are compared among its members with the same dispatch lines: others are judged for something else
than their values. Values and populations in, values out.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import permutations, product
from math import prod
from random import Random
from typing import Any

from ksflow.records import Evaluation, Kernel, Population, Trial, Verdict, base_of, plain
from ksflow.source.causes import Failures, Item, Point
from ksflow.source.tunables import Tunable, assign, constants, dispatches, requires, ruled_out, tunables, values

_PATIENCE = 9  # points without a gain before a search counts as stuck
STRUCTURE = frozenset({"form", "pack", "decode", "precision", "fuse"})
"""Kinds of tunables that choose between forms of the code."""
_WORDS = 4000  # characters of a failure's evidence that are read
_ENUMERATED = 4096  # configurations that are looked at one by one; of more, some are drawn

Config = Mapping[str, str]
"""Tunable -> value."""

declared = lru_cache(maxsize=4096)(tunables)
values_of = lru_cache(maxsize=4096)(values)
dispatches_of = lru_cache(maxsize=4096)(dispatches)
constants_of = lru_cache(maxsize=4096)(constants)
_requires_of = lru_cache(maxsize=4096)(requires)


@dataclass(frozen=True)
class Member:
    """A trial of a family."""

    trial: Trial
    values: Config
    lines: Mapping[str, Config]
    """Its dispatch lines."""
    unwritten: str = ""
    """The source that it should have been, where it was never written."""
    us: float | None = None
    """Its score on the population's scale."""

    @property
    def text(self) -> str:
        """The source it stands for."""
        return self.trial.kernel.main if self.trial.kernel else self.unwritten


@dataclass(unsafe_hash=True, slots=True)
class _Known:
    """What a cache knows again by a key.

    A kernel by its digest, because a long run holds the texts of its kernels compressed; another object by being the
    same one (its `id`, for as long as the cache holds it): to compare what it holds would take longer.
    """

    key: str | int
    held: Any = field(compare=False, repr=False)


@lru_cache(maxsize=16384)
def _read(source: _Known) -> tuple[Config, Mapping[str, Config]]:
    text = source.held.main
    return values_of(text), dispatches_of(text)


def values_in(kernel: Kernel | None) -> Config:
    """The values of the tunables that a kernel declares; none where there is no kernel."""
    return _read(_Known(kernel.digest, kernel))[0] if kernel else {}


def families(population: Population) -> dict[frozenset[str], tuple[Member, ...]]:
    """The names of the tunables that were declared -> the trials that declare them, in the order of their ids."""
    grouped: dict[frozenset[str], list[Member]] = {}
    for trial in population.trials:
        text = "" if trial.kernel else _unwritten(trial, population)
        if trial.kernel:
            own, lines = _read(_Known(trial.kernel.digest, trial.kernel))
        else:
            own, lines = values_of(text), dispatches_of(text)
        if own:
            grouped.setdefault(frozenset(own), []).append(Member(trial, own, lines, text, population.us(trial)))
    return {names: tuple(group) for names, group in grouped.items()}


def family(population: Population, text: str) -> tuple[Member, ...]:
    """The trials that declare the same tunables as a source."""
    return families(population).get(frozenset(values_of(text)), ())


def has_untried(population: Population, trial: Trial) -> bool:
    """Whether a designer that starts from a trial's kernel has something left to try; true where nothing is tunable."""
    text = trial.kernel.main if trial.kernel else ""
    return not values_of(text) or space(text, family(population, text)).open


def draw_untried(population: Population, entrants: Sequence[Trial], draw: Callable[[list[Trial]], Trial]) -> Trial:
    """What `draw` takes of the entrants, again until that has something left to try; else the last one left."""
    left = list(entrants)
    drawn = draw(left)
    while len(left) > 1 and not has_untried(population, drawn):
        left.remove(drawn)
        drawn = draw(left)
    return drawn


def comparable(population: Population) -> list[tuple[Member, ...]]:
    """The families, apart by their dispatch lines: trials whose times differ by the values of their tunables alone."""
    grouped: dict[tuple[frozenset[str], str], list[Member]] = {}
    for names, members in families(population).items():
        for member in members:
            grouped.setdefault((names, repr(member.lines)), []).append(member)
    return [tuple(group) for group in grouped.values()]


def comparable_to(population: Population, text: str) -> tuple[Member, ...]:
    """The trials that declare the same tunables as a source, and have its dispatch lines."""
    return tuple(member for member in family(population, text) if member.lines == dispatches_of(text))


@dataclass(frozen=True)
class Space:
    """The configurations that a base can have: where it stands, and what became of those that were tried, in order."""

    tunables: tuple[Tunable, ...]
    base: Mapping[str, str]
    points: tuple[Point, ...]
    tried: frozenset[tuple[str, ...]]
    """Configurations that were judged, or could not be written."""
    text: str = ""
    """The base's source."""
    lessons: tuple[frozenset[Item], ...] = ()
    """Values that together made kernels fail elsewhere."""

    def key(self, config: Mapping[str, str]) -> tuple[str, ...]:
        """Names `config`, whatever values tunables without an effect in it have."""
        idle = self._idle.get(self._structure(config), frozenset())
        return tuple("" if t.name in idle else config[t.name] for t in self.tunables)

    def untried(self, config: Mapping[str, str]) -> bool:
        """Whether it is new, no `require` line of the base rules it out, and it shares no cause of many failures."""
        return self.key(config) not in self._known and not self.ruled_out(config) and not self.failures.bars(config)

    @cached_property
    def failures(self) -> Failures:
        """What failed, and why."""
        return Failures(self.points, self.lessons)

    @cached_property
    def open(self) -> bool:
        """Whether something is left to try: no search from this base comes to its end before this is false."""
        if self.size <= _ENUMERATED:
            return any(map(self.untried, self._all()))
        return bool(self.sample_untried(Random(0), 1))

    def ruled_out(self, config: Mapping[str, str]) -> bool:
        """Whether a `require` line of the base forbids it for every case."""
        return ruled_out(_requires_of(self.text), constants_of(self.text), config)

    @cached_property
    def _known(self) -> frozenset[tuple[str, ...]]:
        names = [tunable.name for tunable in self.tunables]
        return frozenset(self.key(dict(zip(names, tried, strict=True))) for tried in self.tried)

    @cached_property
    def _idle(self) -> Mapping[tuple[str, ...], frozenset[str]]:
        """Structure -> the tunables that the compiler made nothing of: different values, the same artefact, and nowhere
        another one where nothing else differs.
        """
        first: dict[tuple[tuple[str, ...], str], Point] = {}
        idle: dict[tuple[str, ...], frozenset[str]] = {}
        compiled = [(self._structure(point.values), point) for point in self.points if point.artefact]
        for structure, point in compiled:
            same_code = first.setdefault((structure, point.artefact), point)
            differing = {name for name, value in point.values.items() if same_code.values[name] != value}
            idle[structure] = idle.get(structure, frozenset()) | differing
        for name in frozenset[str]().union(*idle.values()):
            alone: dict[tuple[object, ...], str] = {}  # a structure and all values but this tunable's -> the artefact
            for structure, point in compiled:
                rest = (point.values[tunable.name] for tunable in self.tunables if tunable.name != name)
                if name in idle[structure] and alone.setdefault((structure, *rest), point.artefact) != point.artefact:
                    idle[structure] -= {name}
        return idle

    def _structure(self, config: Config) -> tuple[str, ...]:
        """The values that decide which other tunables have an effect."""
        return tuple(config[t.name] for t in self.tunables if t.kind in STRUCTURE)

    def changes(self, config: Mapping[str, str]) -> Config:
        """What `config` assigns that the base does not."""
        return {name: value for name, value in config.items() if self.base[name] != value}

    @cached_property
    def steps(self) -> Mapping[tuple[str, str, str], tuple[float, ...]]:
        """(tunable, from, to) -> log gains of accepted kernels that differ in nothing else."""
        gains: dict[tuple[str, str, str], tuple[float, ...]] = {}
        for tunable in self.tunables:
            groups: dict[frozenset[tuple[str, str]], list[tuple[str, float]]] = {}
            for point in self.points:
                if point.score_us:
                    rest = frozenset(item for item in point.values.items() if item[0] != tunable.name)
                    groups.setdefault(rest, []).append((point.values[tunable.name], point.score_us))
            for group in groups.values():
                for (value, before), (other, after) in permutations(group, 2):
                    key = (tunable.name, value, other)
                    gains[key] = (*gains.get(key, ()), math.log(before / after))
        return gains

    @cached_property
    def stuck(self) -> bool:
        """None of the last points was the best so far."""
        times = [point.score_us or math.inf for point in self.points]
        return len(times) > _PATIENCE and min(times[:-_PATIENCE]) <= min(times)

    @property
    def size(self) -> int:
        return prod(len(tunable.options) for tunable in self.tunables)

    def sample_untried(self, rng: Random, count: int) -> list[Config]:
        """Up to `count` distinct untried configurations by chance; in a small space, all that are left."""
        if self.size <= _ENUMERATED:
            left = [config for config in self._all() if self.untried(config)]
            return rng.sample(left, min(count, len(left)))
        sample: dict[tuple[str, ...], Config] = {}
        for _ in range(50 * count):
            config = {tunable.name: rng.choice(tunable.options) for tunable in self.tunables}
            if len(sample) < count and self.untried(config):
                sample.setdefault(self.key(config), config)
        return list(sample.values())

    def _all(self) -> Iterator[Config]:
        names = [tunable.name for tunable in self.tunables]
        for chosen in product(*(tunable.options for tunable in reversed(self.tunables))):
            yield dict(zip(names, reversed(chosen), strict=True))


def space(text: str, members: tuple[Member, ...]) -> Space:
    """The space around a source that declares tunables, as these members of its family have explored it."""
    own = declared(text)
    known = {(t.name, option) for t in own for option in t.options}
    judged = [member for member in members if member.trial.evaluation and member.values.items() <= known]
    points = tuple(point(member.trial, member.values, member.us) for member in judged)
    tried = frozenset(tuple(member.values[t.name] for t in own) for member in members)
    return Space(own, values_of(text), points, tried | {tuple(t.value for t in own)}, text)


def point(trial: Trial, config: Config, us: float | None) -> Point:
    """What became of `config`, by the trial that had it, and its score on the population's scale."""
    evaluation = trial.evaluation
    if evaluation is None or evaluation.verdict is Verdict.HARNESS:
        return Point(trial.id, config, None, False)
    if evaluation.accepted:
        return Point(trial.id, config, us, False, artefact=evaluation.evidence.artefact)
    reason = f"{evaluation.verdict.value}: {evaluation.reason}"
    blamed = _blamed(_Known(id(evaluation), evaluation), _Known(id(config), config))
    return Point(trial.id, config, None, True, *blamed, reason=reason)


@lru_cache(maxsize=16384)
def _blamed(judged: _Known, configured: _Known) -> tuple[frozenset[str], frozenset[tuple[str, str]]]:
    """The tunables that a failure's words mention, and what they state as its cause."""
    evaluation: Evaluation = judged.held
    config: Config = configured.held
    words = f"{evaluation.reason} {plain(evaluation.evidence)}"[:_WORDS]
    named = frozenset(name for name in config if re.search(rf"\b{name}\b", words))
    stated = {name: value for name, value in re.findall(r"\b(\w+) ?= ?(\w+)", evaluation.reason) if name in config}
    about = any(config[name] == value for name, value in stated.items())  # this configuration, or a better one
    return named, frozenset((name, config[name]) for name in stated) if about else frozenset()


def _unwritten(trial: Trial, population: Population) -> str:
    parent = base_of(trial, population.by_id)
    if parent is None or parent.kernel is None or trial.experiment is None:
        return ""
    try:
        return assign(parent.kernel.main, trial.experiment.changes)
    except ValueError:
        return ""
