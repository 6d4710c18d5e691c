"""The space of a base kernel's tunables for designers that tune, experiments that assign tunables, and Optuna's TPE."""

import math
import warnings
from collections.abc import Iterable
from dataclasses import replace
from random import Random

from ksflow.errors import StageError, one_line
from ksflow.kernels.problem.texts import START_REMEDY
from ksflow.kernels.source.causes import ENOUGH, Point
from ksflow.kernels.source.families import Config, Space, comparable_to, families, values_in
from ksflow.kernels.source.families import space as space_of
from ksflow.kernels.source.tunables import DISPATCH
from ksflow.records import Experiment, Note, Origin, Population, Trial
from ksflow.search.effects import lessons

_ASKED = 8  # factor on the wanted number: TPE repeats itself, and proposes failures

_REASON = 300  # letters of the reason for which a kernel was rejected
_NAMED = 4  # tunables that an error names


def space(stage: str, population: Population, base: Trial, notes: Iterable[Note] = ()) -> Space:
    """Return the space around `base`, from kernels with its dispatch lines. StageError if it declares no tunables."""
    kernel = base.kernel
    if kernel is None or not values_in(kernel):
        _expect_start(stage, population)
        way = "select one that does and has values left to try, as selector=fastest does while there is one"
        if not families(population):
            way = (
                "declare some where numbers are assigned (`X = 8;  // tune: 4 8 16`), or have a model write (llm=NAME)"
            )
            if {trial.kernel.language for trial in population.trials if trial.kernel} <= {"python"}:
                raise StageError(stage, f"this problem has no kernel to start from: {START_REMEDY}")
        raise StageError(stage, f"kernel {base.id} declares no tunables, and this designer changes nothing else: {way}")
    return replace(space_of(kernel, comparable_to(population, kernel)), lessons=lessons(notes, population, kernel))


def _expect_start(stage: str, population: Population) -> None:
    """StageError where no accepted kernel declares tunables, and a kernel to start from was rejected."""
    if any(trial.score_us and values_in(trial.kernel) for trial in population.trials):
        return
    for trial in reversed(population.trials):
        said = None if trial.baseline or trial.origin is not Origin.SEED else trial.evaluation
        if said and not said.accepted:
            reason = one_line(f"{said.verdict}: {said.reason}", _REASON)
            raise StageError(stage, f"your start kernel {trial.id} was rejected: {reason}")


def assignment_experiment(changes: Config, why: str) -> Experiment:
    """Return an experiment that assigns tunables, without a prediction."""
    assigned = ", ".join(
        f"{value} {name.removeprefix('dispatch: ')}" if name.startswith(DISPATCH) else f"{name}={value}"
        for name, value in changes.items()
    )
    rubric = f"the source assigns {assigned}; right on every case and faster than the base"
    return Experiment(f"{assigned}: {why}", rubric, (0.0, 0.0), 50.0, changes)


def exhausted_error(stage: str, base: Trial) -> StageError:
    """Return the error of a designer without anything left to propose."""
    names = list(values_in(base.kernel))
    some = f"{', '.join(names[:_NAMED])}{f' and {len(names) - _NAMED} more' * (len(names) > _NAMED)}"
    return StageError(
        stage,
        f"nothing is left to vary in {base.id}: every configuration of its tunables ({some}) was tried, or shares the "
        f"cause of {ENOUGH} failures; have a model write (llm=NAME), add `tune:` values, or add a "
        "seed",
    )


def propose(space: Space, points: list[Point], count: int, rng: Random) -> list[Config]:
    """Return distinct untried configurations by TPE over the judged kernels, filled up at random; probable failures are
    dropped at random.
    """
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
