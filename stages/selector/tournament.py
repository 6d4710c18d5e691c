"""Tournament selection: a few accepted kernels drawn by chance, the fastest of them wins."""

from random import Random

from ksflow.protocols import NO_CONTEXT, Context
from ksflow.records import Population, Problem, Selection, Trial
from ksflow.source.families import draw_untried, values_in


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
        accepted = population.ranked
        tunable = [trial for trial in accepted if values_in(trial.kernel)]
        entrants = tunable or list(accepted)
        base = draw_untried(population, entrants, lambda left: self._winner(rng, left))
        reference = self._winner(rng, [trial for trial in entrants if trial is not base] or [base])
        rationale = f"{base.id} and {reference.id} each won against {self.size - 1} others drawn from {len(entrants)}"
        return population.choose(base.id, reference.id, rationale)

    def _winner(self, rng: Random, entrants: list[Trial]) -> Trial:
        """`entrants` are in order of rank, so the lowest index drawn wins."""
        return entrants[min(rng.randrange(len(entrants)) for _ in range(self.size))]
