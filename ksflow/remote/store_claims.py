"""Who judges which job of an object store: `job_locks`, where a claim counts once the store has it.

A claim is made by a write that may only create. Where a store has none, or two look at once, two workers may judge one
job: that costs a judgement, and nothing else.
"""

import json
import re
import time
from collections.abc import Collection, Mapping
from pathlib import Path

from ksflow import home
from ksflow.remote import job_locks
from ksflow.remote.job_store import NAME
from ksflow.remote.object_store import ObjectStore, Stored

_CLAIM = re.compile(rf"claims/((?P<job>{NAME.pattern})\.\d{{1,6}})")


class StoreClaims:
    """The claims below `claims/` as one machine sees them. folder: a private one, where they are kept meanwhile."""

    def __init__(self, store: ObjectStore, folder: Path) -> None:
        self._store, self._folder = store, folder
        folder.mkdir(parents=True, exist_ok=True)
        self._locks = job_locks.JobLocks(folder)
        self._got: dict[str, str] = {}
        self._beaten = 0.0
        self.mine: dict[str, list[Path]] = {}
        """Job -> this process's claim on it."""

    def look(self, seen: Mapping[str, Stored], jobs: Collection[str]) -> None:
        """Take in a listing of the store. Claims on jobs that are gone are removed there."""
        claims = {found[1]: found for path in seen if (found := _CLAIM.fullmatch(path))}
        for name, found in claims.items():
            if found["job"] in self.mine:
                continue
            if found["job"] not in jobs:
                self._store.remove([found[0]])
            elif self._got.get(name) != seen[found[0]].version and (data := self._store.read(found[0])) is not None:
                home.write(self._folder / name, data)
                self._got[name] = seen[found[0]].version
        own = {path for claim in self.mine.values() for path in claim}
        for path in set(self._folder.iterdir()) - own:
            if path.name not in claims:
                path.unlink(missing_ok=True)
                self._got.pop(path.name, None)

    def take(self, job: str) -> bool:
        """Claim a job; False while another's claim holds."""
        claim = self._locks.take(job)
        if claim is None:
            return False
        won = False
        try:
            won = self._store.create(f"claims/{claim[-1].name}", claim[-1].read_bytes())
        finally:
            if not won:
                claim[-1].unlink()
        if won:
            self.mine[job] = claim
        return won

    def release(self, job: str) -> None:
        """Give a job free, if it is this process's."""
        claim = self.mine.pop(job, [])
        job_locks.release(claim)
        self._store.remove(f"claims/{path.name}" for path in claim)

    def beat(self) -> None:
        """Show that this process lives, every few seconds."""
        if time.monotonic() - self._beaten < job_locks.BEAT_S:
            return
        self._beaten = time.monotonic()
        for claim in self.mine.values():
            alive = {**job_locks.identity(), "at": time.time()}
            self._store.write(f"claims/{claim[-1].name}", json.dumps(alive).encode())
