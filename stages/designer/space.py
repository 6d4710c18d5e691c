"""The space a base kernel's tunables span, and what the population says of it. Shared by the designers that tune.

A kernel belongs to the base's family when it declares the same tunables; other kernels say nothing about it. Among
them, those with other dispatch lines are judged for something else than their values.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import permutations
from math import prod
from random import Random

from ksflow.errors import StageError
from ksflow.records import Experiment, Population, Trial, Verdict
from ksflow.tunables import DISPATCH, Tunable, assign, constants, dispatches, requires, ruled_out, tunables, values

_PATIENCE = 9  # points without a gain before a search counts as stuck
_STRUCTURE = {"form", "pack", "decode", "precision", "fuse"}
_WORDS = 4000  # characters of a failure's evidence that are read

Config = Mapping[str, str]
"""Tunable -> value."""

_declared = lru_cache(maxsize=4096)(tunables)
values_of = lru_cache(maxsize=4096)(values)
lines_of = lru_cache(maxsize=4096)(dispatches)


@dataclass(frozen=True)
class Point:
    """A configuration of the family and what became of it."""

    id: str
    values: Mapping[str, str]
    score_us: float | None
    failed: bool
    """The kernel was at fault: wrong, crashed, too slow, not compiled. A broken harness says nothing."""
    named: frozenset[str] = frozenset()
    """Tunables that the compiler's or the judge's words mention."""
    stated: frozenset[tuple[str, str]] = frozenset()
    """What those words give as the cause: `FORM = amx needs AMX` states FORM=amx, and a value it lacks counts too."""
    artefact: str = ""
    """Names what the compiler made of it, where the judge says so."""


@dataclass(frozen=True)
class Space:
    """The base's tunables, where it stands, and the family's points in the order they were judged."""

    tunables: tuple[Tunable, ...]
    base: Mapping[str, str]
    points: tuple[Point, ...]
    tried: frozenset[tuple[str, ...]]
    """Configurations that were judged, or could not be written."""
    text: str = ""
    """The base's source."""

    def key(self, config: Mapping[str, str]) -> tuple[str, ...]:
        """Names `config`, whatever values tunables without an effect in it have."""
        idle = self._idle.get(self._structure(config), frozenset())
        return tuple("" if t.name in idle else config[t.name] for t in self.tunables)

    def untried(self, config: Mapping[str, str]) -> bool:
        """Whether it is new, and no `require` line of the base rules it out."""
        return self.key(config) not in self._known and not self.ruled_out(config)

    def ruled_out(self, config: Mapping[str, str]) -> bool:
        """Whether a `require` line of the base forbids it for every case."""
        return ruled_out(*self._rules, config)

    @cached_property
    def _rules(self) -> tuple[tuple[str, ...], Mapping[str, int | float]]:
        return requires(self.text), constants(self.text)

    @cached_property
    def _known(self) -> frozenset[tuple[str, ...]]:
        names = [tunable.name for tunable in self.tunables]
        return frozenset(self.key(dict(zip(names, tried, strict=True))) for tried in self.tried)

    @cached_property
    def _idle(self) -> Mapping[tuple[str, ...], frozenset[str]]:
        """Structure -> the tunables that the compiler made nothing of: different values, the same artefact."""
        first: dict[tuple[tuple[str, ...], str], Point] = {}
        found: dict[tuple[str, ...], frozenset[str]] = {}
        for point in self.points:
            if point.artefact:
                structure = self._structure(point.values)
                twin = first.setdefault((structure, point.artefact), point)
                differing = {name for name, value in point.values.items() if twin.values[name] != value}
                found[structure] = found.get(structure, frozenset()) | differing
        return found

    def _structure(self, config: Config) -> tuple[str, ...]:
        """The values that decide which other tunables have an effect."""
        return tuple(config[t.name] for t in self.tunables if t.kind in _STRUCTURE)

    def changes(self, config: Mapping[str, str]) -> Config:
        """What `config` assigns that the base does not."""
        return {name: value for name, value in config.items() if self.base[name] != value}

    @cached_property
    def steps(self) -> Mapping[tuple[str, str, str], tuple[float, ...]]:
        """(tunable, from, to) -> log gains of accepted kernels that differ in nothing else."""
        found: dict[tuple[str, str, str], tuple[float, ...]] = {}
        for tunable in self.tunables:
            groups: dict[frozenset[tuple[str, str]], list[tuple[str, float]]] = {}
            for point in self.points:
                if point.score_us:
                    rest = frozenset(item for item in point.values.items() if item[0] != tunable.name)
                    groups.setdefault(rest, []).append((point.values[tunable.name], point.score_us))
            for group in groups.values():
                for (one, before), (two, after) in permutations(group, 2):
                    key = (tunable.name, one, two)
                    found[key] = (*found.get(key, ()), math.log(before / after))
        return found

    @cached_property
    def stuck(self) -> bool:
        """None of the last points was the best so far."""
        times = [point.score_us or math.inf for point in self.points]
        return len(times) > _PATIENCE and min(times[:-_PATIENCE]) <= min(times)

    @property
    def size(self) -> int:
        return prod(len(tunable.options) for tunable in self.tunables)

    def draw(self, rng: Random) -> Config:
        """A configuration by chance."""
        return {tunable.name: rng.choice(tunable.options) for tunable in self.tunables}

    def strangers(self, rng: Random, count: int) -> list[Config]:
        """Up to `count` distinct untried configurations by chance; in a small space, all that are left."""
        if self.size <= 4096:
            left = [config for config in self._all() if self.untried(config)]
            return rng.sample(left, min(count, len(left)))
        found: dict[tuple[str, ...], Config] = {}
        for _ in range(50 * count):
            config = self.draw(rng)
            if len(found) < count and self.untried(config):
                found.setdefault(self.key(config), config)
        return list(found.values())

    def _all(self) -> Iterator[Config]:
        for index in range(self.size):
            config: dict[str, str] = {}
            for tunable in self.tunables:
                index, digit = divmod(index, len(tunable.options))
                config[tunable.name] = tunable.options[digit]
            yield config


def space(stage: str, population: Population, base: Trial) -> Space:
    """The space around `base`. StageError when it declares no tunables."""
    text = base.kernel.main if base.kernel else ""
    declared = _declared(text)
    if not declared:
        raise StageError(
            stage,
            f"kernel {base.id} declares no tunables (`X = 8  // tune: 4 8 16`); "
            "select one that does (selector=fastest) or use designer=llm",
        )
    names = {tunable.name for tunable in declared}
    texts = [(trial, _text(trial, population)) for trial in population.trials]
    family = [
        (trial, values_of(own))
        for trial, own in texts
        if values_of(own).keys() == names and lines_of(own) == lines_of(text)
    ]
    known = {(t.name, option) for t in declared for option in t.options}
    points = tuple(point(trial, config) for trial, config in family if trial.evaluation and config.items() <= known)
    tried = frozenset(tuple(config[t.name] for t in declared) for _, config in family)
    return Space(declared, values_of(text), points, tried | {tuple(values_of(text)[t.name] for t in declared)}, text)


def tuned(changes: Config, gain: tuple[float, float], innovation: float, why: str) -> Experiment:
    """An experiment that assigns tunables."""
    assigned = ", ".join(_said(name, value) for name, value in changes.items())
    return Experiment(
        f"{assigned}: {why}",
        f"the source assigns {assigned}; right on every case and faster than the base",
        gain,
        innovation,
        changes,
    )


def _said(name: str, value: str) -> str:
    return f"{value} {name.removeprefix('dispatch: ')}" if name.startswith(DISPATCH) else f"{name}={value}"


def exhausted(stage: str, base: Trial) -> StageError:
    """Nothing is left to propose."""
    return StageError(
        stage,
        f"every configuration of {base.id}'s tunables was tried; declare more values or add a seed",
    )


def _text(trial: Trial, population: Population) -> str:
    """The source a trial stands for; of one that was never written, what it should have been."""
    if trial.kernel:
        return trial.kernel.main
    parent = population.by_id.get(trial.parents[0]) if trial.parents else None
    if parent is None or parent.kernel is None or trial.experiment is None:
        return ""
    try:
        return assign(parent.kernel.main, trial.experiment.changes)
    except ValueError:
        return ""


def point(trial: Trial, config: Config) -> Point:
    """What became of `config`, by the trial that had it."""
    evaluation = trial.evaluation
    if evaluation is None or evaluation.verdict is Verdict.HARNESS:
        return Point(trial.id, config, None, False)
    if evaluation.accepted:
        artefact = str(evaluation.evidence.get("artefact", ""))
        return Point(trial.id, config, evaluation.score_us, False, artefact=artefact)
    words = f"{evaluation.reason} {evaluation.evidence}"[:_WORDS]
    named = frozenset(name for name in config if re.search(rf"\b{name}\b", words))
    return Point(trial.id, config, None, True, named, _stated(evaluation.reason, config))


def _stated(reason: str, config: Config) -> frozenset[tuple[str, str]]:
    """The assignments that a failure's one line is about, when it is about any of this configuration's."""
    said = {name: value for name, value in re.findall(r"\b(\w+) ?= ?(\w+)", reason) if name in config}
    if not any(config[name] == value for name, value in said.items()):
        return frozenset()
    return frozenset((name, config[name]) for name in said)
