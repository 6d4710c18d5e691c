"""What the model writers share: what they tell the model, and what becomes of its answer."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import dspy

from ksflow.errors import StageError
from ksflow.lm import render
from ksflow.lm.failures import failure
from ksflow.lm.program import Inquiry
from ksflow.records import Choice, Experiment, Kernel, Note, Problem, Trial
from ksflow.source.answer import check, rewritten

CRAFT = """
    The findings are the source of truth about the hardware: instructions, sizes, layouts and limits come from them and
    from the code that is known to work, not from memory. An intrinsic that appears in neither is a risk: use it only if
    you are certain of its name and meaning.

    A judge compares every output of the kernel with a high-precision oracle, on secret inputs and fresh data at each
    timed call, within an error bound derived from the arithmetic. So accumulate as the task demands, handle every shape
    (sizes that no tile divides too) and special values as the statement says, write each output element exactly once in
    the end, and keep no result from one call to the next. Reading the reference implementation, the clock or anything
    outside the arguments is a cheat and is rejected.

    Where a number is a choice (a tile, an unroll factor), declare it on one line with the values worth trying, so
    that a tuner can search it: `constexpr int MR = 8;  // tune: 4 6 8 12 | tile: rows of the register tile` (with `#`
    in Python). The lines by which device code says how it is launched are part of the kernel: keep them true. The
    outcome must be complete: no placeholders, no elisions. Comments alone are no change.
"""
"""The part of a writer's instructions that does not depend on the form of its answer."""

_REPORT = 20_000  # characters
_MOST_KB = 200  # of the new file
REPORT = (
    "three to ten sentences for the next engineer: the techniques used, with the sizes chosen, how each point of the "
    "rubric is met, where you deviate from the experiment and why, and what is uncertain"
)


class Given(dspy.Signature):  # type: ignore[misc]
    """What every writer is given."""

    task: str = dspy.InputField(desc="the task, its numerical contract, the shapes and the score")
    reference_implementation: str = dspy.InputField(desc="what the task computes; not the judge")
    interface: str = dspy.InputField(desc="language, file, what the file must define; other languages")
    findings: str = dspy.InputField(
        desc="what is known about the hardware and the techniques, with how far to trust it"
    )
    base_code: str = dspy.InputField(desc="the main file of the kernel to change; it works")
    other_files: str = dspy.InputField(desc="the kernel's other files; they stay as they are")
    base_analysis: str = dspy.InputField(desc="how the base came about, and its times per shape")
    reference_code: str = dspy.InputField(desc="the kernel to learn from; it works")
    reference_analysis: str = dspy.InputField(desc="how the reference came about, and its times per shape")
    experiment: str = dspy.InputField(desc="what to do, and the rubric it is held against")
    failed: str = dspy.InputField(desc="a failed attempt at this experiment to repair, with the judge's evidence")
    failed_code: str = dspy.InputField(desc="the main file of the failed attempt")
    report: str = dspy.OutputField(desc=REPORT)


@dataclass(frozen=True)
class WriteRequest:
    """One call of a writer, as the protocol has it."""

    problem: Problem
    choice: Choice
    experiment: Experiment
    notes: tuple[Note, ...]
    failed: Trial | None

    @property
    def base(self) -> Kernel:
        """The kernel to change. StageError when there is none."""
        kernel = self.choice.base.kernel
        if kernel is None:
            raise StageError("writer", f"{self.choice.base.id} has no kernel to start from")
        return kernel

    @property
    def attempt(self) -> Kernel | None:
        """The failed kernel, where there is one to repair."""
        return self.failed.kernel if self.failed else None

    @property
    def start(self) -> Kernel:
        """The kernel whose language and files the answer has unless it says otherwise."""
        return self.attempt or self.base

    def inputs(self, findings: int) -> dict[str, str]:
        """The fields of `Given`, with at most `findings` tokens of notes."""
        choice, base = self.choice, self.base
        failed = failure(self.failed)
        about = render.about(self.problem, self.start, self.experiment, failed)
        same = "(the base itself)" if choice.reference.id == choice.base.id else ""
        return {
            "task": render.task(self.problem),
            "reference_implementation": self.problem.shown,
            "interface": render.interface(self.problem, self.start),
            "findings": render.findings(self.notes, findings, about),
            "base_code": base.main,
            "other_files": render.others(self.start),
            "base_analysis": render.analysis(choice.base, choice.base_step),
            "reference_code": same or render.listing(choice.reference.kernel),
            "reference_analysis": same or render.analysis(choice.reference, choice.reference_step),
            "experiment": render.experiment(self.experiment),
            "failed": failed,
            "failed_code": self.attempt.main if self.attempt else "(none)",
        }


def inquiry(request: WriteRequest, findings: int, code: Callable[[dict[str, Any]], str], **more: str) -> Inquiry:
    """What a model is asked, and how its answer becomes the kernel with the main file that `code` makes of it.

    `findings`: tokens of notes in the prompt. `more`: inputs beside those of `Given`.
    """

    def accept(answer: dict[str, Any]) -> Kernel:
        text = code(answer)
        if len(answer["report"]) > _REPORT:
            raise ValueError(f"report: {len(answer['report'])} characters are more than {_REPORT}")
        kernel = rewritten(request.start, text, request.problem.languages, answer["report"].strip())
        entry = "" if request.problem.called else "custom_kernel"
        check(kernel, [given for given in (request.base, request.attempt) if given], _MOST_KB, entry)
        return kernel

    return Inquiry({**request.inputs(findings), **more}, accept)
