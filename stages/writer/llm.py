"""A model writes the kernel: the whole file where that is short, else edits; each is the way back of the other."""

from ksflow.lm import Model
from ksflow.lm.program import Unusable
from ksflow.lm.replay import Replay
from ksflow.prompts.brief import count
from ksflow.prompts.findings import FINDINGS
from ksflow.protocols import WriteFunction
from ksflow.records import Experiment, Kernel, Note, Problem, Selection, Target, Trial
from ksflow.stages.writer.diff import CODE, Diff
from ksflow.stages.writer.rewrite import Rewrite

EDIT_ABOVE = 10_000
"""Tokens of a file above which it is edited, unless a stage says otherwise."""


class LlmWriter(Rewrite):
    """`writer=rewrite` for short files and `writer=diff` for long ones; its calls are recorded under these names.

    A file is edited where it has more than `edit_above` tokens, or where the whole does not fit an answer of the model.
    Where no answer of one kind could be used, the other is asked for, if it fits. Its prompt, as a DSPy program and for
    `prompt`, is that of `writer=rewrite`.
    """

    def __init__(  # noqa: PLR0913 - each is a key of the configuration
        self,
        lm: Model | None = None,
        attempts: int = 3,
        prompt: str | None = None,
        findings: int = FINDINGS,
        target: Target | None = None,
        seed: int = 0,
        edit_above: int = EDIT_ABOVE,
        style: str = "blocks",
        code: int = CODE,
    ) -> None:
        """`style` and `code`: as in `Diff`. The rest is as for `Rewrite`."""
        super().__init__(lm, attempts, prompt, findings, target, seed=seed)
        self.edits = Diff(lm, attempts, None, style, findings, target, seed, code)
        self.edit_above = edit_above

    def __call__(
        self,
        problem: Problem,
        selection: Selection,
        experiment: Experiment,
        notes: tuple[Note, ...],
        failed: Trial | None = None,
    ) -> Kernel:
        start = (failed.kernel if failed else None) or selection.base.kernel
        asked = (problem, selection, experiment, notes, failed)
        first, *others = self._in_order(start.main if start else "")
        try:
            return first(*asked)
        except Unusable:
            if not others:
                raise
            return others[0](*asked)

    def _in_order(self, text: str) -> list[WriteFunction]:
        """Who writes the next version of a file, and who does if that one cannot."""
        whole, fits = super().__call__, self.fits(text)
        if isinstance(engine := self.program.model.engine, Replay):
            edited = engine.first_of([self.program.label, self.edits.program.label]) == self.edits.program.label
        else:
            edited = not fits or count(text) > self.edit_above
        return [self.edits, *([whole] if fits else [])] if edited else [whole, self.edits]
