"""Optuna's TPE over the tunables of a base; the study is rebuilt each time from the judged kernels."""

import math
import warnings
from random import Random

from ksflow.kernels.source.causes import Point
from ksflow.kernels.source.families import Config, Space

_ASKED = 8  # factor on the wanted number: TPE repeats itself, and proposes failures


def propose(space: Space, points: list[Point], count: int, rng: Random) -> list[Config]:
    """Return distinct untried configurations, filled up at random; probable failures are dropped at random."""
    import optuna  # a designer with a model starts without it

    configs: dict[tuple[str, ...], Config] = {}
    slowest = max((math.log(point.score_us) for point in points if point.score_us), default=0.0)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        some_only = any(tunable.when for tunable in space.tunables)  # then trials differ in their tunables
        sampler = optuna.samplers.TPESampler(
            multivariate=True, group=some_only, constant_liar=True, seed=rng.randrange(2**32)
        )
        study = optuna.create_study(sampler=sampler)
        choices: dict[str, optuna.distributions.BaseDistribution] = {
            t.name: optuna.distributions.CategoricalDistribution(t.options) for t in space.tunables
        }
        for point in points:
            if point.score_us is not None or point.failed:
                value = math.log(point.score_us) if point.score_us else slowest
                fails, values = {"fails": float(point.failed)}, dict(space.effective_config(point.values))
                study.add_trial(
                    optuna.trial.create_trial(
                        params=values,
                        distributions={name: choices[name] for name in values},
                        value=value,
                        constraints=fails,
                    )
                )
        for _ in range(_ASKED * count):
            trial = study.ask()
            config: dict[str, str] = {}
            for tunable in space.tunables:
                if tunable.when is None or tunable.when.holds(config):
                    config[tunable.name] = str(trial.suggest_categorical(tunable.name, tunable.options))
            if space.is_untried(config) and rng.random() >= space.failures.risk(config):
                configs.setdefault(space.key(config), config)
            elif space.ruled_out(config) or space.failures.bars(config):
                trial.set_constraint("fails", 1.0)
                study.tell(trial, slowest)
            if len(configs) == count:
                break
    for stranger in space.sample_untried(rng, count):
        if len(configs) < count:
            configs.setdefault(space.key(stranger), stranger)
    return list(configs.values())
