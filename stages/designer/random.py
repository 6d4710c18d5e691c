"""Random values: the control that a designer must beat."""

from random import Random

from ksflow.protocols import NO_CONTEXT, Context
from ksflow.records import Note, Plan, Population, Problem, Selection, portfolio
from ksflow.search.space import assignment_experiment, exhausted_error, space

STAGE = "designer=random"


class RandomDesigner:
    """Draws five untried configurations at random; the first three are run."""

    def __init__(self, experiments: int = 5, seed: int = 0) -> None:
        """experiments: how many a plan has."""
        self.experiments = experiments
        self.seed = seed

    def __call__(
        self,
        problem: Problem,
        population: Population,
        selection: Selection,
        notes: tuple[Note, ...],
        context: Context = NO_CONTEXT,
    ) -> Plan:
        around = space(STAGE, population, selection.base, notes)
        drawn = around.sample_untried(Random(context.seed(self.seed, population)), self.experiments)
        if not drawn:
            raise exhausted_error(STAGE, selection.base)
        experiments = tuple(assignment_experiment(around.changes(config), "drawn by chance") for config in drawn)
        return Plan(("values drawn by chance",), experiments, portfolio(experiments), STAGE)
