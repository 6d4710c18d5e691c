"""A model writes the whole new kernel, in the base's language and file."""

from typing import Any

import dspy

from ksflow.errors import StageError
from ksflow.records import Choice, Experiment, Kernel, Note, Problem, Trial
from ksflow.stages.lm import Model, render
from ksflow.stages.lm.program import Program


class Write(dspy.Signature):  # type: ignore[misc]
    """You are an expert kernel engineer. Carry out one experiment on a working kernel and return
    the whole new file.

    Start from the base: it compiles, it is correct, and it was measured. Keep what the experiment
    does not ask to change. The reference kernel works too: take techniques from it where they serve
    the experiment. Do what the description says so that the rubric is met; if a detail of it cannot
    work, do the nearest thing that can, and say so in the report.

    The findings are the source of truth about the hardware: instructions, sizes, layouts and limits
    come from them and from the code that is known to work, not from memory. An intrinsic that
    appears in neither is a risk: use it only if you are certain of its name and meaning.

    A judge compares every output of the kernel with a high-precision oracle on secret inputs and
    fresh data at each timed call, within an error bound derived from the arithmetic. So accumulate
    as the task demands, handle every shape (sizes that no tile divides too), special values as the
    statement says, write each output element exactly once in the end, and keep no result from one
    call to the next. Reading the reference implementation, the clock or anything outside the
    arguments is a cheat and is rejected.

    Where a number is a choice (a tile, an unroll factor), declare it as the base does, on one line
    with the values worth trying: `constexpr int MR = 8;  // tune: 4 6 8 12 | tile: rows of the
    register tile`, so that a tuner can search it later. The code must be complete: no placeholders,
    no elisions, no patch.
    """

    task: str = dspy.InputField(desc="the task, its numerical contract, the shapes and the score")
    reference_implementation: str = dspy.InputField(desc="what the task computes; not the judge")
    interface: str = dspy.InputField(desc="language, file, and what the file must define")
    findings: str = dspy.InputField(desc="what is known about the hardware and the techniques")
    base_code: str = dspy.InputField(desc="the kernel to change; it works")
    base_analysis: str = dspy.InputField(desc="how the base came about, and its times per shape")
    reference_code: str = dspy.InputField(desc="the kernel to learn from; it works")
    reference_analysis: str = dspy.InputField(desc="how the reference came about, and its times per shape")
    experiment: str = dspy.InputField(desc="what to do, and the rubric it is held against")
    failed: str = dspy.InputField(desc="a failed attempt at this experiment to repair, with the judge's evidence")
    report: str = dspy.OutputField(
        desc="three to ten sentences for the next engineer: the techniques used, with the sizes "
        "chosen, how each point of the rubric is met, and what is uncertain"
    )
    code: str = dspy.OutputField(desc="the complete new source file, exactly as it is to be saved")


class LlmWriter:
    """The answer replaces the base's main file; its other files stay."""

    def __init__(
        self,
        lm: Model | None = None,
        attempts: int = 3,
        prompt: str | None = None,
        max_kb: int = 200,
        seed: int = 0,
    ) -> None:
        """`max_kb` bounds the new file. `prompt`: see `Program`."""
        self.program = Program("writer", Write, lm, attempts, prompt, seed)
        self.max_kb = max_kb

    def __call__(
        self,
        problem: Problem,
        choice: Choice,
        experiment: Experiment,
        notes: tuple[Note, ...],
        failed: Trial | None = None,
    ) -> Kernel:
        base = choice.base.kernel
        if base is None:
            raise StageError("writer=llm", f"{choice.base.id} has no kernel to start from")
        same = choice.reference.id == choice.base.id
        inputs = {
            "task": render.task(problem),
            "reference_implementation": problem.reference,
            "interface": render.interface(problem, base),
            "findings": render.findings(notes),
            "base_code": render.listing(base),
            "base_analysis": render.analysis(choice.base, choice.base_step),
            "reference_code": "(the base itself)" if same else render.listing(choice.reference.kernel),
            "reference_analysis": render.analysis(choice.reference, choice.reference_step),
            "experiment": render.experiment(experiment),
            "failed": render.failure(failed),
        }

        def accept(answer: dict[str, Any]) -> Kernel:
            known = [kernel for kernel in (base, failed.kernel if failed else None) if kernel]
            code = self._checked(answer["code"], known)
            files = {name: code if body is base.main else body for name, body in base.files.items()}
            return Kernel(base.language, files, answer["report"])

        return self.program(inputs, accept, key=choice.rationale)

    def _checked(self, code: str, known: list[Kernel]) -> str:
        code = code if code.endswith("\n") else f"{code}\n"
        if (size := len(code.encode("utf-8"))) > self.max_kb * 1000:
            raise ValueError(f"code: {size} bytes are more than {self.max_kb} kB")
        if "\0" in code:
            raise ValueError("code: it contains a NUL character")
        if "custom_kernel" not in code:
            raise ValueError("code: it does not define custom_kernel")
        if any(code.split() == kernel.main.split() for kernel in known):
            raise ValueError("code: it is the code that was given, unchanged")
        return code
