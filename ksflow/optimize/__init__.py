"""Prompts compiled from a lineage: the command `optimize`, and `course` for a program of one's own."""

from ksflow.optimize.task import Settings, course
from ksflow.optimize.verb import optimize

__all__ = ["Settings", "course", "optimize"]
