"""Optuna's TPE over the base's tunables. The population is its only memory: the study is rebuilt each time.

Where a kernel can have other values for some cases, one experiment combines those that did best on each class of
cases, once they promise enough together; from such a base, the search goes on within one class at a time.
"""

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING

from ksflow.protocols import lot, sample
from ksflow.records import Choice, Note, Plan, Population, Problem, portfolio
from ksflow.search.dispatch import classes, combined
from ksflow.search.space import exhausted, space, tuned
from ksflow.source.families import Config, Point, Space

if TYPE_CHECKING:
    from optuna import Study

STAGE = "designer=tune"
_FAILED = math.log(2)
"""A configuration that failed counts as twice as slow as the slowest that was right."""


class Tpe:
    """Five untried proposals of a multivariate TPE; three of them are run."""

    def __init__(self, experiments: int = 5, memory: int = 300, per_shape: bool = True, seed: int = 0) -> None:
        """`memory` bounds what the study is rebuilt from: the best third, and the newest.

        `per_shape`: whether kernels may be proposed that have other values for some cases.
        """
        self.experiments = experiments
        self.memory = memory
        self.per_shape = per_shape
        self.seed = seed

    def __call__(
        self,
        problem: Problem,
        population: Population,
        choice: Choice,
        notes: tuple[Note, ...],
    ) -> Plan:
        whole = space(STAGE, population, choice.base)
        rng = Random(lot(self.seed, population))
        first = not sample.get()  # of the rounds that share this knowledge: there is one best combination
        joint = combined(problem, population, whole) if self.per_shape and first else None
        wanted = self.experiments - (joint is not None)
        around, proposals = whole, list[Config]()
        for around in classes(problem, population, whole, rng) if self.per_shape else [whole]:
            proposals = _ask(around, self._remembered(around.points), wanted, rng)
            if proposals:
                break
        if not proposals and joint is None:
            raise exhausted(STAGE, choice.base)
        why = f"proposed by TPE from {len(around.points)} judged configurations"
        single = [tuned(around.changes(config), (0.0, 0.0), 50.0, why) for config in proposals]
        experiments = (*([joint] if joint else []), *single)
        return Plan((why,), experiments, portfolio(experiments), "designer=tune")

    def _remembered(self, points: tuple[Point, ...]) -> list[Point]:
        if len(points) <= self.memory:
            return list(points)
        best = sorted(points, key=lambda point: point.score_us or math.inf)[: self.memory // 3]
        kept = {point.id for point in [*best, *points[-(self.memory - len(best)) :]]}
        return [point for point in points if point.id in kept]


def _ask(around: Space, points: list[Point], count: int, rng: Random) -> list[Config]:
    """Distinct untried configurations. TPE may repeat itself; chance fills up what it leaves."""
    found: dict[tuple[str, ...], Config] = {}
    with _quiet():
        study = _study(around, points, rng.randrange(2**32))
        for _ in range(8 * count):
            trial = study.ask()
            config = {t.name: str(trial.suggest_categorical(t.name, t.options)) for t in around.tunables}
            if around.ruled_out(config):
                study.tell(trial, _worst(points))
            if around.untried(config):
                found.setdefault(around.key(config), config)
            if len(found) == count:
                break
    for stranger in around.strangers(rng, count):
        if len(found) < count:
            found.setdefault(around.key(stranger), stranger)
    return list(found.values())


def _study(around: Space, points: list[Point], seed: int) -> "Study":
    import optuna

    sampler = optuna.samplers.TPESampler(multivariate=True, constant_liar=True, n_startup_trials=10, seed=seed)
    study = optuna.create_study(sampler=sampler)
    distributions: dict[str, optuna.distributions.BaseDistribution] = {
        t.name: optuna.distributions.CategoricalDistribution(t.options) for t in around.tunables
    }
    worst = _worst(points)
    for point in points:
        if point.score_us is None and not point.failed:
            continue
        study.add_trial(
            optuna.trial.create_trial(
                params=dict(point.values),
                distributions=distributions,
                value=math.log(point.score_us) if point.score_us else worst,
            )
        )
    return study


def _worst(points: list[Point]) -> float:
    return max((math.log(point.score_us) for point in points if point.score_us), default=0.0) + _FAILED


@contextmanager
def _quiet() -> Iterator[None]:
    """Optuna without its log lines and its warnings about experimental options."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(before)
