"""Two histories of one branch: which of them holds the other, and one that holds both where neither does."""

from collections.abc import Iterator
from enum import Enum

from ksflow.lineage import commit_message
from ksflow.lineage.branches import EXPLANATION
from ksflow.lineage.store import Store
from ksflow.records import RESERVED_NAMES

JOINED = "Joined"
"""The trailer of a commit that was put on top of another host's; it names the first version."""
_DEEPEST = 1000


class Tie(Enum):
    """How the tip of a branch here is related to the tip elsewhere."""

    SAME = "same"
    AHEAD = "ahead"
    BEHIND = "behind"
    APART = "apart"


def tie(store: Store, here: str, there: str) -> Tie:
    """How two tips of a trial's branch are related."""
    if here == there:
        return Tie.SAME
    if there in set(_line(store, here)):
        return Tie.AHEAD
    return Tie.BEHIND if here in set(_line(store, there)) else Tie.APART


def same_kernel(store: Store, here: str, there: str) -> bool:
    """Whether two commits hold the same kernel, whatever is said of it."""
    ours, theirs = (
        {name: blob for name, blob in store.entries(commit).items() if name not in RESERVED_NAMES}
        for commit in (here, there)
    )
    return ours == theirs


def joined(store: Store, here: str, there: str) -> str:
    """A commit that holds both: this host's commits once more, on top of the other's."""
    below, mine = set(_line(store, there)), list[str]()
    for commit in _line(store, here):
        if commit in below:
            break
        mine.append(commit)
    tip = there
    for commit in reversed(mine):
        _, date, text = store.commit_facts(commit)
        entries, theirs = store.entries(commit), store.entries(tip)
        if store.trailer(commit, commit_message.ANNOTATION):
            entries = {**theirs, EXPLANATION: entries[EXPLANATION]} if EXPLANATION in entries else theirs
        elif EXPLANATION in theirs:
            entries = {EXPLANATION: theirs[EXPLANATION], **entries}
        tip = store.commit(store.tree(entries), (tip, commit), _marked(text, commit), date)
    return tip


def _marked(text: str, commit: str) -> str:
    """A commit's message, which says what it is another version of. Its step stays the last line."""
    plain, step = commit_message.without_step(text)
    marked = f"{plain.rstrip(chr(10))}\n{JOINED}: {commit}\n"
    return commit_message.with_step(marked, step) if step else marked


def _line(store: Store, commit: str) -> Iterator[str]:
    """A commit and its first ancestors, as long as they are about the same trial, and the one below those."""
    name = store.trailer(commit, "Trial")
    for _ in range(_DEEPEST):
        yield commit
        parents, _ = store.header(commit)
        if not parents or store.trailer(commit, "Trial") != name:
            return
        commit = parents[0]
