"""A coding agent writes the kernel: it edits the file in a folder of its own, and may ask the judge."""

from typing import Any

import dspy

from ksflow.errors import ConfigError
from ksflow.lm import Model
from ksflow.lm.program import Program
from ksflow.prompts import render
from ksflow.prompts.findings import FINDINGS
from ksflow.prompts.findings import findings as written
from ksflow.protocols import NO_CONTEXT, Context, Workspace, calling
from ksflow.records import Choice, Experiment, Kernel, Note, Problem, Target, Trial
from ksflow.source.answer import ended
from ksflow.stages.writer.model_writer import CRAFT, Given, ModelWriter


class Work(Given):
    __doc__ = f"""You are an expert kernel engineer. Carry out one experiment on a working kernel: change the kernel's
    file in this folder, until it meets the rubric. `./check` asks the judge about it as it is.

    Start from the base: it compiles, it is correct, and it was timed. Keep what the experiment does not ask to
    change. Take techniques from the reference kernel where they serve the experiment. Where a failed attempt is given,
    mend what the evidence shows, and keep the experiment.
    {CRAFT}"""

    checks: str = dspy.OutputField(desc="what the judge said when it was asked")
    code: str = dspy.OutputField(desc="the kernel's file as it was left")


class AgentWriter(ModelWriter):
    """Its model is an agent (`agent=claude`); of what the agent leaves, the kernel's main file is the answer."""

    def __init__(
        self,
        lm: Model | None = None,
        attempts: int = 1,
        prompt: str | None = None,
        findings: int = FINDINGS,
        target: Target | None = None,
        seed: int = 0,
    ) -> None:
        """`attempts`: how often the agent is started for one kernel. The rest: as in `Rewrite`."""
        if not isinstance(lm, Model):
            raise ConfigError("writer=agent needs an agent: agent=claude, codex, gemini or command")
        super().__init__(Program("writer=agent", Work, lm, attempts, prompt, seed), findings, target)

    def __call__(
        self,
        problem: Problem,
        choice: Choice,
        experiment: Experiment,
        notes: tuple[Note, ...],
        failed: Trial | None = None,
        context: Context = NO_CONTEXT,
    ) -> Kernel:
        start = failed.kernel if failed and failed.kernel else choice.base.kernel
        shown = {"notes.md": written(notes, self.findings, render.about(problem, choice.base.kernel))}
        for name, trial in (("base", choice.base), ("reference", choice.reference)):
            files = trial.kernel.files if trial.kernel else {}
            shown |= {f"{name}/{file}": text for file, text in files.items()}
        with calling(workspace=Workspace(shown, start, context.check) if start else None):
            return super().__call__(problem, choice, experiment, notes, failed)

    def code(self, answer: dict[str, Any], start: Kernel) -> str:
        """The file as the agent left it, ended by a line break as files are."""
        return ended(str(answer["code"]))
