"""What the model writers share: what they tell the model, and what becomes of its answer."""

from typing import Any

import dspy

from ksflow.errors import StageError
from ksflow.lm.program import Inquiry, Program
from ksflow.prompts import render
from ksflow.prompts.brief import SLOW, STABLE, VOLATILE, Section
from ksflow.prompts.failures import failure
from ksflow.prompts.findings import findings, more_findings
from ksflow.prompts.target import describe
from ksflow.protocols import Writer
from ksflow.records import Choice, Experiment, Kernel, Note, Problem, Target, Trial
from ksflow.source.answer import check, rewritten

CRAFT = """
    The findings are the source of truth about the hardware: instructions, sizes, layouts and limits come from them and
    from the code that is known to work, not from memory. An intrinsic that appears in neither is a risk: use it only if
    you are certain of its name and meaning.

    A judge compares every output of the kernel with a high-precision oracle, on secret inputs and fresh data at each
    timed call, within an error bound derived from the arithmetic. So accumulate as the task demands, handle every shape
    (sizes that no tile divides too) and special values as the statement says, write each output element exactly once in
    the end, and keep no result from one call to the next. While it runs, a kernel looks at its arguments and nothing
    else: one that reads files, the clock or the process around it is rejected as a cheat.

    Where a number is a choice (a tile, an unroll factor), declare it on one line with the values worth trying, so
    that a tuner can search it: `constexpr int MR = 8;  // tune: 4 6 8 12 | tile: rows of the register tile` (with `#`
    in Python). The lines by which device code says how it is launched are part of the kernel: keep them true. The
    outcome must be complete: no placeholders, no elisions. Comments alone are no change.
"""
"""The part of a writer's instructions that does not depend on the form of its answer."""

_REPORT = 20_000  # characters
_MORE_FINDINGS = 3_000  # tokens
_MOST_KB = 200  # of the new file
REPORT = (
    "three to ten sentences for the next engineer: the techniques used, with the sizes chosen, how each point of the "
    "rubric is met, where you deviate from the experiment and why, and what is uncertain"
)


class Given(dspy.Signature):  # type: ignore[misc]
    """What every writer is given."""

    target: str = dspy.InputField(desc="the machine that kernels are built for and judged on")
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
    more_findings: str = dspy.InputField(desc="what else is known that bears on this experiment")
    failed: str = dspy.InputField(desc="a failed attempt at this experiment to repair, with the judge's evidence")
    failed_code: str = dspy.InputField(desc="the main file of the failed attempt")
    report: str = dspy.OutputField(desc=REPORT)


class ModelWriter(Writer):
    """A writer that asks a model. Its `code` makes the new main file of an answer."""

    def __init__(self, program: Program, findings: int, target: Target | None) -> None:
        """`findings`: how many tokens of notes the prompt has at most. `target`: what kernels are for."""
        self.program, self.findings, self.target = program, findings, target

    def __call__(
        self,
        problem: Problem,
        choice: Choice,
        experiment: Experiment,
        notes: tuple[Note, ...],
        failed: Trial | None = None,
    ) -> Kernel:
        asked = self.question(problem, choice, experiment, notes, failed)
        made: Kernel = self.program.ask(asked, key=choice.rationale)
        return made

    def question(
        self,
        problem: Problem,
        choice: Choice,
        experiment: Experiment,
        notes: tuple[Note, ...],
        failed: Trial | None = None,
    ) -> Inquiry:
        """What the model is asked, and how its answer becomes a kernel. StageError without a kernel to start from."""
        base, attempt = choice.base.kernel, failed.kernel if failed else None
        if base is None:
            raise StageError("writer", f"{choice.base.id} has no kernel to start from")
        start = attempt or base

        def accept(answer: dict[str, Any]) -> Kernel:
            text = self.code(answer, start)
            if len(answer["report"]) > _REPORT:
                raise ValueError(f"report: {len(answer['report'])} characters are more than {_REPORT}")
            kernel = rewritten(start, text, problem.languages, answer["report"].strip())
            entry = "" if problem.called else "custom_kernel"
            check(kernel, [base, *([attempt] if attempt else [])], _MOST_KB, entry)
            return kernel

        told = failure(failed)
        same = "(the base itself)" if choice.reference.id == choice.base.id else ""
        about = render.about(problem, base)
        tried = f"{experiment.description}\n{experiment.rubric}\n{told}"
        reference = choice.reference
        sections = [
            Section("target", STABLE, describe(self.target, problem)),
            Section("task", STABLE, render.task(problem)),
            Section("reference_implementation", STABLE, problem.shown, priority=2),
            Section("interface", STABLE, render.interface(problem, start)),
            Section("findings", STABLE, lambda room: findings(notes, room, about), self.findings, priority=3),
            Section("base_code", SLOW, base.main),
            Section("other_files", SLOW, render.others(start)),
            Section("base_analysis", SLOW, render.analysis(choice.base, choice.base_step), priority=1),
            Section("reference_code", SLOW, same or render.listing(reference.kernel), priority=2),
            Section("reference_analysis", SLOW, same or render.analysis(reference, choice.reference_step), priority=2),
            Section("experiment", VOLATILE, render.experiment(experiment)),
            Section(
                "more_findings",
                VOLATILE,
                lambda room: more_findings(notes, (self.findings, about), room, tried),
                _MORE_FINDINGS,
                priority=3,
            ),
            Section("failed", VOLATILE, told),
            Section("failed_code", VOLATILE, attempt.main if attempt else "(none)"),
            *self.more_sections(attempt is not None),
        ]
        return Inquiry(self.program.brief(sections), accept)

    def code(self, answer: dict[str, Any], start: Kernel) -> str:
        """The new main file; `start` is the kernel whose language and files it has. ValueError says what is wrong."""
        raise NotImplementedError

    def more_sections(self, repairs: bool) -> list[Section]:
        """Sections beside those of `Given`; `repairs`: there is a failed kernel to repair."""
        return []
