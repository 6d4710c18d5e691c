"""A model looks for avenues and designs experiments; three are picked by the paper's rule."""

from dataclasses import dataclass
from typing import Any

import dspy

from ksflow.kernels.source.tunables import assign
from ksflow.lm.program import Inquiry, ModelStage
from ksflow.lm.prompts import excerpt, render
from ksflow.lm.prompts.brief import SLOW, STABLE, Section
from ksflow.lm.prompts.difference import reference_code, winning_step
from ksflow.lm.prompts.findings import findings as written
from ksflow.lm.prompts.target import describe
from ksflow.lm.prompts.tried import tried_experiments
from ksflow.notes.calibration import advice
from ksflow.protocols import NO_CONTEXT, Context
from ksflow.records import Experiment, Kernel, Note, Plan, Population, Problem, Selection, Target, portfolio
from ksflow.search.effects import effects_table

_REFERENCE = 900  # tokens of what differs from it in the kernel to learn from
_WON = 1_000  # tokens of the newest step that won
_EFFECTS = 500  # tokens of measured effects of single tunables
_LONGEST = 10_000  # characters of description and rubric


class Design(dspy.Signature):  # type: ignore[misc]
    """You design the next experiments on a high-performance kernel.

    You are given the task with its reference implementation, the base kernel (correct, timed, and the only code that
    will be changed), the one-step analysis of how it came about with its times per shape, a second kernel to learn
    from, what was tried already, and a findings document. What the findings say was measured holds on this machine. Of
    the rest you may know more than they do: an instruction or intrinsic that they do not name can be tried, since the
    judge compiles every kernel and returns the compiler's output to its writer. Name it exactly, and say what stands in
    its place if it does not compile. The code you see works: what it does is possible on this machine.

    Times come from a machine with noise. Their intervals say what is a difference; the roofline says what the
    hardware's rates allow, so a time far above it has something to gain and one near it has not. All gains are gains of
    speed, in notes, too: +100 % is twice as fast; -50 %, or a loss of 50 %, is half as fast.

    First the avenues: distinct directions in which the base could become faster. Say for each shape what bounds it
    (arithmetic, bandwidth, latency, set-up), and range widely: data layout and packing, tiling for every level of
    memory, vector and matrix instructions, precision of intermediate stages, overlap of loads and arithmetic,
    unrolling, fusion, splitting the reduction, specialising by shape, removing work altogether.

    Then the experiments: the most promising avenues as self-contained changes that one engineer makes to the base in
    one go. Each has a description (what to change, where, with which sizes, why it helps and on which shapes; nothing
    left to guess), a rubric, a predicted gain [lowest, highest] and an innovation from 0 to 100. They differ in
    substance from each other and from what was tried; what failed is not repeated unless the experiment removes the
    reason it failed. What was designed earlier and not run may be offered again.
    Predict what you would bet on: a range may begin below zero. Three are run: the most innovative,
    of the rest the one with the highest maximum, of the rest the one with the highest minimum. So offer a bold one,
    one with a large possible gain, and a safe one. A change that cannot meet the task's error bound is not an
    optimisation.
    """

    target: str = dspy.InputField(desc="the machine that kernels are built for and judged on")
    wanted: str = dspy.InputField(desc="how many avenues and experiments")
    task: str = dspy.InputField(desc="the task, its numerical contract, the shapes and the score")
    reference_implementation: str = dspy.InputField(desc="what the task computes; not the judge")
    findings: str = dspy.InputField(
        desc="what is known about the hardware and the techniques, with how far to trust it"
    )
    base_code: str = dspy.InputField(
        desc="the base kernel; `tune:` comments list values that a tuner searches, and after `| if` with which values "
        "of others one counts. Of a long one what bears on the work is shown, and of the rest what it is"
    )
    base_analysis: str = dspy.InputField(desc="the one-step analysis of the base, and where the score can gain most")
    reference_code: str = dspy.InputField(desc="the kernel to learn from, or how it differs from the base")
    reference_analysis: str = dspy.InputField(desc="why the two were chosen, and the one-step analysis of the second")
    tried: str = dspy.InputField(
        desc="experiments by the kernel that they began at and by what came of them, with the shapes whose gain "
        "differs from that of the whole (... stands for the beginning of the line above); what was designed and not run"
    )
    last_win: str = dspy.InputField(
        desc="the diff of the newest change of code that became the best so far, and what it gained"
    )
    effects: str = dspy.InputField(
        desc="what changes of single tunables gained in kernels that are otherwise the same, the largest effects first"
    )
    predictions: str = dspy.InputField(desc="your earlier predictions beside what was measured; predict by it")
    standing: str = dspy.InputField(desc="the best so far and the baselines to beat; what is left of the budget")
    avenues: tuple[str, ...] = dspy.OutputField(
        desc='a list of strings, one for each avenue: ["Pack B so that ...", "..."]'
    )
    experiments: tuple[Experiment, ...] = dspy.OutputField(
        desc='a list of objects {"description": "what to change, where, and why it should help", '
        '"rubric": "how a reader of the new code can tell that it was done as meant", '
        '"gain_percent": [lowest, highest], "innovation": 0 to 100, "avenue": number}. gain_percent is the predicted '
        "gain of the whole score; avenue is the number of the avenue that it follows, from 1, which its writer is "
        "shown; innovation is 0 for routine and 100 for "
        "never seen. Only where an experiment is nothing but other values for declared tunables, "
        "add "
        '"changes": {"NAME": "value"} with values from their lists'
    )


@dataclass(eq=False)
class LlmDesigner(ModelStage):
    """Asks a model for at least ten avenues and five experiments, and picks three, as the paper does."""

    label, signature = "designer=llm", Design
    avenues: int = 10
    """The least that is accepted."""
    experiments: int = 5
    """The least that is accepted; three are run."""
    tokens: int = 5300
    """The most that is shown of what was tried."""
    findings: int = 3_300  # who writes the kernel has more of them
    """Tokens of notes."""
    target: Target | None = None
    """What kernels are for."""
    code: int = 7_500
    """Tokens of the base kernel."""

    def __call__(
        self,
        problem: Problem,
        population: Population,
        selection: Selection,
        notes: tuple[Note, ...],
        context: Context = NO_CONTEXT,
    ) -> Plan:
        inquiry = self.question(problem, population, selection, notes, context)
        return self.program.ask(inquiry, key=str(len(population.trials)))

    def _base(self, problem: Problem, selection: Selection, room: int) -> str:
        """Return the base's text; of a long file the slowest device functions and what was last changed."""
        kernel = selection.base.kernel
        if kernel is None or len(kernel.files) > 1:
            return render.listing(kernel)
        return excerpt.shorten_file(kernel.main, room, render.topics(problem, selection))

    def question(
        self,
        problem: Problem,
        population: Population,
        selection: Selection,
        notes: tuple[Note, ...],
        context: Context = NO_CONTEXT,
    ) -> Inquiry[Plan]:
        """What the model is asked, and how its answer becomes a plan."""
        base, about = selection.base, render.work_text(problem)
        predictions = advice(population, self.program.answered_by)
        sections = [
            Section("target", STABLE, describe(self.target, problem)),
            Section("wanted", STABLE, f"{self.avenues} avenues and {self.experiments} experiments"),
            Section("task", STABLE, render.task(problem)),
            Section("reference_implementation", STABLE, problem.reference_text, priority=2),
            Section("findings", STABLE, lambda room: written(notes, room, about), self.findings, priority=3),
            Section("base_code", SLOW, lambda room: self._base(problem, selection, room), self.code),
            Section("base_analysis", SLOW, render.analysis(base, selection.base_step, problem), priority=1),
            Section("reference_code", SLOW, lambda room: reference_code(selection, room), _REFERENCE, priority=2),
            Section("reference_analysis", SLOW, render.reference(problem, selection), priority=2),
            Section(
                "tried", SLOW, lambda room: tried_experiments(population, selection, room), self.tokens, priority=1
            ),
            Section("last_win", SLOW, lambda room: winning_step(population, room), _WON, priority=2),
            Section("effects", SLOW, lambda room: effects_table(population, room), _EFFECTS, priority=2),
            Section("predictions", SLOW, predictions, priority=2),
            Section("standing", SLOW, render.standings(selection.rivals, context.left)),
        ]

        def accept(answer: dict[str, Any]) -> Plan:
            for name, least in (("avenues", self.avenues), ("experiments", self.experiments)):
                if len(answer[name]) < least:
                    raise ValueError(f"{name}: {least} were asked for, {len(answer[name])} given")
            experiments: tuple[Experiment, ...] = answer["experiments"]
            _check(experiments, len(answer["avenues"]), base.kernel)
            return Plan(answer["avenues"], experiments, portfolio(experiments), self.program.answered_by)

        return Inquiry(self.program.brief(sections), accept)


def _check(experiments: tuple[Experiment, ...], avenues: int, base: Kernel | None) -> None:
    """Raise ValueError for experiments that a writer cannot carry out."""
    if len({experiment.description for experiment in experiments}) < len(experiments):
        raise ValueError("experiments: two have the same description")
    for index, experiment in enumerate(experiments):
        if not experiment.description.strip() or not experiment.rubric.strip():
            raise ValueError(f"experiments.{index}: description and rubric must say something")
        if len(experiment.description) + len(experiment.rubric) > _LONGEST:
            raise ValueError(f"experiments.{index}: description and rubric are longer than {_LONGEST} characters")
        if experiment.avenue > avenues:
            raise ValueError(f"experiments.{index}.avenue: {experiment.avenue} is the number of no avenue")
        if experiment.changes and base is not None:
            try:
                assign(base.main, experiment.changes)
            except ValueError as error:
                raise ValueError(f"experiments.{index}.changes: {error}") from error
