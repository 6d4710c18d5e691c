"""Every kernel ever tried, kept in git: branches, transcripts, the order of steps, a person's word.

In come trials, selections, plans, notes and model calls, each committed before anything acts on it; out come the
population of a run (`Lineage`), its rounds as they were (`rounds`) and a run to be replayed (`history`). The loop,
the session and the commands import it; it is the only importer of git. It judges, ranks and displays nothing.

    lineage   one run: sessions, notes, approvals, what calls have cost    record       a trial <-> files of a commit
    trial_log   of it what rounds and trials write
    index     what this process has read of it, and which refs changed     store        objects, refs, packs, tags
    history   what sessions wrote, in order; replays                       rounds       rounds as they began and ended
    locks     claims, turns, git's lock files                              refs         plain files of refs
    cache     evaluations kept from one run to the next                    transcript   model calls, and what they cost
    git_processes   git's own processes, and the repository they work in
"""

import os

from ksflow.errors import LineageError, one_line

os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")  # that git is missing is said in one line, where it is needed

try:
    import git  # noqa: F401 - it starts git here
except ImportError as error:
    if "cmdline: git" not in str(error):
        raise
    said = str(error).partition("stderr: ")[2].strip("' ") or str(error)
    raise LineageError(f"git does not start: {one_line(said)}; `git version` shows the same; mend that") from error

from ksflow.lineage.lineage import Lineage
from ksflow.lineage.trial_log import Round

__all__ = ["Lineage", "Round"]
