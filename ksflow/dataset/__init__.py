"""The lineage as training data: `export`."""

from ksflow.dataset.verb import export

__all__ = ["export"]
