"""Effects in a population: kernels that differ in one tunable, and values that never worked.

Only kernels that differ just in the values of their tunables are compared.
"""

import math
import statistics
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

from ksflow.kernels.source.causes import Failures, Item
from ksflow.kernels.source.families import Config, comparable_families, declared, point
from ksflow.kernels.source.tokens import estimate
from ksflow.kernels.source.tunables import Tunable, effective_values
from ksflow.records import Population, Scale, Trial, Verdict

DeadEnd = tuple[frozenset[Item], tuple[Trial, ...]]  # values, and the trials with them, which all failed


@dataclass(frozen=True)
class Family:
    """Judged kernels that differ only in the values of their tunables."""

    tunables: tuple[Tunable, ...]
    accepted: tuple[tuple[Trial, Config], ...]
    failed: tuple[tuple[Trial, Config], ...]  # by the kernel's own fault; harness errors are left out
    scale: Scale


@dataclass(frozen=True)
class Effect:
    """Two accepted kernels that differ in one tunable. The earlier value in the declared list comes first."""

    tunable: Tunable
    values: tuple[str, str]
    trials: tuple[Trial, Trial]
    gain: float  # logarithm of the second's speed-up over the first: positive if it is faster, 0 if unknown


def judged_families(population: Population) -> list[Family]:
    """Return every judged structure, split by dispatch lines, in order of first appearance."""
    families = []
    for members in comparable_families(population):
        group = [m for m in members if m.trial.evaluation and m.trial.evaluation.verdict is not Verdict.HARNESS]
        if group:
            right = tuple((m.trial, m.values) for m in group if m.trial.score_us)
            wrong = tuple((m.trial, m.values) for m in group if not m.trial.score_us)
            families.append(Family(declared(group[0].text), right, wrong, population.scale))
    return families


def effects(family: Family) -> list[Effect]:
    """Return the effects of neighbouring values of each tunable, everything else being equal."""
    effects = []
    for tunable in family.tunables:
        rank = {value: index for index, value in enumerate(tunable.options)}
        groups: dict[frozenset[tuple[str, str]], dict[str, Trial]] = defaultdict(dict)
        for trial, config in family.accepted:
            if tunable.name not in effective_values(family.tunables, config):
                continue
            rest = frozenset(item for item in config.items() if item[0] != tunable.name)
            groups[rest].setdefault(config[tunable.name], trial)
        for group in groups.values():
            ordered = sorted(group, key=lambda value: rank.get(value, -1))
            for pair in pairwise(ordered):
                first, second = group[pair[0]], group[pair[1]]
                speed = family.scale.ratio(second.id, first.id)
                effects.append(Effect(tunable, pair, (first, second), math.log(speed.ratio) if speed else 0.0))
    return effects


def effects_table(population: Population, tokens: int) -> str:
    """Return the gain of each change of one tunable, a line each, the largest first, within so many tokens: `BM 64→128:
    +9.0 % (median of 3 pairs of kernels)`.
    """
    gains: dict[str, list[float]] = defaultdict(list)
    for family in judged_families(population):
        for effect in effects(family):
            if (speed := family.scale.ratio(effect.trials[1].id, effect.trials[0].id)) and speed.ranked:
                gains[f"{effect.tunable.name} {'→'.join(effect.values)}"].append(speed.gain_percent)
    medians = {change: statistics.median(each) for change, each in gains.items()}
    lines: list[str] = []
    for change in sorted(medians, key=lambda each: -abs(math.log1p(medians[each] / 100))):
        pairs = f" (median of {len(gains[change])} pairs of kernels)" if len(gains[change]) > 1 else ""
        lines.append(f"{change}: {medians[change]:+.1f} %{pairs}")
        if estimate("\n".join(lines)) > tokens:
            return "\n".join(lines[:-1])
    return "\n".join(lines)


def dead_ends(family: Family, at_least: int) -> list[DeadEnd]:
    """Return the values that at least so many failures have in common, and no accepted kernel."""
    judged = (*family.accepted, *family.failed)
    failures = Failures(
        point(trial, effective_values(family.tunables, config), family.scale.time_us(trial.id))
        for trial, config in judged
    )
    trials = {trial.id: trial for trial, _ in family.failed}
    causes = [cause for cause in failures.causes() if len(cause.trials) >= at_least]
    return [(cause.values, tuple(trials[id] for id in cause.trials)) for cause in causes]
