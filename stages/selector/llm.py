"""A model picks the kernel to change and the one to learn from."""

from dataclasses import dataclass
from typing import Any

import dspy

from ksflow.errors import shorten
from ksflow.lm.program import Inquiry, ModelStage
from ksflow.lm.prompts import render
from ksflow.lm.prompts.brief import SLOW, STABLE, Section
from ksflow.lm.prompts.target import describe
from ksflow.lm.prompts.views import view
from ksflow.protocols import NO_CONTEXT, Context
from ksflow.records import Population, Problem, Selection, Target


class Select(dspy.Signature):  # type: ignore[misc]
    """You direct the search for the fastest correct kernel for one task.

    Every row of the table is a kernel that the judge found correct and timed: its id, the ids of the kernels it was
    made from, its score, its time on each benchmark shape (microseconds, lower is better), the width of its widest
    interval, and what was tried to get it. Differences within that noise mean nothing; a kernel marked `unranked` was
    timed on a machine too noisy to compare it. Choose two kernels by their ids:

    - the base: the kernel that the next experiments change. Usually among the fastest, not always the fastest. It
      should have room left: its structure allows more than its times show, its last steps gained, it is far from the
      roofline on shapes that count. Leave a kernel from which many experiments brought nothing.
    - the reference: a second kernel that designer and writer read beside the base. It should teach what the base lacks:
      it wins on some shapes, comes from another branch of the lineage, or isolates one technique. A near copy of the
      base teaches nothing.

    Compare shape by shape, not only by score: a technique that wins on one shape can be carried over. The lineage and
    the failures say which directions are used up. With much of the budget left a base with an untried structure can pay
    off; with little left choose what the next few experiments can improve. Give the rationale first, then choose what
    it supports.
    """

    target: str = dspy.InputField(desc="the machine that kernels are built for and judged on")
    task: str = dspy.InputField(desc="the task and its score")
    population: str = dspy.InputField(desc="the kernels to choose from, best first, and how many are not shown")
    failures: str = dspy.InputField(desc="attempts that failed, one of each kind, newest first, and why")
    standing: str = dspy.InputField(desc="the best so far and the baselines to beat; what is left of the budget")
    rationale: str = dspy.OutputField(
        desc="two to six sentences: why these two, by the numbers, and what to look for in the reference"
    )
    base_id: str = dspy.OutputField(desc="the base's id, a number from the table and nothing else")
    reference_id: str = dspy.OutputField(desc="the reference's id, a number from the table and nothing else")


@dataclass(eq=False)
class LlmSelector(ModelStage):
    """Shows the model a view of bounded size; refuses ids that are not in it."""

    label, signature = "selector=llm", Select
    tokens: int = 6000
    """The most that is shown of the population."""
    target: Target | None = None
    """What kernels are for."""

    def __call__(self, problem: Problem, population: Population, context: Context = NO_CONTEXT) -> Selection:
        return self.program.ask(self.question(problem, population, context), key=str(len(population.trials)))

    def question(self, problem: Problem, population: Population, context: Context = NO_CONTEXT) -> Inquiry[Selection]:
        """What the model is asked, and how its answer becomes a selection."""
        seen = view(problem, population, self.tokens)

        def accept(answer: dict[str, Any]) -> Selection:
            ids = [answer[f"{name}_id"].strip(" \t\r\n`'\"") for name in ("base", "reference")]
            for name, id in zip(("base", "reference"), ids, strict=True):
                if id not in seen.shown:
                    raise ValueError(f"{name} {shorten(id, 40)!r} is not an id in the table")
            return population.choose(ids[0], ids[1], answer["rationale"].strip())

        sections = [
            Section("target", STABLE, describe(self.target, problem)),
            Section("task", STABLE, render.summary(problem)),
            Section("population", SLOW, seen.table),
            Section("failures", SLOW, seen.failures, priority=1),
            Section("standing", SLOW, render.standings(population.rivals(), context.left)),
        ]
        return Inquiry(self.program.brief(sections), accept)
