"""Prompts compiled from a lineage: `optimize`."""

from ksflow.optimize.verb import Settings, optimize

__all__ = ["Settings", "optimize"]
