"""The lineage as training data: the command `dataset`.

In come the runs of a repository (`lineage.rounds`); out go JSON Lines in the layouts of TRL's
trainers. Only the commands import it. It judges, trains and publishes nothing.
"""

from ksflow.training.dataset.verb import dataset

__all__ = ["dataset"]
