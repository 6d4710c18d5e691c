"""Tournament selection: a few accepted kernels drawn by chance, the fastest of them wins."""

from random import Random

from ksflow.kernels.source.families import draw_untried, values_in
from ksflow.protocols import NO_CONTEXT, Context
from ksflow.records import Population, Problem, Selection, Trial


class Tournament:
    """Base: the best of `size` random entrants that has something left to try. Reference: the best of `size` others."""

    def __init__(self, size: int = 3, seed: int = 0) -> None:
        """A larger `size` presses harder towards the fastest; 1 is chance."""
        if size < 1:
            raise ValueError(f"a tournament needs at least one entrant, not {size}")
        self.size = size
        self.seed = seed

    def __call__(self, problem: Problem, population: Population, context: Context = NO_CONTEXT) -> Selection:
        rng = Random(context.seed(self.seed, population))
        entrants = [trial for trial in population.ranked if values_in(trial.kernel)] or list(population.ranked)
        base = draw_untried(population, entrants, lambda left: winner(rng, left, self.size))
        reference = winner(rng, [trial for trial in entrants if trial is not base] or [base], self.size)
        rationale = f"{base.id} and {reference.id} each won against {self.size - 1} others drawn from {len(entrants)}"
        return population.choose(base.id, reference.id, rationale)


def winner(rng: Random, entrants: list[Trial], size: int) -> Trial:
    """The fastest of `size` that are drawn: `entrants` are in order of rank, so the lowest index wins."""
    return entrants[min(rng.randrange(len(entrants)) for _ in range(size))]
