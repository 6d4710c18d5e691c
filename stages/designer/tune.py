"""Optuna's TPE over the base's tunables. The population is its only memory: the study is rebuilt each time."""

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ksflow.protocols import lot
from ksflow.records import Choice, Note, Plan, Population, Problem, portfolio
from ksflow.stages.designer.space import Config, Point, Space, exhausted, space, tuned

if TYPE_CHECKING:
    from optuna import Study

STAGE = "designer=tune"
_FAILED = math.log(2)
"""A configuration that failed counts as twice as slow as the slowest that was right."""


class Tpe:
    """Five untried proposals of a multivariate TPE; three of them are run."""

    def __init__(self, experiments: int = 5, memory: int = 300, seed: int = 0) -> None:
        """`memory` bounds what the study is rebuilt from: the best third, and the newest."""
        self.experiments = experiments
        self.memory = memory
        self.seed = seed

    def __call__(
        self,
        problem: Problem,
        population: Population,
        choice: Choice,
        notes: tuple[Note, ...],
    ) -> Plan:
        around = space(STAGE, population, choice.base)
        proposals = _ask(
            around,
            self._remembered(around.points),
            self.experiments,
            lot(self.seed, population),
        )
        if not proposals:
            raise exhausted(STAGE, choice.base)
        why = f"proposed by TPE from {len(around.points)} judged configurations"
        experiments = tuple(tuned(around.changes(config), (0.0, 0.0), 50.0, why) for config in proposals)
        return Plan((why,), experiments, portfolio(experiments))

    def _remembered(self, points: tuple[Point, ...]) -> list[Point]:
        if len(points) <= self.memory:
            return list(points)
        best = sorted(points, key=lambda point: point.score_us or math.inf)[: self.memory // 3]
        kept = {point.id for point in [*best, *points[-(self.memory - len(best)) :]]}
        return [point for point in points if point.id in kept]


def _ask(around: Space, points: list[Point], count: int, seed: str) -> list[Config]:
    """Distinct untried configurations. TPE may repeat itself; chance fills up what it leaves."""
    from random import Random

    rng = Random(seed)
    found: dict[tuple[str, ...], Config] = {}
    with _quiet():
        study = _study(around, points, rng.randrange(2**32))
        for _ in range(8 * count):
            trial = study.ask()
            config = {t.name: str(trial.suggest_categorical(t.name, t.options)) for t in around.tunables}
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
    scores = [math.log(point.score_us) for point in points if point.score_us]
    worst = max(scores, default=0.0) + _FAILED
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
