"""Islands with migration: populations that search apart, and once in a while learn of a neighbour's best.

A trial lives where its reference lives. One whose reference has no parents (a seed, a pushed kernel) founds a line, on
the island that a hash of its id names. Seeds live on every island. After every `every` trials the best of each island
visits the next one until the next migration: there it can be the base, never the reference, so its children stay.
Where an island has nothing left to try, a kernel of any other is its base.
"""

from functools import partial
from random import Random

from ksflow.kernels.source.families import draw_untried, has_untried
from ksflow.protocols import NO_CONTEXT, Context
from ksflow.records import Population, Problem, Selection, Trial, digest, first_attempt
from ksflow.stages.selector.tournament import entrants, winner


class Islands:
    """Base: the best of `size` random entrants of an island, or a migrant. Reference: the same among its own."""

    def __init__(self, islands: int = 4, every: int = 24, size: int = 3, seed: int = 0) -> None:
        """islands: how many populations there are. every: trials between two migrations. size: how many random entrants
        compete to be the base; the larger, the harder an island presses to its fastest.
        """
        if islands < 1 or every < 1 or size < 1:
            raise ValueError(f"islands={islands}, every={every} and size={size} must each be at least 1")
        self.islands, self.every, self.size, self.seed = islands, every, size, seed

    def __call__(self, problem: Problem, population: Population, context: Context = NO_CONTEXT) -> Selection:
        rng = Random(context.seed(self.seed, population))
        entered = entrants(population)
        homes = self._homes(entered, population)
        island = rng.randrange(self.islands)
        own = [trial for trial in entered if homes[trial.id] == island]
        own = own or [trial for trial in entered if homes[trial.id] is None] or entered
        migrant = self._migrant(entered, homes, (island - 1) % self.islands, population)
        guest = migrant if migrant and homes[migrant.id] != island else None
        mine = {trial.id for trial in (*own, *filter(None, [guest]))}
        there = [trial for trial in entered if trial.id in mine]
        draw = partial(winner, rng, size=self.size)
        drawn = (draw_untried(population, group, draw) for group in (there, entered))
        base = next((trial for trial in drawn if has_untried(population, trial)), there[0])
        reference = draw([trial for trial in own if trial is not base] or own)
        from_elsewhere = homes[base.id] not in (None, island)
        moved = f", a migrant from island {homes[base.id]}," if from_elsewhere else ""
        rationale = f"island {island} of {self.islands}, {len(own)} kernels: {base.id}{moved} with {reference.id}"
        return population.choose(base.id, reference.id, rationale)

    def _homes(self, trials: list[Trial], population: Population) -> dict[str, int | None]:
        """Return trial -> its island; None for a trial that lives on all islands."""
        homes: dict[str, int | None] = {}
        for trial in trials:
            line, node = [trial.id], trial
            while node.parents and node.id not in homes:
                founder = first_attempt(node, population.by_id) or node
                reference = population.by_id.get(founder.parents[-1]) if founder.parents else None
                if reference is None or not reference.parents or reference.id in line:
                    homes[node.id] = int(digest(founder.id), 16) % self.islands
                else:
                    node = reference
                    line.append(node.id)
            homes |= dict.fromkeys(line, homes.get(node.id))
        return homes

    def _migrant(
        self, entrants: list[Trial], homes: dict[str, int | None], neighbour: int, population: Population
    ) -> Trial | None:
        """Return a neighbour's best trial as of the last migration; None if it had none of its own."""
        due = len(population.trials) // self.every * self.every
        there = {trial.id for trial in population.trials[:due]}
        return next((trial for trial in entrants if trial.id in there and homes[trial.id] == neighbour), None)
