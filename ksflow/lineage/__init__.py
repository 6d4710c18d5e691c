"""Every kernel ever tried, kept in git: branches, transcripts, the order of steps, a person's word."""

import os

os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")  # that git is missing is said in one line, where it is needed

from ksflow.lineage.lineage import Lineage, Recorded, Round

__all__ = ["Lineage", "Recorded", "Round"]
