"""Tournament selection: a few accepted kernels drawn by chance, the fastest of them wins.

Of one it is chance (`selector=random`), the control that a selector must beat.
"""

from functools import partial
from random import Random

from ksflow.kernels.source.families import draw_untried, values_in
from ksflow.protocols import NO_CONTEXT, Context
from ksflow.records import Population, Problem, Selection, Trial


class Tournament:
    """Base: the best of `size` random entrants that has something left to try. Reference: the best of `size` others."""

    def __init__(self, size: int = 3, seed: int = 0) -> None:
        """size: how many random entrants compete; a larger one presses harder towards the fastest."""
        if size < 1:
            raise ValueError(f"a tournament needs at least one entrant, not {size}")
        self.size = size
        self.seed = seed

    def __call__(self, problem: Problem, population: Population, context: Context = NO_CONTEXT) -> Selection:
        rng = Random(context.seed(self.seed, population))
        entered = entrants(population)
        draw = partial(winner, rng, size=self.size)
        base = draw_untried(population, entered, draw)
        reference = draw([trial for trial in entered if trial is not base] or [base])
        rationale = f"{base.id} and {reference.id}, each the fastest of {self.size} drawn from {len(entered)} kernels"
        return population.choose(base.id, reference.id, rationale)


def entrants(population: Population) -> list[Trial]:
    """Return the accepted kernels to draw from: those with tunables, or all if none has any."""
    return [trial for trial in population.ranked if values_in(trial.kernel)] or list(population.ranked)


def winner(rng: Random, entrants: list[Trial], size: int) -> Trial:
    """Return the fastest of `size` entrants drawn at random. `entrants` are in order of rank: the lowest index wins."""
    return entrants[min(rng.randrange(len(entrants)) for _ in range(size))]
