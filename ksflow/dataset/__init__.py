"""The lineage as training data: the command `export`.

In come the runs of a repository (`lineage.history`); out go JSON Lines in the layouts of TRL's trainers, with a card of
licences. Only the commands import it. It judges, trains and publishes nothing.
"""

from ksflow.dataset.verb import export

__all__ = ["export"]
