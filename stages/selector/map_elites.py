"""MAP-Elites: the best kernel of every kind is kept, and any of them may be the next base.

Kernels are told apart by what they are, not by how fast they are. A cell is the kernels alike on every axis:

    language    cpp, triton, cuda, ...
    features    what the source shows: matrix cores, shared memory, vectors, ... (`ksflow/kernels/source/features.yaml`)
    structure   the names of the tunables, and the values of those that choose between forms of the code
"""

from collections.abc import Callable, Sequence
from random import Random

from ksflow.kernels.source.families import STRUCTURE, declared, has_untried
from ksflow.kernels.source.features import features
from ksflow.kernels.source.tunables import effective_values
from ksflow.protocols import NO_CONTEXT, Context
from ksflow.records import Kernel, Population, Presence, Problem, Selection, Trial

_AXES = ("language", "features", "structure")


class MapElites:
    """Base: the best of a cell drawn by chance, with something left to try. Reference: the best of another cell."""

    def __init__(self, axes: Sequence[str] = _AXES, seed: int = 0) -> None:
        """axes: what tells kernels apart (some of language, features, structure); fewer make fewer, larger cells."""
        if not axes or not set(axes) <= set(_AXES):
            raise ValueError(f"axes={list(axes)} must be some of {', '.join(_AXES)}")
        self.axes, self.seed = tuple(axes), seed
        self._cells: dict[str, tuple[str, ...]] = {}
        """Kernel's digest -> its cell."""

    def __call__(self, problem: Problem, population: Population, context: Context = NO_CONTEXT) -> Selection:
        rng = Random(context.seed(self.seed, population))
        cells: dict[tuple[str, ...], Trial] = {}
        for trial in population.ranked:
            if trial.kernel:
                cells.setdefault(self._cell(trial), trial)
        elites = list(cells.values())
        tunable = [trial for trial in elites if trial.kernel and declared(trial.kernel.main)]
        drawn = rng.sample(tunable or elites, len(tunable or elites))
        base = next((trial for trial in drawn if has_untried(population, trial)), drawn[0])
        reference = rng.choice([trial for trial in elites if trial is not base] or [base])
        cell = "; ".join(f"{axis}: {value}" for axis, value in zip(self.axes, self._cell(base), strict=True))
        rationale = f"{base.id} is the best of its cell ({cell}), one of {len(elites)} cells with a kernel"
        return population.choose(base.id, reference.id, rationale)

    def _cell(self, trial: Trial) -> tuple[str, ...]:
        """Return a kernel's cell, an entry for each axis."""
        assert trial.kernel is not None
        digest = trial.kernel.digest
        if digest not in self._cells:
            self._cells[digest] = tuple(_ON[axis](trial.kernel) for axis in self.axes)
        return self._cells[digest]


def _features(kernel: Kernel) -> str:
    present = (feature.name for feature in features(kernel) if feature.state is Presence.PRESENT)
    return ", ".join(present) or "none"


def _structure(kernel: Kernel) -> str:
    own = declared(kernel.main)
    counts = effective_values(own, {tunable.name: tunable.value for tunable in own})
    words = (f"{t.name}={t.value}" if t.kind in STRUCTURE and t.name in counts else t.name for t in own)
    return " ".join(sorted(words)) or "no tunables"


_ON: dict[str, Callable[[Kernel], str]] = {
    "language": lambda kernel: kernel.language,
    "features": _features,
    "structure": _structure,
}
