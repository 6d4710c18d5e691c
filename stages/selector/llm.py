"""A model picks the kernel to change and the one to learn from."""

from typing import Any

import dspy

from ksflow.records import Choice, Population, Problem, Trial
from ksflow.stages.lm import Model, render
from ksflow.stages.lm.program import Program


class Select(dspy.Signature):  # type: ignore[misc]
    """You direct the search for the fastest correct GPU or CPU kernel for one task.

    Every row of the table is a kernel that the judge found correct and timed: its id, the ids of
    the kernels it was made from, its score, its time on every benchmark shape (microseconds, lower
    is better), and what was tried to get it. Choose two kernels by their ids:

    - the base: the kernel that the next experiments will change. Usually it is among the fastest,
      but not always the very fastest. Prefer a kernel with room left: its structure allows more
      than its numbers show, its last steps gained, it is far ahead on some shapes. Leave a kernel
      from which many experiments brought nothing.
    - the reference: a second kernel that the writer reads beside the base. It should teach
      something that the base lacks: it is better on some shapes, comes from another branch of the
      lineage, or shows what one difference does. A near copy of the base teaches nothing.

    Compare shape by shape, not only by score: a technique that wins on one shape is worth carrying
    over. Read the lineage and the failures too: they say which directions are used up.
    """

    task: str = dspy.InputField(desc="the task and its score")
    population: str = dspy.InputField(desc="the kernels to choose from, best first")
    failures: str = dspy.InputField(desc="recent attempts that failed, and why")
    base: str = dspy.OutputField(desc="the base's id, a number from the table and nothing else")
    reference: str = dspy.OutputField(desc="the reference's id, a number from the table and nothing else")
    rationale: str = dspy.OutputField(
        desc="two to six sentences: why these two, by the numbers, and what to look for in the reference"
    )


class LlmSelector:
    """Shows the model a table of bounded size; refuses ids that are not in it."""

    def __init__(
        self,
        lm: Model | None = None,
        attempts: int = 3,
        prompt: str | None = None,
        rows: int = 40,
        lessons: int = 12,
        seed: int = 0,
    ) -> None:
        """`rows` bounds the table, `lessons` the failures shown. `prompt`: see `Program`."""
        self.program = Program("selector", Select, lm, attempts, prompt, seed)
        self.rows = rows
        self.lessons = lessons

    def __call__(self, problem: Problem, population: Population) -> Choice:
        shown = shortlist(problem, population, self.rows)
        known = {trial.id for trial in shown}

        def accept(answer: dict[str, Any]) -> Choice:
            ids = [answer[name].strip(" \t\r\n`'\"") for name in ("base", "reference")]
            for name, id in zip(("base", "reference"), ids, strict=True):
                if id not in known:
                    raise ValueError(f"{name} {render.short(id, 40)!r} is not an id in the table")
            return population.choose(ids[0], ids[1], answer["rationale"].strip())

        failed = [trial for trial in population.trials if _failed(trial)][-self.lessons :]
        inputs = {
            "task": render.summary(problem),
            "population": _table(problem, population, shown),
            "failures": render.outcomes(failed, population),
        }
        return self.program(inputs, accept, key=str(len(population.trials)))


def shortlist(problem: Problem, population: Population, rows: int) -> tuple[Trial, ...]:
    """At most `rows` accepted trials, best first: the best, the best on each shape, the newest, the
    next best.
    """
    ranked = population.ranked
    champions = [
        min(
            ranked,
            key=lambda trial: (population.step(trial).after_us.get(case.name, 1e300), trial.id),
        )
        for case in problem.benchmarks
    ]
    newest = sorted(ranked, key=lambda trial: trial.id, reverse=True)
    wanted = [*ranked[: rows // 2], *champions, *newest[: rows // 4], *ranked]
    kept = set(list(dict.fromkeys(trial.id for trial in wanted))[:rows])
    return tuple(trial for trial in ranked if trial.id in kept)


def _failed(trial: Trial) -> bool:
    return bool(trial.failure) or (trial.evaluation is not None and not trial.evaluation.accepted)


def _table(problem: Problem, population: Population, shown: tuple[Trial, ...]) -> str:
    cases = [case.name for case in problem.benchmarks]
    rows = []
    for trial in shown:
        times = population.step(trial).after_us
        figures = [f"{times[case]:.4g}" if case in times else "-" for case in cases]
        what = trial.experiment.description if trial.experiment else f"seed {trial.name}"
        score = f"{trial.score_us:.4g}"
        rows.append([trial.id, ", ".join(trial.parents), score, *figures, render.short(what)])
    titles = ["id", "made from", "score us", *[f"{case} us" for case in cases], "what was tried"]
    left_out = len(population.ranked) - len(shown)
    more = f"\n({left_out} slower kernels are not shown)" if left_out else ""
    return render.table(titles, rows) + more
