"""A model writes the kernel: the whole file where that is short, else edits; each is the way back of the other."""

from dataclasses import dataclass

from ksflow.lm.program import Unusable
from ksflow.lm.prompts.brief import count
from ksflow.lm.replay import Replay
from ksflow.protocols import WriteFunction
from ksflow.records import Experiment, Kernel, Note, Problem, Selection, Trial
from ksflow.stages.writer.diff import CODE, Diff
from ksflow.stages.writer.rewrite import Rewrite


@dataclass(eq=False)
class LlmWriter(Rewrite):
    """`writer=rewrite` for short files and `writer=diff` for long ones; its calls are recorded under these names.

    A file is edited where it has more than `edit_above` tokens, or where the whole does not fit an answer of the model.
    Where no answer of one kind could be used, the other is asked for, if it fits. Its prompt, as a DSPy program and for
    `prompt`, is that of `writer=rewrite`.
    """

    edit_above: int = 10_000
    """Tokens of a file above which it is edited."""
    style: str = "blocks"
    """The form of edits: as in `Diff`."""
    code: int = CODE
    """Tokens of the file to edit: as in `Diff`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        shared = (self.lm, self.attempts, None, self.findings, self.target)
        self.edits = Diff(*shared, self.style, self.code, seed=self.seed)

    def __call__(
        self,
        problem: Problem,
        selection: Selection,
        experiment: Experiment,
        notes: tuple[Note, ...],
        failed: Trial | None = None,
    ) -> Kernel:
        asked = (problem, selection, experiment, notes, failed)
        first, *others = self._in_order(selection, failed)
        try:
            return first(*asked)
        except Unusable:
            if not others:
                raise
            return others[0](*asked)

    def asked_first(self, selection: Selection, failed: Trial | None = None) -> "Diff | LlmWriter":
        """Return the stage whose question is asked first: that of edits, or this one for the whole file."""
        return self.edits if self._in_order(selection, failed)[0] is self.edits else self

    def _in_order(self, selection: Selection, failed: Trial | None) -> list[WriteFunction]:
        """Return who writes the next version of a file, and who does if that one cannot."""
        start = (failed.kernel if failed else None) or selection.base.kernel
        text = start.main if start else ""
        whole, fits = super().__call__, self.fits(text)
        if isinstance(engine := self.program.model.engine, Replay):
            edited = engine.first_of([self.program.label, self.edits.program.label]) == self.edits.program.label
        else:
            edited = not fits or count(text) > self.edit_above
        return [self.edits, *([whole] if fits else [])] if edited else [whole, self.edits]
