"""Rewrites the values of tunables. It writes nothing that the base kernel does not declare."""

from collections.abc import Mapping
from dataclasses import replace

from ksflow.errors import StageError
from ksflow.records import Choice, Experiment, Kernel, Note, Problem, Trial
from ksflow.source.answer import with_main
from ksflow.source.tunables import assign, values

STAGE = "writer=tune"


class Tune:
    """The base with the experiment's `changes` assigned in its main file, for all cases or by its dispatch lines."""

    repairs = False
    """There is no rule for what failed."""

    def __call__(
        self,
        problem: Problem,
        choice: Choice,
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
        base = choice.base.kernel
        if base is None:
            raise StageError(STAGE, f"{choice.base.id} has no kernel to rewrite")
        try:
            text = assign(base.main, experiment.changes)
        except ValueError as error:
            raise StageError(STAGE, f"{choice.base.id}: {error}") from error
        return replace(base, files=with_main(base, text), report=_report(values(base.main), experiment.changes))


def _report(before: Mapping[str, str], changes: Mapping[str, str]) -> str:
    return "; ".join(_said(name, value, before) for name, value in changes.items())


def _said(name: str, value: str, before: Mapping[str, str]) -> str:
    if name in before:
        return f"{name}: {before[name]} -> {value}"
    return f"{name}: {value}" if value else f"no {name}"
