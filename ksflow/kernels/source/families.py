"""Families: kernels that differ only in the values of their tunables; their trials, results and untried values.

Selectors, designers and digesters all use this definition. A kernel's family is given by its structure, which is its
source without those values: results of one structure are no evidence for another one with the same names. Times are
compared among members with the same dispatch lines, because other lines change more than values.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import permutations, product
from random import Random
from typing import Any

from ksflow.kernels.source.answer import with_main
from ksflow.kernels.source.causes import Failures, Item, Point
from ksflow.kernels.source.tunables import (
    Tunable,
    assign,
    constants,
    dispatches,
    effective_values,
    for_cores,
    needs,
    requires,
    ruled_out,
    tunables,
    values,
    without_values,
)
from ksflow.records import Evaluation, Kernel, Population, Trial, Verdict, as_json, base_of, digest

STRUCTURE = frozenset({"form", "pack", "decode", "precision", "fuse"})  # kinds that choose between forms of the code
_WORDS = 4000  # characters of a failure's evidence that are read
_ENUMERATED = 4096  # configurations that are looked at one by one; of more, some are drawn

Config = Mapping[str, str]  # tunable -> value

declared = lru_cache(maxsize=4096)(tunables)
values_of = lru_cache(maxsize=4096)(values)
dispatches_of = lru_cache(maxsize=4096)(dispatches)
constants_of = lru_cache(maxsize=4096)(constants)
_requires_of = lru_cache(maxsize=4096)(requires)
_needs_of = lru_cache(maxsize=4096)(needs)


@dataclass(frozen=True)
class FamilyMember:
    """A trial of a family."""

    trial: Trial
    kernel: Kernel  # the trial's kernel, or for a trial without one the kernel that its experiment describes
    values: Config
    lines: Mapping[str, Config]  # its dispatch lines
    us: float | None = None  # its score on the population's scale


@dataclass(unsafe_hash=True, slots=True)
class _Known:
    """A cache key with its object.

    A kernel's key is its digest, because a long run holds its kernels' texts compressed; another object's key is its
    `id`, valid while the cache holds it, because comparing contents would take longer.
    """

    key: str | int
    held: Any = field(compare=False, repr=False)


@lru_cache(maxsize=16384)
def _read(source: _Known) -> tuple[Config, Mapping[str, Config], str]:
    kernel: Kernel = source.held
    main, *others = kernel.files.values()
    parts = [kernel.language, *kernel.files, without_values(main), *others]
    return values_of(main), dispatches_of(main), digest(*parts, digits=12)


def _read_kernel(kernel: Kernel) -> tuple[Config, Mapping[str, Config], str]:
    return _read(_Known(kernel.digest, kernel))


@lru_cache(maxsize=16384)
def _counting(own: _Known, config: _Known) -> Config:
    return effective_values(own.held, config.held)


def values_in(kernel: Kernel | None) -> Config:
    """Return the values of a kernel's tunables; empty for None."""
    return _read_kernel(kernel)[0] if kernel else {}


def structure_of(kernel: Kernel) -> str:
    """Return a digest of the kernel's files without values of tunables. Kernels with the same digest are a family."""
    return _read_kernel(kernel)[2]


def families(population: Population) -> dict[str, tuple[FamilyMember, ...]]:
    """Return structures with tunables -> their trials, in the order of their ids."""
    grouped: dict[str, list[FamilyMember]] = {}
    for trial in population.trials:
        if kernel := trial.kernel or _unwritten(trial, population):
            own, lines, name = _read_kernel(kernel)
            if own:
                grouped.setdefault(name, []).append(FamilyMember(trial, kernel, own, lines, population.time_us(trial)))
    return {name: tuple(group) for name, group in grouped.items()}


def family(population: Population, kernel: Kernel) -> tuple[FamilyMember, ...]:
    """Return the trials that differ from a kernel only in values of tunables and dispatch lines."""
    return families(population).get(structure_of(kernel), ())


def has_untried(population: Population, trial: Trial) -> bool:
    """Return whether a designer has configurations left to try from a trial's kernel; True without tunables."""
    kernel = trial.kernel
    return kernel is None or not values_in(kernel) or space(kernel, family(population, kernel)).has_untried


def draw_untried(population: Population, entrants: Sequence[Trial], draw: Callable[[list[Trial]], Trial]) -> Trial:
    """Return the first `draw` of the entrants with configurations left to try, else the last one left."""
    left = list(entrants)
    drawn = draw(left)
    while len(left) > 1 and not has_untried(population, drawn):
        left.remove(drawn)
        drawn = draw(left)
    return drawn


def comparable_families(population: Population) -> list[tuple[FamilyMember, ...]]:
    """Return the families, split by dispatch lines: trials whose times differ only by values of tunables."""
    grouped: dict[tuple[str, str], list[FamilyMember]] = {}
    for name, members in families(population).items():
        for member in members:
            grouped.setdefault((name, repr(member.lines)), []).append(member)
    return [tuple(group) for group in grouped.values()]


def comparable_to(population: Population, kernel: Kernel) -> tuple[FamilyMember, ...]:
    """Return the trials that differ from a kernel only in the values of its tunables."""
    lines = _read_kernel(kernel)[1]
    return tuple(member for member in family(population, kernel) if member.lines == lines)


@dataclass(frozen=True)
class Space:
    """The configurations of a base: its own, and the results of those that were tried, in order."""

    tunables: tuple[Tunable, ...]
    base: Mapping[str, str]
    points: tuple[Point, ...]
    tried: frozenset[tuple[str, ...]]  # configurations that were judged, or could not be written
    kernel: Kernel  # the base's
    features: frozenset[str] = frozenset()  # instruction sets of the CPU that judged them; empty if unknown
    lessons: tuple[frozenset[Item], ...] = ()  # combinations of values that made kernels fail in other runs

    def effective_config(self, config: Config) -> Config:
        """Return the values of `config` that have an effect given the others; equal ones are one configuration."""
        return effective_values(self.tunables, config)

    def key(self, config: Mapping[str, str]) -> tuple[str, ...]:
        """Return a key of `config` that ignores tunables without an effect in it."""
        counts = self.effective_config(config)
        idle = self._idle.get(self._structure(counts), frozenset())
        return tuple("" if t.name in idle else counts.get(t.name, "") for t in self.tunables)

    def is_untried(self, config: Mapping[str, str]) -> bool:
        """Return whether it is new, allowed by the base's `require` lines, and without a cause of many failures."""
        return self.key(config) not in self._known and not self.ruled_out(config) and not self.failures.bars(config)

    @cached_property
    def failures(self) -> Failures:
        """The failures of this space with their causes."""
        return Failures(self.points, self.lessons)

    @cached_property
    def has_untried(self) -> bool:
        """Whether configurations are left to try; a search from this base ends when this is False."""
        if self.size <= _ENUMERATED:
            return any(map(self.is_untried, self._all()))
        return bool(self.sample_untried(Random(0), 1))

    def ruled_out(self, config: Mapping[str, str]) -> bool:
        """Return whether a `require` line of the base forbids it for every case, or it needs what the CPU lacks."""
        text, counts = self.kernel.main, self.effective_config(config)
        lacked = (when for feature, when in _needs_of(text) if feature not in self.features)
        if self.features and any(when.holds(counts) for when in lacked):
            return True
        return ruled_out(_requires_of(text), constants_of(text), config)

    @cached_property
    def _known(self) -> frozenset[tuple[str, ...]]:
        names = [tunable.name for tunable in self.tunables]
        return frozenset(self.key(dict(zip(names, tried, strict=True))) for tried in self.tried)

    @cached_property
    def _idle(self) -> Mapping[tuple[str, ...], frozenset[str]]:
        """Structure -> tunables that the compiler ignores: kernels that differ in these alone have one artefact."""
        first: dict[tuple[tuple[str, ...], str], Point] = {}
        idle: dict[tuple[str, ...], frozenset[str]] = {}
        compiled = [(self._structure(point.values), point) for point in self.points if point.artefact]
        for structure, point in compiled:
            same_code = first.setdefault((structure, point.artefact), point)
            differing = {name for name, value in point.values.items() if same_code.values.get(name) != value}
            idle[structure] = idle.get(structure, frozenset()) | differing
        for name in frozenset[str]().union(*idle.values()):
            alone: dict[tuple[object, ...], str] = {}  # a structure and all values but this tunable's -> the artefact
            for structure, point in compiled:
                rest = (point.values.get(tunable.name, "") for tunable in self.tunables if tunable.name != name)
                if name in idle[structure] and alone.setdefault((structure, *rest), point.artefact) != point.artefact:
                    idle[structure] -= {name}
        return idle

    def _structure(self, config: Config) -> tuple[str, ...]:
        """Return the values that decide which other tunables have an effect."""
        return tuple(config.get(t.name, "") for t in self.tunables if t.kind in STRUCTURE)

    def changes(self, config: Mapping[str, str]) -> Config:
        """Return the effective values of `config` that differ from the base's."""
        return {name: value for name, value in self.effective_config(config).items() if self.base[name] != value}

    @cached_property
    def steps(self) -> Mapping[tuple[str, str, str], tuple[float, ...]]:
        """(tunable, from, to) -> log gains of accepted kernels that differ in nothing else."""
        gains: dict[tuple[str, str, str], tuple[float, ...]] = {}
        for tunable in self.tunables:
            groups: dict[frozenset[tuple[str, str]], list[tuple[str, float]]] = {}
            for point in self.points:
                if point.score_us and tunable.name in point.values:
                    as_based = {**self.base, **point.values}
                    rest = frozenset(item for item in as_based.items() if item[0] != tunable.name)
                    groups.setdefault(rest, []).append((point.values[tunable.name], point.score_us))
            for group in groups.values():
                for (value, before), (other, after) in permutations(group, 2):
                    key = (tunable.name, value, other)
                    gains[key] = (*gains.get(key, ()), math.log(before / after))
        return gains

    @property
    def size(self) -> int:
        return math.prod(len(tunable.options) for tunable in self.tunables)

    def sample_untried(self, rng: Random, count: int) -> list[Config]:
        """Return up to `count` distinct untried configurations at random."""
        if self.size <= _ENUMERATED:
            left = list({self.key(config): config for config in self._all() if self.is_untried(config)}.values())
            return rng.sample(left, min(count, len(left)))
        sample: dict[tuple[str, ...], Config] = {}
        for _ in range(50 * count):
            config = self.effective_config({tunable.name: rng.choice(tunable.options) for tunable in self.tunables})
            if len(sample) < count and self.is_untried(config):
                sample.setdefault(self.key(config), config)
        return list(sample.values())

    def _all(self) -> Iterator[Config]:
        names = [tunable.name for tunable in self.tunables]
        for chosen in product(*(tunable.options for tunable in reversed(self.tunables))):
            yield self.effective_config(dict(zip(names, reversed(chosen), strict=True)))


def space(kernel: Kernel, members: tuple[FamilyMember, ...]) -> Space:
    """Return the space of a kernel with tunables, as these members of its family have explored it."""
    cores = max((m.trial.evaluation.evidence.core_count for m in members if m.trial.evaluation), default=1)
    own = for_cores(declared(kernel.main), cores)
    known = {(t.name, option) for t in own for option in t.options}
    judged = [member for member in members if member.trial.evaluation and member.values.items() <= known]
    names = _Known(id(own), own)
    counts = (_counting(names, _Known(id(member.values), member.values)) for member in judged)
    points = tuple(point(member.trial, values, member.us) for member, values in zip(judged, counts, strict=True))
    tried = frozenset(tuple(member.values[t.name] for t in own) for member in members)
    features = frozenset(f for m in members if m.trial.evaluation for f in m.trial.evaluation.evidence.features)
    return Space(own, values_in(kernel), points, tried | {tuple(t.value for t in own)}, kernel, features)


def point(trial: Trial, config: Config, us: float | None) -> Point:
    """Return a trial's result for `config`, with its score on the population's scale."""
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
    """Return the tunables that a failure's text mentions, and the values that it states as the cause."""
    evaluation: Evaluation = judged.held
    config: Config = configured.held
    words = f"{evaluation.reason} {as_json(evaluation.evidence)}"[:_WORDS]
    named = frozenset(name for name in config if re.search(rf"\b{name}\b", words))
    stated = {name: value for name, value in re.findall(r"\b(\w+) ?= ?(\w+)", evaluation.reason) if name in config}
    about = any(config[name] == value for name, value in stated.items())  # about this configuration, or a better one
    return named, frozenset((name, config[name]) for name in stated) if about else frozenset()


def _unwritten(trial: Trial, population: Population) -> Kernel | None:
    parent = base_of(trial, population.by_id)
    if parent and parent.kernel and trial.experiment:
        with suppress(ValueError):
            text = assign(parent.kernel.main, trial.experiment.changes)
            return replace(parent.kernel, files=with_main(parent.kernel, text))
    return None
