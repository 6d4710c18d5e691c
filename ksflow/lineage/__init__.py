"""Every kernel ever tried, kept in git: branches, transcripts, the order of steps, a person's word.

In come trials, choices, plans, notes and model calls, each committed before anything acts on it; out come the
population of a run (`Lineage`), its past in the order it was written (`history`) and a run to be replayed
(`recorded_run`). The loop, the session and the commands import it; it is the only importer of git. It judges, ranks and
displays nothing.
"""

import os

os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")  # that git is missing is said in one line, where it is needed

from ksflow.lineage.lineage import Lineage, Recorded, Round

__all__ = ["Lineage", "Recorded", "Round"]
