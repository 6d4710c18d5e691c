"""The ids that are this host's own: blocks of them, each taken by a push that may only create its ref.

Whose a block is stands in the commit that the ref names, and is read from the refs as they were last seen: so a call
without `lineage.remote=`, and a host that is off-line, give the same ids.
"""

from ksflow.errors import BudgetError
from ksflow.lineage.claims import Claims
from ksflow.lineage.shared.remote import SHARED
from ksflow.lineage.store import Store
from ksflow.lineage.trial_index import TrialIndex

SIZE = 10_000
"""Ids from one block to the next; the first number of each is no id, so that all of a block are as long."""
_LOW = 2_000
"""Ids that are left when the next block is asked for."""


class Blocks:
    """Those of one run. `names`: what this host is called and was; the ids of those it had before are used up."""

    def __init__(self, store: Store, side: str, index: TrialIndex, names: tuple[str, ...]) -> None:
        self._store, self._index, self._names = store, index, names
        self._ids = f"{side}ids/"
        self._top: dict[int, int] = {}
        """Block -> the highest number in it that was given."""
        self.taken: dict[int, str] = {}
        """Block -> the host that has it."""
        self.refresh()

    def refresh(self) -> None:
        """Read whose each block is."""
        at = f"{SHARED}{self._ids.removeprefix('refs/')}"
        found = {ref.removeprefix(at): commit for ref, commit in self._store.refs(at).items()}
        self.taken = {
            int(number): self._store.trailer(commit, "Host") for number, commit in found.items() if number.isdigit()
        }

    @property
    def host(self) -> str:
        """What this host is called."""
        return self._names[0]

    @property
    def first_session(self) -> int:
        """The number of this host's first session."""
        return min(self.own, default=0) * SIZE + 1

    @property
    def own(self) -> tuple[int, ...]:
        """The blocks whose ids this host gives."""
        return tuple(sorted(number for number, host in self.taken.items() if host == self.host))

    @property
    def known(self) -> bool:
        """Whether this host has, or had, a block of the run."""
        return bool(set(self._names) & set(self.taken.values()))

    @property
    def low(self) -> bool:
        """Whether it is time to take another block."""
        return sum(SIZE - 1 - (self._last(block) - block * SIZE) for block in self.own) < _LOW

    @property
    def next(self) -> int:
        """The first block that nobody has."""
        return max(self.taken, default=-1) + 1

    def ref(self, block: int) -> str:
        """The ref that says whose a block is."""
        return f"{self._ids}{block}"

    def free(self, count: int, claims: Claims) -> list[str]:
        """So many ids of this host's that nobody uses, claimed. BudgetError where its blocks are used up."""
        found = list[str]()
        for block in self.own:
            number = self._last(block)
            while len(found) < count and number < (block + 1) * SIZE - 1:
                number += 1
                name = f"{number:05d}"
                if not self._used(name) and not claims.held_here(name) and claims.acquire(name):
                    found.append(name)
            self._top[block] = number
        if len(found) < count:
            for name in found:
                claims.release(name)
            raise BudgetError(
                "the ids that this host has of the shared run are used up, and no more could be taken through "
                "lineage.remote=; go on when it can be reached"
            )
        return found

    def _used(self, name: str) -> bool:
        index = self._index
        return name in index.trials or name in index.open or name in index.unread

    def _last(self, block: int) -> int:
        """The highest number of a block that is in use, or was given."""
        if block not in self._top:
            index = self._index
            numbers = (int(name) for name in (*index.trials, *index.open) if name.isdecimal())
            self._top[block] = max((n for n in numbers if n // SIZE == block), default=block * SIZE)
        return self._top[block]
