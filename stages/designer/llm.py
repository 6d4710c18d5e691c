"""A model looks for avenues and designs experiments; three are picked by the paper's rule."""

from typing import Any

import dspy

from ksflow.records import Choice, Experiment, Note, Plan, Population, Problem, portfolio
from ksflow.stages.lm import Model, render
from ksflow.stages.lm.program import Program
from ksflow.tunables import assign


class Design(dspy.Signature):  # type: ignore[misc]
    """You are an expert in high-performance kernels, and you design the next experiments on one of
    them.

    You are given the task with its reference implementation, the base kernel (correct, measured,
    and the only code that will be changed), the one-step analysis of how it came about with its
    times per shape, a second kernel to learn from, what was tried on the base already, and a
    findings document. The findings are the source of truth about the hardware and its instructions:
    where they say something, do not contradict it from memory; where they are silent, prefer what
    does not depend on the answer, or make finding out the point of an experiment.

    First find the avenues: distinct directions in which the base could become faster. Ask what
    bounds each shape (arithmetic, bandwidth, latency, launch and set-up), and range widely: data
    layout and packing, tiling for every level of memory, vector and matrix instructions, precision
    of intermediate stages, overlap of loads and arithmetic, unrolling, fusion, splitting the
    reduction, specialising by shape, removing work altogether.

    Then turn the most promising into experiments. Each one is a self-contained change that one
    engineer can make to the base in one go, described so that nothing is left to guess: what to
    change, where, with which sizes, and why it should help on which shapes. The experiments must
    differ in substance from each other and from what was tried. Predict soberly: the range is what
    you would bet on, and an experiment whose lower end is negative is fine if its upper end is
    worth it. The numerical contract is fixed: a change that cannot meet the task's error bound is
    not an optimisation.
    """

    task: str = dspy.InputField(desc="the task, its numerical contract, the shapes and the score")
    reference_implementation: str = dspy.InputField(desc="what the task computes; not the judge")
    findings: str = dspy.InputField(desc="what is known about the hardware and the techniques")
    base_code: str = dspy.InputField(desc="the base kernel; `tune:` comments list values that a tuner searches")
    base_analysis: str = dspy.InputField(desc="the one-step analysis of the base")
    reference_analysis: str = dspy.InputField(desc="the same of the kernel to learn from")
    tried: str = dspy.InputField(desc="experiments on the base and recent ones elsewhere, with outcomes")
    wanted: str = dspy.InputField(desc="how many avenues and experiments")
    avenues: tuple[str, ...] = dspy.OutputField(
        desc='a list of strings, one for each avenue: ["Pack B so that ...", "..."]'
    )
    experiments: tuple[Experiment, ...] = dspy.OutputField(
        desc='a list of objects {"description": "what to change, where, and why it should help", '
        '"rubric": "how a reader of the new code can tell that it was done as meant", '
        '"gain_percent": [lowest, highest], "innovation": 0 to 100}. gain_percent is the predicted '
        "gain of the whole score (100 = twice as fast); innovation is 0 for routine and 100 for "
        "never seen. Only where an experiment is nothing but other values for declared tunables, "
        "add "
        '"changes": {"NAME": "value"} with values from their lists'
    )


class LlmDesigner:
    """Ten avenues, five experiments, three picked: the paper's numbers."""

    def __init__(
        self,
        lm: Model | None = None,
        attempts: int = 3,
        prompt: str | None = None,
        avenues: int = 10,
        experiments: int = 5,
        seed: int = 0,
    ) -> None:
        """`avenues` and `experiments` are the least that is accepted. `prompt`: see `Program`."""
        self.program = Program("designer", Design, lm, attempts, prompt, seed)
        self.avenues = avenues
        self.experiments = experiments

    def __call__(
        self,
        problem: Problem,
        population: Population,
        choice: Choice,
        notes: tuple[Note, ...],
    ) -> Plan:
        inputs = {
            "task": render.task(problem),
            "reference_implementation": problem.reference,
            "findings": render.findings(notes),
            "base_code": render.listing(choice.base.kernel),
            "base_analysis": render.analysis(choice.base, choice.base_step),
            "reference_analysis": render.analysis(choice.reference, choice.reference_step),
            "tried": _tried(population, choice),
            "wanted": f"{self.avenues} avenues and {self.experiments} experiments",
        }

        def accept(answer: dict[str, Any]) -> Plan:
            return self._plan(choice, answer["avenues"], answer["experiments"])

        return self.program(inputs, accept, key=str(len(population.trials)))

    def _plan(self, choice: Choice, avenues: tuple[str, ...], experiments: tuple[Experiment, ...]) -> Plan:
        for name, found, least in (
            ("avenues", avenues, self.avenues),
            ("experiments", experiments, self.experiments),
        ):
            if len(found) < least:
                raise ValueError(f"{name}: {least} were asked for, {len(found)} given")
        if len({tried.description for tried in experiments}) < len(experiments):
            raise ValueError("experiments: two have the same description")
        for index, tried in enumerate(experiments):
            _check(index, tried, choice)
        return Plan(avenues, experiments, portfolio(experiments))


def _check(index: int, tried: Experiment, choice: Choice) -> None:
    if not tried.description.strip() or not tried.rubric.strip():
        raise ValueError(f"experiments.{index}: description and rubric must say something")
    if tried.changes and choice.base.kernel is not None:
        try:
            assign(choice.base.kernel.main, tried.changes)
        except ValueError as error:
            raise ValueError(f"experiments.{index}.changes: {error}") from error


def _tried(population: Population, choice: Choice, room: int = 40) -> str:
    on_base = [trial for trial in population.trials if choice.base.id in trial.parents[:1]]
    recent = [trial for trial in population.trials if trial.experiment][-room // 4 :]
    shown = {trial.id: trial for trial in (*on_base[-room:], *recent)}
    return render.outcomes(shown.values(), population)
