"""Optuna's TPE over the tunables of a base, its study rebuilt each time from what was judged."""

import math
import warnings
from random import Random

from ksflow.source.causes import Point
from ksflow.source.families import Config, Space

_FAILED = math.log(2)
"""A configuration that failed counts as twice as slow as the slowest that was right."""


def propose(space: Space, points: list[Point], count: int, rng: Random) -> list[Config]:
    """Distinct untried configurations. TPE may repeat itself; chance fills up what it leaves."""
    import optuna  # here: a designer that is a model starts without it

    found: dict[tuple[str, ...], Config] = {}
    worst = max((math.log(point.score_us) for point in points if point.score_us), default=0.0) + _FAILED
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        seed = rng.randrange(2**32)
        sampler = optuna.samplers.TPESampler(multivariate=True, constant_liar=True, n_startup_trials=10, seed=seed)
        study = optuna.create_study(sampler=sampler)
        distributions: dict[str, optuna.distributions.BaseDistribution] = {
            t.name: optuna.distributions.CategoricalDistribution(t.options) for t in space.tunables
        }
        for point in points:
            if point.score_us is not None or point.failed:
                value = math.log(point.score_us) if point.score_us else worst
                done = optuna.trial.create_trial(params=dict(point.values), distributions=distributions, value=value)
                study.add_trial(done)
        for _ in range(8 * count):
            trial = study.ask()
            config = {t.name: str(trial.suggest_categorical(t.name, t.options)) for t in space.tunables}
            if space.ruled_out(config):
                study.tell(trial, worst)
            if space.untried(config):
                found.setdefault(space.key(config), config)
            if len(found) == count:
                break
    for stranger in space.sample_untried(rng, count):
        if len(found) < count:
            found.setdefault(space.key(stranger), stranger)
    return list(found.values())
