"""Random values: the control that a designer must beat."""

from random import Random

from ksflow.protocols import lot
from ksflow.records import Choice, Note, Plan, Population, Problem, portfolio
from ksflow.search.space import exhausted, space, tuned

STAGE = "designer=random"


class RandomDesigner:
    """Five untried configurations by chance; the first three are run."""

    def __init__(self, experiments: int = 5, seed: int = 0) -> None:
        self.experiments = experiments
        self.seed = seed

    def __call__(
        self,
        problem: Problem,
        population: Population,
        choice: Choice,
        notes: tuple[Note, ...],
    ) -> Plan:
        around = space(STAGE, population, choice.base)
        rng = Random(lot(self.seed, population))
        drawn = [around.changes(config) for config in around.strangers(rng, self.experiments)]
        if not drawn:
            raise exhausted(STAGE, choice.base)
        experiments = tuple(tuned(changes, (0.0, 0.0), 50.0, "drawn by chance") for changes in drawn)
        return Plan(("values drawn by chance",), experiments, portfolio(experiments), "designer=random")
