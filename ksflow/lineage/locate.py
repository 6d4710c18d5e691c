"""What a person calls a kernel (a commit's id, a branch, a trial of the run) -> where it is in the lineage."""

from dataclasses import dataclass

from ksflow.errors import ConfigError
from ksflow.lineage.store import Store


@dataclass(frozen=True)
class Place:
    """A kernel's branch, and one of its commits."""

    problem: str
    run: str
    trial: str
    commit: str

    @property
    def branch(self) -> str:
        """The branch's short name."""
        return f"{self.problem}/{self.run}/{self.trial}"


def locate(store: Store, word: str, problem: str, run: str) -> Place:
    """Where `word` is; a bare trial id belongs to `problem` and `run`. Raises ConfigError."""
    branch = word.removeprefix("refs/heads/") if "/" in word else f"{problem}/{run}/{word}"
    if word.isdigit() and len(word) < 5:
        branch = f"{problem}/{run}/{word:0>5}"
    if branch.count("/") == 2 and (tip := store.ref(f"refs/heads/{branch}")):
        return _place(branch, tip)
    found = store.commits(word.lower())
    if not found:
        raise ConfigError(
            f"no commit, branch or trial {word!r} in {store.path} (problem={problem} run={run}); "
            "`python -m ksflow lineage` lists the trials"
        )
    if len(found) > 1:
        raise ConfigError(f"{word!r} may be {', '.join(name[:12] for name in found[:4])}; give more of it")
    return _of_commit(store, found[0], f"{problem}/{run}/")


def _of_commit(store: Store, commit: str, here: str) -> Place:
    """The branch that a commit is about: it ends there, or the commit names it."""
    trial = store.trailer(commit, "Trial")
    branches = [name for name in store.containing(commit) if name.count("/") == 2]
    ends = [name for name in branches if store.ref(f"refs/heads/{name}") == commit]
    named = [name for name in branches if name.rpartition("/")[2] == trial]
    candidates = [name for name in named if name in ends] or named or ends
    if not candidates:
        raise ConfigError(f"commit {commit[:12]} is no verdict on a kernel; name a commit of a kernel's branch")
    chosen = min(candidates, key=lambda name: (not name.startswith(here), name))
    return _place(chosen, commit)


def _place(branch: str, commit: str) -> Place:
    problem, run, trial = branch.split("/")
    return Place(problem, run, trial, commit)
