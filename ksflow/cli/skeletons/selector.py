"""A selector of one's own: which kernel is changed next, and which one its author may learn from."""

from ksflow.records import Population, Problem, Selection


class Mine:
    """Base: the kernel with this rank among those that declare tunables. Reference: the fastest."""

    def __init__(self, rank: int = 1) -> None:
        self.rank = rank  # every parameter is a key of the command line: selector.rank=2

    def __call__(self, problem: Problem, population: Population) -> Selection:
        """Change this: `population.ranked` has the accepted kernels, fastest first; `trials` has all, failures too."""
        tunable = [trial for trial in population.ranked if trial.kernel and "tune:" in trial.kernel.main]
        trials = tunable or list(population.ranked)
        base = trials[min(self.rank, len(trials)) - 1]
        return population.choose(base.id, population.ranked[0].id, f"number {self.rank} of {len(trials)}")
