"""What a run will ask of its models, before the first call: the first question of each stage that ships.

What it does not do: call a user's own stage, which may do anything at all.
"""

import math
from contextlib import suppress
from typing import Any

from ksflow.errors import StageError, pluralize, stage_boundary
from ksflow.loop.run import Run
from ksflow.protocols import Asks, Composite, Verifier
from ksflow.records import Experiment, Material, Question

_A_ROUND = {"selector": 1, "designer": 1, "writer": 3, "verifier": 3}
"""Calls in a round of three experiments; of every other stage a quarter."""


def first_questions(run: Run) -> tuple[Question, ...]:
    """A first call of each stage that calls a model, from the prompts of the run's first round as they would be now."""
    population = run.lineage.last_population
    ranked = population.ranked
    if not ranked:
        return ()
    selection = population.choose(ranked[0].id, ranked[-1].id, "")
    idea = next((t.experiment for t in reversed(population.trials) if t.experiment), _STAND_IN)
    notes = run.initial_notes + run.lineage.notes()
    asked: list[Question] = []
    calls: dict[str, tuple[Any, tuple[Any, ...]]] = {
        "selector": (run.stages.select, (population,)),
        "designer": (run.stages.design, (population, selection, notes)),
        "writer": (run.stages.write, (selection, idea, notes, None)),
        "verifier": (run.stages.write, (selection, idea, notes, selection.base.kernel)),
        "digester": (run.stages.digest, (Material((), population, notes),)),
    }
    for name, (stage, values) in calls.items():
        for asks in _of_models(stage, name == "verifier"):
            with suppress(StageError), stage_boundary(name):  # of a stage that fails the round says so
                first = stage_asked_first(asks, values)
                if inquiry := first.question(run.problem, *values):
                    asked.append(first.program.first_call(inquiry))
    return tuple(asked)


def estimate(questions: tuple[Question, ...], experiments: int | None) -> str:
    """One line for a person: of a round, or of the whole where the number of experiments is known."""
    rounds = None if experiments is None else math.ceil(experiments / 3)
    times, span = rounds or 1, f"{rounds} rounds" if rounds and rounds > 1 else "a round"
    counts = [_A_ROUND.get(question.stage.partition("=")[0], 0.25) * times for question in questions]
    calls = pluralize(round(sum(counts)), "model call")
    tokens = sum(count * question.tokens_in for count, question in zip(counts, questions, strict=True))
    least = sum(count * (question.usd_in or 0.0) for count, question in zip(counts, questions, strict=True))
    most = sum(count * (question.usd_most or 0.0) for count, question in zip(counts, questions, strict=True))
    price = f"${least:.2f}, up to ${most:.2f} if every answer is as long as it may be" if most else "free"
    if unknown := dict.fromkeys(question.model for question in questions if question.usd_most is None):
        price = f"no price is known for {', '.join(unknown)}"
    return f"estimate for {span} of 3: {calls}, {tokens / 1e3:.0f}k tokens of prompts; {price}"


def stage_asked_first(stage: Any, values: tuple[Any, ...]) -> Any:
    """Return the stage whose question is asked first: a writer that chooses between two questions names it."""
    return stage.asked_first(values[0], values[-1]) if hasattr(stage, "asked_first") else stage


def _of_models(stage: Any, verifies: bool) -> list[Any]:
    """The stage itself, or the one of a mix of several, where it ships with ksflow and asks a model."""
    if isinstance(stage, Composite):
        return [ask for part in stage.parts for ask in _of_models(part, verifies)][:1]
    ships = type(stage).__module__.startswith("ksflow.stages.") and isinstance(stage, Verifier) == verifies
    return [stage] if ships and isinstance(stage, Asks) else []


_STAND_IN = Experiment("x" * 1000, "x" * 300, (0.0, 10.0), 50.0)  # an experiment of the usual length
