"""A designer of one's own: it changes one constant at a time, in the order in which the kernel declares them."""

from ksflow.errors import StageError
from ksflow.kernels.source.tunables import tunables, values
from ksflow.records import Experiment, Note, Plan, Population, Problem, Selection


class OneAtATime:
    """Values of the base's constants that no kernel has tried beside the base's others, `most` of them in a round."""

    def __init__(self, most: int = 3) -> None:
        self.most = most

    def __call__(self, problem: Problem, population: Population, selection: Selection, notes: tuple[Note, ...]) -> Plan:
        text = selection.base.kernel.main if selection.base.kernel else ""
        tried = [values(trial.kernel.main) for trial in population.trials if trial.kernel]
        experiments = tuple(
            Experiment(f"{one.name} = {value}", "the rest is as it was", (-50.0, 50.0), 10.0, {one.name: value})
            for one in tunables(text)
            for value in one.options
            if {**values(text), one.name: value} not in tried
        )[: self.most]
        if not experiments:
            raise StageError("designer=one_at_a_time", f"every constant of {selection.base.id} was changed")
        return Plan(("one constant at a time",), experiments, tuple(range(len(experiments))), "designer=one_at_a_time")
