"""A writer whose kernel is read by a verifier before it is compiled; what that finds goes back to the writer once."""

from dataclasses import replace

import structlog

from ksflow.errors import KsflowError, stage_boundary
from ksflow.protocols import (
    NO_CONTEXT,
    Composite,
    Context,
    VerifyFunction,
    WriteFunction,
    Writer,
    call_context,
    call_stage,
    repairs,
)
from ksflow.records import Draft, Experiment, Kernel, Note, Origin, Problem, Review, Selection, Trial, schema


class Verified(Composite, Writer):
    """Has a verifier read each new kernel. The kernel stays as it is if verifier or writer fails."""

    def __init__(self, llm: WriteFunction, verifier: VerifyFunction) -> None:
        """`llm` is any writer that can be given a kernel to mend; one that repairs nothing is not verified."""
        self.llm, self.verifier = llm, verifier
        self.repairs = repairs(llm)
        self.parts = (self.llm, verifier)

    def __call__(
        self,
        problem: Problem,
        selection: Selection,
        experiment: Experiment,
        notes: tuple[Note, ...],
        failed: Trial | None = None,
        context: Context = NO_CONTEXT,
    ) -> Kernel:
        asked = (problem, selection, experiment, notes)
        kernel = schema.check_answer(Kernel, call_stage(self.llm, *asked, failed, context=context))
        if not self.repairs:
            return kernel
        try:
            with stage_boundary("verifier"):
                review = schema.check_answer(Review, self.verifier(*asked, kernel, failed))
            context.reviewed(review)
            if not review.findings:
                return kernel
            draft = Draft("draft", Origin.EXPERIMENT, kernel=kernel, review=review, repaired=failed)
            with stage_boundary("writer"):
                second = schema.check_answer(Kernel, call_stage(self.llm, *asked, draft, context=context))
            context.reviewed(replace(review, mended=second.files != kernel.files))
            return second
        except KsflowError as error:
            structlog.get_logger("ksflow.writer").info(
                "judged as it was first written", trial=call_context().about, reason=str(error)
            )
            return kernel
