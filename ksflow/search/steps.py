"""What can be read off a population: kernels one step apart, and values that never worked.

Arithmetic on trials, no prose. Only kernels with the same tunables and the same dispatch lines are compared.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

from ksflow.records import Population, Trial, Verdict, speedup
from ksflow.source.families import Config, Member, declared, families
from ksflow.source.tunables import Tunable


@dataclass(frozen=True)
class Family:
    """The judged kernels that declare one set of tunables."""

    tunables: tuple[Tunable, ...]
    accepted: tuple[tuple[Trial, Config], ...]
    failed: tuple[tuple[Trial, Config], ...]
    """The kernel's own fault; a harness that broke says nothing of the kernel."""


@dataclass(frozen=True)
class Step:
    """Two accepted kernels that differ in one tunable. The earlier value in the declared list comes first."""

    tunable: Tunable
    values: tuple[str, str]
    trials: tuple[Trial, Trial]

    @property
    def gain(self) -> float:
        """Logarithm of the second's speed-up over the first: positive where it is faster, 0 where nobody knows."""
        before, after = self.trials
        found = speedup(after, before)
        return math.log(found.ratio) if found else 0.0


@dataclass(frozen=True)
class DeadEnd:
    """Values whose kernels all failed."""

    values: tuple[tuple[str, str], ...]
    trials: tuple[Trial, ...]


def judged(population: Population) -> list[Family]:
    """Every set of tunables that was judged, with each set of dispatch lines, in order of first appearance."""
    found = []
    for members in families(population).values():
        alike: dict[str, list[Member]] = {}
        for member in members:
            if member.trial.evaluation and member.trial.evaluation.verdict is not Verdict.HARNESS:
                alike.setdefault(repr(member.lines), []).append(member)
        found += [_family(group) for group in alike.values()]
    return found


def _family(members: Sequence[Member]) -> Family:
    pairs = [(member.trial, member.values) for member in members]
    return Family(
        declared(members[0].text),
        tuple(pair for pair in pairs if pair[0].score_us),
        tuple(pair for pair in pairs if not pair[0].score_us),
    )


def steps(family: Family) -> list[Step]:
    """Neighbours in each tunable, everything else being equal."""
    found = []
    for tunable in family.tunables:
        groups: dict[frozenset[tuple[str, str]], dict[str, Trial]] = defaultdict(dict)
        for trial, config in family.accepted:
            rest = frozenset(item for item in config.items() if item[0] != tunable.name)
            groups[rest].setdefault(config[tunable.name], trial)
        for group in groups.values():
            ordered = sorted(group, key=lambda value: _rank(tunable, value))
            for one, two in pairwise(ordered):
                found.append(Step(tunable, (one, two), (group[one], group[two])))
    return found


def dead_ends(family: Family, at_least: int) -> list[DeadEnd]:
    """Values, then pairs of values that each worked alone, in `at_least` failures and no accepted kernel."""
    worked = {part for _, config in family.accepted for part in _parts(config)}
    blamed: dict[tuple[tuple[str, str], ...], list[Trial]] = defaultdict(list)
    for trial, config in family.failed:
        for part in _parts(config):
            if part not in worked and all((item,) in worked for item in part if len(part) > 1):
                blamed[part].append(trial)
    ends = [DeadEnd(part, tuple(trials)) for part, trials in blamed.items() if len(trials) >= at_least]
    return sorted(ends, key=lambda end: (len(end.values), -len(end.trials), end.values))


def verdicts(trials: Sequence[Trial]) -> str:
    """`3 reject-incorrect, 1 compile-error`."""
    counts = Counter(trial.verdict for trial in trials)
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())


def faster_cases(before: Trial, after: Trial) -> tuple[int, int]:
    """On how many of the benchmarks that both have `after` is faster, and how many there are."""
    assert before.evaluation is not None
    assert after.evaluation is not None
    old = {timing.case: timing.us for timing in before.evaluation.timings}
    both = [(old[t.case], t.us) for t in after.evaluation.timings if t.case in old]
    return sum(new < was for was, new in both), len(both)


def _rank(tunable: Tunable, value: str) -> int:
    return tunable.options.index(value) if value in tunable.options else -1


def _parts(config: Config) -> list[tuple[tuple[str, str], ...]]:
    items = sorted(config.items())
    return [(item,) for item in items] + list(combinations(items, 2))
