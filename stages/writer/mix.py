"""Two writers: one rewrites tunables by rule, the other writes code."""

from ksflow.protocols import NO_CONTEXT, Composite, Context, Writer, call_stage
from ksflow.records import Experiment, Kernel, Note, Problem, Selection, Trial


class MixWriter(Composite, Writer):
    """An experiment that assigns tunables goes to `tune`; everything else, and every repair, to `llm`."""

    def __init__(self, tune: Writer, llm: Writer) -> None:
        """Both are any writer; the names say what they are for."""
        self.tune = tune
        self.llm = llm
        self.parts = (llm,)

    def __call__(
        self,
        problem: Problem,
        selection: Selection,
        experiment: Experiment,
        notes: tuple[Note, ...],
        failed: Trial | None = None,
        context: Context = NO_CONTEXT,
    ) -> Kernel:
        writer = self.tune if experiment.changes and failed is None else self.llm
        return call_stage(writer, problem, selection, experiment, notes, failed, context=context)
