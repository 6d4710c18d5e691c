"""What the model writers share: what they tell the model, and what becomes of its answer."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import dspy

from ksflow.errors import StageError
from ksflow.kernels.source.answer import MORE_FILES, check, replace_main
from ksflow.lm.adapter import payload_of
from ksflow.lm.program import Inquiry, ModelStage
from ksflow.lm.prompts import excerpt, render
from ksflow.lm.prompts.brief import SLOW, STABLE, VOLATILE, Section, count
from ksflow.lm.prompts.difference import difference, reference_code
from ksflow.lm.prompts.failures import KEEP, failure
from ksflow.lm.prompts.findings import FINDINGS, findings, more_findings
from ksflow.lm.prompts.target import describe
from ksflow.protocols import Writer
from ksflow.records import Draft, Experiment, Kernel, Note, Problem, Selection, Target, Trial

CRAFT = """
    What the findings say was measured holds on this machine, and the code that you see works. Other instructions and
    intrinsics may be used as well: compiling verifies them. Where you cannot compile, the judge does, and a kernel that
    does not compile comes back with the compiler's output. So write names and operands exactly, and keep what is
    uncertain in one place, where it can be replaced. All gains are gains of speed: +100 % is twice as fast;
    -50 %, or a loss of 50 %, is half as fast.

    A judge compares every output of the kernel with a high-precision oracle, on secret inputs and fresh data at each
    timed call, within an error bound derived from the arithmetic. So accumulate as the task demands, handle every shape
    (sizes that no tile divides too) and special values as the statement says, write each output element exactly once in
    the end, and keep no result from one call to the next. While it runs, a kernel looks at its arguments and nothing
    else: one that reads files, the clock or the process around it is rejected as a cheat.

    Where a number is a choice (a tile, an unroll factor), declare it on one line with the values worth trying, so
    that a tuner can search it: `constexpr int MR = 8;  // tune: 4 6 8 12 | tile: rows of the register tile` (with `#`
    in Python; before the colon the kind: form, decode, pack, tile, block, vector, unroll, prefetch, precision, fuse,
    memory or compiler). One that the code reads only with certain values of others, declared above it, says so last:
    `| if FORM == outer or FORM == dot` (`==` and `!=`, joined by `or` or by `and`). The lines by which device code says
    how it is launched are part of the kernel: keep them true. The outcome must be complete: no placeholders, no
    elisions. Comments alone are no change; `tune:` lines that declare more, or other, values are one.
"""
"""The part of a writer's instructions that does not depend on the form of its answer."""

_LONG = 3_000  # tokens of a base from which on it is told as what differs from a failed attempt
_REFERENCE = 1_900  # tokens of the kernel to learn from, where it is told as what differs from the base
_REPORT = 20_000  # characters
_MORE_FINDINGS = 1_000  # tokens
_MOST_KB = 200  # of the new files
ONE_FILE = ("gpumode", "popcorn")  # formats whose service takes one file
REPORT = (
    "three to ten sentences for the next engineer: the techniques used, with the sizes chosen, how each point of the "
    "rubric is met, where you deviate from the experiment and why, and what is uncertain"
)


class WriterSignature(dspy.Signature):  # type: ignore[misc]
    """What every writer is given."""

    target: str = dspy.InputField(desc="the machine that kernels are built for and judged on")
    task: str = dspy.InputField(desc="the task, its numerical contract, the shapes and the score")
    reference_implementation: str = dspy.InputField(desc="what the task computes; not the judge")
    interface: str = dspy.InputField(desc="language, file, what the file must define; other languages")
    findings: str = dspy.InputField(
        desc="what is known about the hardware and the techniques, with how far to trust it"
    )
    base_code: str = dspy.InputField(desc="the main file of the kernel to change; it works")
    other_files: str = dspy.InputField(desc="the kernel's other files, and how to change them")
    base_analysis: str = dspy.InputField(desc="how the base came about; its times, roofline and bound per shape")
    reference_code: str = dspy.InputField(desc="the kernel to learn from, or how it differs from the base; it works")
    reference_analysis: str = dspy.InputField(
        desc="why the reference was chosen, how it came about, and its times per shape"
    )
    standing: str = dspy.InputField(desc="the best so far and the baselines to beat")
    experiment: str = dspy.InputField(
        desc="what to do, the rubric it is held against, the avenue that it follows (what bounds the kernel, and what "
        "is to be done about it), and how others that began at this base failed"
    )
    more_findings: str = dspy.InputField(desc="what else is known that bears on this experiment")
    failed: str = dspy.InputField(desc="a failed attempt at this experiment to repair, with the judge's evidence")
    failed_code: str = dspy.InputField(desc="the main file of the failed attempt")


@dataclass(eq=False)
class ModelWriter(ModelStage, Writer):
    """A writer that asks a model. A subclass defines `main`, which makes the new main file of an answer."""

    findings: int = FINDINGS
    """Tokens of notes."""
    target: Target | None = None
    """What kernels are for."""
    room: int = field(default=1_000_000, init=False)
    """Tokens of the file to change: it is shown whole, unless a writer says otherwise."""

    def __call__(self, problem: Problem, selection: Selection, *asked: Any, **more: Any) -> Kernel:
        """Return the kernel that the answer to `question` makes, which has the same parameters."""
        return self.program.ask(self.question(problem, selection, *asked, **more), key=selection.rationale)

    def question(
        self,
        problem: Problem,
        selection: Selection,
        experiment: Experiment,
        notes: tuple[Note, ...],
        failed: Trial | None = None,
    ) -> Inquiry[Kernel]:
        """What the model is asked, and how its answer becomes a kernel. StageError without a kernel to start from."""
        base, attempt = selection.base.kernel, failed.kernel if failed else None
        if base is None:
            raise StageError("writer", f"{selection.base.id} has no kernel to start from")
        start, payload = attempt or base, payload_of(self.program.declared)

        def accept(answer: dict[str, Any]) -> Kernel:
            unchanged = isinstance(failed, Draft) and answer[payload].strip() == KEEP
            text = start.main if unchanged else self.main(answer, start)
            if len(answer["report"]) > _REPORT:
                raise ValueError(f"report: {len(answer['report'])} characters are more than {_REPORT}")
            languages = problem.writable_languages if problem.lane else (*problem.languages, start.language)
            kernel = replace_main(start, text, languages, answer["report"].strip())
            entry = "" if problem.called else "custom_kernel"
            check(kernel, [base, *([attempt] if attempt and not isinstance(failed, Draft) else [])], _MOST_KB, entry)
            return kernel

        hint = "" if problem.origin.get("format") in ONE_FILE else MORE_FILES
        trouble = failure(failed, problem)
        about = render.work_text(problem)
        topics = render.topics(problem, selection)
        work = f"{experiment.description}\n{experiment.rubric}\n{trouble}"
        more = partial(more_findings, notes, (self.findings, about), about=work)
        sections = [
            Section("target", STABLE, describe(self.target, problem)),
            Section("task", STABLE, render.task(problem)),
            Section("reference_implementation", STABLE, problem.reference_text, priority=2),
            Section("interface", STABLE, render.interface(problem, start, self.target.cores if self.target else 1)),
            Section("findings", STABLE, lambda room: findings(notes, room, about), self.findings, priority=3),
            Section("base_code", SLOW, lambda room: self._base(base, attempt, topics, room), self.room),
            Section("other_files", SLOW, f"{render.others(start)}\n{hint}".strip()),
            Section("base_analysis", SLOW, render.analysis(selection.base, selection.base_step, problem), priority=1),
            Section("reference_code", SLOW, lambda room: reference_code(selection, room), _REFERENCE, priority=2),
            Section("reference_analysis", SLOW, render.reference(problem, selection), priority=2),
            Section("standing", SLOW, render.standings(selection.rivals)),
            Section("experiment", VOLATILE, render.commission(selection, experiment)),
            Section("more_findings", VOLATILE, more, _MORE_FINDINGS, priority=3),
            Section("failed", VOLATILE, trouble),
            Section("failed_code", VOLATILE, lambda room: self.show_kernel(attempt, work, room), self.room),
            *self.more_sections(start, work, attempt is not None),
        ]
        return Inquiry(self.program.brief(sections), accept, self.answer_tokens(start.main))

    def _base(self, base: Kernel, attempt: Kernel | None, topics: str, room: int) -> str:
        """Return the base's main file, or its difference from a long attempt that is shown as well."""
        if attempt is None or count(base.main) < _LONG:
            return self.show_kernel(base, topics, room)
        return excerpt.first_lines(difference(base, attempt, "the failed attempt"), room)

    def show_kernel(self, kernel: Kernel | None, about: str, room: int) -> str:
        """Return the main file as the model sees it: of a file to edit, what bears on `about` in so many tokens."""
        return kernel.main if kernel else ""

    def answer_tokens(self, text: str) -> int:
        """Return the tokens of an answer about a file; 0 if that is never much."""
        return 0

    def main(self, answer: dict[str, Any], start: Kernel) -> str:
        """Return the new main file of the kernel `start`, and other new files below it. Raises ValueError."""
        raise NotImplementedError

    def more_sections(self, start: Kernel, work: str, repairs: bool) -> list[Section]:
        """Sections beside those of `WriterSignature`, for a change of `start`, or its repair, as `work` says."""
        return []
