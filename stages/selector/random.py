"""Two accepted kernels by chance: the control that a selector must beat."""

from random import Random

from ksflow.kernels.source.families import draw_untried, values_in
from ksflow.protocols import NO_CONTEXT, Context
from ksflow.records import Population, Problem, Selection


class RandomSelector:
    """Base and reference uniformly from the accepted kernels, those with tunables where there are any.

    A base that has nothing left to try is drawn again.
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def __call__(self, problem: Problem, population: Population, context: Context = NO_CONTEXT) -> Selection:
        rng = Random(context.seed(self.seed, population))
        entrants = [trial for trial in population.ranked if values_in(trial.kernel)] or list(population.ranked)
        base = draw_untried(population, entrants, rng.choice)
        reference = rng.choice([trial for trial in entrants if trial is not base] or [base])
        return population.choose(base.id, reference.id, f"chance, one of {len(entrants)} kernels")
