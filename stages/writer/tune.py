"""Rewrites the values of tunables. It writes nothing that the base kernel does not declare."""

from collections.abc import Mapping
from dataclasses import replace

from ksflow.errors import StageError
from ksflow.kernels.source.answer import with_main
from ksflow.kernels.source.tunables import DISPATCH, assign, dispatches, effective_values, tunables, values
from ksflow.protocols import Writer
from ksflow.records import Experiment, Kernel, Note, Problem, Selection, Trial

STAGE = "writer=tune"


class Tune(Writer):
    """Assigns the experiment's `changes` in the base's main file, for all cases or by its dispatch lines."""

    repairs = False
    """There is no rule for what failed."""

    def __call__(
        self,
        problem: Problem,
        selection: Selection,
        experiment: Experiment,
        notes: tuple[Note, ...],
        failed: Trial | None = None,
    ) -> Kernel:
        if failed is not None:
            raise StageError(STAGE, f"{failed.id} cannot be repaired by rule; use loop.repairs=0 or writer=llm")
        if not experiment.changes:
            raise StageError(
                STAGE,
                "the experiment assigns no tunables (its `changes`); use designer=rules, tune or random, or writer=llm",
            )
        base = selection.base.kernel
        if base is None:
            raise StageError(STAGE, f"{selection.base.id} has no kernel to rewrite")
        before = values(base.main)
        idle = _idle(base.main, experiment.changes)
        wanted = {name: value for name, value in experiment.changes.items() if name not in idle}
        if not wanted:
            raise StageError(STAGE, f"{selection.base.id} does not read {', '.join(idle)} with its other values")
        try:
            text = assign(base.main, wanted)
        except ValueError as error:
            raise StageError(STAGE, f"{selection.base.id}: {error}") from error
        changes = [f"{name}: not read here, left at {before[name]}" for name in idle]
        for name, value in wanted.items():
            now = f"{name}: {before[name]} -> {value}" if name in before else f"{name}: {value}"
            changes.append(now if value else f"no {name}")
        return replace(base, files=with_main(base, text), report="; ".join(changes))


def _idle(text: str, changes: Mapping[str, str]) -> list[str]:
    """Return the changed tunables that no case reads, given the values of the others."""
    if dispatches(text) or any(name.startswith(DISPATCH) for name in changes):
        return []
    counts = effective_values(tunables(text), {**values(text), **changes})
    return [name for name in changes if name in values(text) and name not in counts]
