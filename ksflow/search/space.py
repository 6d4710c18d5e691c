"""The space of a base kernel's tunables for designers that tune, and experiments that assign tunables."""

from collections.abc import Iterable
from dataclasses import replace

from ksflow.errors import StageError
from ksflow.kernels.source.causes import ENOUGH
from ksflow.kernels.source.families import Config, Space, comparable_to, families, values_in
from ksflow.kernels.source.families import space as space_of
from ksflow.kernels.source.tunables import DISPATCH
from ksflow.records import Experiment, Note, Population, Trial
from ksflow.search.measured_notes import lessons

_NAMED = 4  # tunables that an error names


def space(stage: str, population: Population, base: Trial, notes: Iterable[Note] = ()) -> Space:
    """Return the space around `base`, from kernels with its dispatch lines, without values that never worked by notes.

    Raises StageError if it declares no tunables.
    """
    kernel = base.kernel
    if kernel is None or not values_in(kernel):
        way = "select one that does and has values left to try, as selector=fastest does while there is one"
        if not families(population):
            way = (
                "declare some where numbers are assigned (`X = 8;  // tune: 4 8 16`), or have a model write (llm=NAME)"
            )
            if {trial.kernel.language for trial in population.trials if trial.kernel} <= {"python"}:
                start = "write seeds/cpu/01.cpp (its signature: `problem show`), or have a model write (llm=NAME)"
                raise StageError(stage, f"this problem has no kernel to start from: {start}")
        raise StageError(stage, f"kernel {base.id} declares no tunables, and this designer changes nothing else: {way}")
    return replace(space_of(kernel, comparable_to(population, kernel)), lessons=lessons(notes, population, kernel))


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
