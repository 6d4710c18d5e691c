"""The space that a base kernel's tunables span, for the designers that tune, and experiments that assign tunables."""

from ksflow.errors import StageError
from ksflow.records import Experiment, Population, Trial
from ksflow.source.families import Config, Space, declared, family, lines_of
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
    lines = lines_of(text)
    return space_of(text, tuple(member for member in family(population, text) if member.lines == lines))


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
