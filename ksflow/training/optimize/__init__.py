"""Prompts compiled from a lineage: the command `optimize`, and `course` for a program of one's own.

In come recorded rounds (`lineage.rounds`), a stage's program (`lm`) and settings; out goes a prompt file with a card
that says whether it is better on rounds that were held out. The commands import it; it imports config and what is
below. It changes no stage, and uses no prompt because it was compiled.
"""

from ksflow.training.optimize.task import course
from ksflow.training.optimize.teaching import Settings
from ksflow.training.optimize.verb import optimize

__all__ = ["Settings", "course", "optimize"]
