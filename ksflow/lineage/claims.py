"""Who works on what: claims on a run's ids, which end with the process that holds them."""

from collections.abc import Iterable, Sequence

from ksflow.errors import LineageError
from ksflow.lineage.store import Store


class Claims:
    """Those of one run; `prefix`: what the names of its claims begin with."""

    def __init__(self, store: Store, prefix: str) -> None:
        self._store, self._prefix = store, prefix

    def acquire(self, name: str) -> bool:
        """Claim a name. False when another process has it."""
        return self._store.claim(f"{self._prefix}{name}")

    def release(self, name: str) -> None:
        """Give the claim back, where this process has it."""
        self._store.release(f"{self._prefix}{name}")

    def held_here(self, name: str) -> bool:
        """Whether this process has it."""
        return self._store.holds(f"{self._prefix}{name}")

    def held_elsewhere(self, name: str) -> bool:
        """Whether another process has it."""
        free = self.acquire(name)
        self.release(name)
        return not free

    def free(self, count: int, used: Iterable[str]) -> list[str]:
        """The next ids above those in use that nobody is working on, claimed."""
        top, free = max((int(name) for name in used if name.isdigit()), default=0), list[str]()
        while len(free) < count:
            top += 1
            name = f"{top:05d}"
            if not self.held_here(name) and self.acquire(name):
                free.append(name)
        return free

    def recorded(self, ids: Sequence[str]) -> Sequence[str]:
        """The ids of a recording, claimed. LineageError."""
        if not all(map(self.acquire, ids)):
            run = self._prefix.rstrip("/").rpartition("/")[2]
            raise LineageError(f"{self._store.path}: another process replays run {run}; name another with run=")
        return ids
