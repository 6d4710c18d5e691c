"""Every kernel ever tried, kept in git: branches, transcripts, the order of steps, a person's word."""

from ksflow.lineage.lineage import Lineage, Recorded, Turn

__all__ = ["Lineage", "Recorded", "Turn"]
