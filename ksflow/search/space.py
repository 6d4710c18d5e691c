"""The space that a base kernel's tunables span, for the designers that tune, and experiments that assign tunables."""

import math
from collections.abc import Sequence

from ksflow.errors import StageError
from ksflow.records import Experiment, Population, Trial
from ksflow.source.families import Config, Point, Space, comparable_to, declared
from ksflow.source.families import space as space_of
from ksflow.source.tunables import DISPATCH


def space(stage: str, population: Population, base: Trial) -> Space:
    """The space around `base`, from the kernels with its dispatch lines. StageError when it declares no tunables."""
    text = base.kernel.main if base.kernel else ""
    if not declared(text):
        raise StageError(
            stage,
            f"kernel {base.id} declares no tunables (`X = 8  // tune: 4 8 16`); "
            "select one that does (selector=fastest) or use designer=llm",
        )
    return space_of(text, comparable_to(population, text))


def remembered(points: Sequence[Point], most: int) -> list[Point]:
    """At most so many points of a long run, in their order: the best third, and the newest."""
    if len(points) <= most:
        return list(points)
    best = sorted(points, key=lambda point: point.score_us or math.inf)[: most // 3]
    kept = {point.id for point in [*best, *points[-(most - len(best)) :]]}
    return [point for point in points if point.id in kept]


def assignment_experiment(changes: Config, why: str) -> Experiment:
    """An experiment that assigns tunables, without a prediction."""
    assigned = ", ".join(
        f"{value} {name.removeprefix('dispatch: ')}" if name.startswith(DISPATCH) else f"{name}={value}"
        for name, value in changes.items()
    )
    rubric = f"the source assigns {assigned}; right on every case and faster than the base"
    return Experiment(f"{assigned}: {why}", rubric, (0.0, 0.0), 50.0, changes)


def exhausted_error(stage: str, base: Trial) -> StageError:
    """What a designer raises that has nothing left to propose."""
    return StageError(
        stage, f"every configuration of {base.id}'s tunables was tried; declare more values or add a seed"
    )
