"""Optuna's TPE over the base's tunables. The population is its only memory: the study is rebuilt each time.

Where a kernel can have other values for some cases, one experiment combines those that did best on each class of
cases, once they promise enough together; from such a base, the search goes on within one class at a time.
"""

from random import Random

from ksflow.kernels.source.causes import select_points
from ksflow.protocols import NO_CONTEXT, Context
from ksflow.records import Note, Plan, Population, Problem, Selection, portfolio
from ksflow.search.dispatch import class_spaces, combine_best
from ksflow.search.space import assignment_experiment, exhausted_error, propose, space

STAGE = "designer=tune"


class Tpe:
    """Takes five untried proposals of a multivariate TPE; three of them are run."""

    def __init__(self, experiments: int = 5, memory: int = 300, per_shape: bool = True, seed: int = 0) -> None:
        """experiments: how many a plan has.

        memory: from how many judged configurations the study is rebuilt: the best third, and the newest.
        per_shape: whether kernels may be proposed that have other values for some cases.
        """
        self.experiments = experiments
        self.memory = memory
        self.per_shape = per_shape
        self.seed = seed

    def __call__(
        self,
        problem: Problem,
        population: Population,
        selection: Selection,
        notes: tuple[Note, ...],
        context: Context = NO_CONTEXT,
    ) -> Plan:
        whole = space(STAGE, population, selection.base, notes)
        rng = Random(context.seed(self.seed, population))
        # one best combination is enough for the rounds that share this knowledge
        first = context.sample == 0
        joint = combine_best(problem, population, whole) if self.per_shape and first else None
        proposals, around = [], whole
        for around in class_spaces(problem, population, whole, rng) if self.per_shape else [whole]:
            points = select_points(around.points, self.memory)
            proposals = propose(around, points, self.experiments - (joint is not None), rng)
            if proposals:
                break
        if not proposals and joint is None:
            raise exhausted_error(STAGE, selection.base)
        why = f"proposed by TPE from {len(around.points)} judged configurations"
        single = [assignment_experiment(around.changes(config), why) for config in proposals]
        experiments = (*([joint] if joint else []), *single)
        risks = [*([0.0] if joint else []), *(around.failures.risk(config) for config in proposals)]
        return Plan((why,), experiments, portfolio(experiments, risks), STAGE)
