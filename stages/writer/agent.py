"""A coding agent writes the kernel: it edits the file in a folder of its own, and may ask the judge."""

from dataclasses import dataclass
from typing import Any

import dspy

from ksflow.errors import ConfigError
from ksflow.kernels.source.answer import end_with_newline
from ksflow.lm import Model
from ksflow.lm.adapter import KernelAdapter, doc
from ksflow.lm.program import Inquiry
from ksflow.lm.prompts.brief import count
from ksflow.lm.prompts.excerpt import first_lines
from ksflow.lm.prompts.findings import findings as written
from ksflow.protocols import NO_CONTEXT, Context, Workspace, override_call
from ksflow.records import Experiment, Kernel, Note, Problem, Selection, Trial, digest
from ksflow.stages.writer.model_writer import CRAFT, REPORT, ModelWriter, WriterSignature

_IN_PLACE = 60  # tokens of what is told in TASK.md itself
_EXPERIMENT = 700  # of the experiment
_ALL_NOTES = 1_000_000
_OTHERS = (
    "beside it, to be changed or removed; what one of the kernel's files includes or imports by name is the kernel's"
)
_OWN_FILES = {"base_code": "base/", "other_files": _OTHERS, "failed_code": "", "more_findings": ""}
"""What lies in the folder as it is, or in another file: what stands in its place."""


class AgentSignature(WriterSignature):
    __doc__ = f"""You are an expert kernel engineer. Carry out one experiment on a working kernel: change the kernel's
    file in this folder, until it meets the rubric. `./check` asks the judge about it as it is.

    Start from the base: it compiles, it is correct, and it was timed. Keep what the experiment does not ask to
    change. Take techniques from the reference kernel where they serve the experiment. Where there was a failed attempt,
    the file is that attempt: mend what the evidence shows, and keep the experiment.
    {CRAFT}"""

    checks: str = dspy.OutputField(desc="what the judge said when it was asked")
    code: str = dspy.OutputField(desc="the kernel's files as they were left")
    report: str = dspy.OutputField(desc=REPORT)


class TaskAdapter(KernelAdapter):
    """The question as a page to read. The program itself makes the answer's sections of the folder that is left."""

    def format(
        self, signature: type[dspy.Signature], demos: list[dict[str, Any]], inputs: dict[str, Any]
    ) -> list[dict[str, Any]]:
        """Return the instructions, then a line for each input of one line, and a section for each longer one."""
        fields = signature.input_fields
        texts = {name: str(inputs[name]) for name in fields if inputs.get(name)}
        lines = [f"- {text}: {doc(fields[name])}" for name, text in texts.items() if "\n" not in text]
        sections = [f"## {name.capitalize()}\n\n{text}" for name, text in texts.items() if "\n" in text]
        text = "\n\n".join(["What you are given:\n" + "\n".join(lines), *sections])
        return [{"role": "system", "content": signature.instructions}, {"role": "user", "content": text}]


@dataclass(eq=False)
class AgentWriter(ModelWriter):
    """A writer whose model is an agent (`agent=claude`). The files that the agent leaves are the kernel.

    TASK.md has the experiment and names the files that have the rest: `given/` what other writers' prompts hold, with
    all notes; `base/` and `reference/` the two kernels.
    """

    label, signature = "writer=agent", AgentSignature
    attempts: int = 1
    """How often the agent is started for one kernel."""

    def __post_init__(self) -> None:
        if not isinstance(self.lm, Model):
            raise ConfigError("writer=agent needs an agent: agent=claude, codex, gemini or command")
        super().__post_init__()
        self.program.layout = TaskAdapter()

    def __call__(
        self,
        problem: Problem,
        selection: Selection,
        experiment: Experiment,
        notes: tuple[Note, ...],
        failed: Trial | None = None,
        context: Context = NO_CONTEXT,
    ) -> Kernel:
        whole = super().question(problem, selection, experiment, notes, failed)
        start = failed.kernel if failed and failed.kernel else selection.base.kernel
        assert start is not None
        files = {_file(name): text for name, text in whole.inputs.items() if text and name not in _OWN_FILES}
        files |= {_file("findings"): written(notes, _ALL_NOTES)}
        for name, trial in (("base", selection.base), ("reference", selection.reference)):
            files |= {f"{name}/{file}": text for file, text in (trial.kernel.files if trial.kernel else {}).items()}
        key = digest(selection.rationale, start.digest, *(f"{name}\n{text}" for name, text in files.items()))
        with override_call(workspace=Workspace(files, start, context.check)):
            return self.program.ask(_in_short(whole), key=key)

    def question(self, *asked: Any, **more: Any) -> Inquiry[Kernel]:
        """Return what TASK.md says, and how the files that are left become a kernel."""
        return _in_short(super().question(*asked, **more))

    def main(self, answer: dict[str, Any], start: Kernel) -> str:
        """Return the files that the agent left, as one text."""
        return end_with_newline(str(answer["code"]))


def _in_short(whole: Inquiry[Kernel]) -> Inquiry[Kernel]:
    """Return the question with names of files in place of long texts."""
    entries = {}
    for name, text in whole.inputs.items():
        size, most = count(text), _EXPERIMENT if name == "experiment" else _IN_PLACE
        entries[name] = _OWN_FILES.get(name, text if size <= most else f"`{_file(name)}` ({size} tokens)")
        if name == "experiment":
            entries[name] = text if size <= most else f"{first_lines(text, most)}\nThe whole is in {_file(name)}."
    return whole._replace(inputs=entries)


def _file(name: str) -> str:
    """Return the file with what other writers have in a section of their prompt."""
    return f"given/{name}{'.diff' if name == 'reference_code' else '.md'}"
