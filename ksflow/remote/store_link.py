"""The asking side of a folder in an object store: jobs go up, results and signs of workers come down.

Between them is a folder of this machine, of the format that `job_store` has: what asks and waits knows that one alone.
In the store are `jobs/`, `results/`, `claims/` and `workers/` as in a folder, and the worker's code as `worker.zip`.
What was taken is kept here only; there, it is removed.
"""

import contextlib
import hashlib
import re
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from ksflow import home
from ksflow.remote import worker_payload
from ksflow.remote.job_store import LARGEST, JobStore
from ksflow.remote.object_store import ObjectStore, Stored

CODE = "worker.zip"
SIGN = re.compile(r"workers/(\w[\w.-]{0,150}\.json)")
_SHORTEST_S, _LONGEST_S = 0.2, 2.0


def local_folder(url: str) -> Path:
    """The folder of this machine that goes with a URL."""
    words = re.sub(r"\W+", "-", url).strip("-")[-60:]
    return Path("runs") / f"spool-{words}-{hashlib.sha256(url.encode()).hexdigest()[:8]}"


class StoreLink:
    """Keeps a folder and an object store alike, for those who wait. tell: says that the store does not answer."""

    def __init__(self, url: str, spool: JobStore, tell: Callable[[str], None]) -> None:
        self.url, self._spool, self._tell = url, spool, tell
        self._store: ObjectStore | None = None
        self._lock = threading.Lock()
        self._next, self._pause = 0.0, _SHORTEST_S
        self._sent: set[str] = set()
        self._got: dict[str, str] = {}

    def open(self) -> None:
        """Have the code of the worker there. ConfigError, OSError: the store cannot be used."""
        store = ObjectStore(self.url)
        code = worker_payload.packed()
        if store.read(CODE) != code:
            store.write(CODE, code)
        self._store = store
        self._exchange(store)

    def exchange(self) -> None:
        """Bring what is new, unless that was just now. A store that does not answer is told, and asked again later."""
        if self._store is None or not self._lock.acquire(blocking=False):
            return
        try:
            if time.monotonic() < self._next and self._out() <= self._sent:
                return
            try:
                changed = self._exchange(self._store)
                self._pause = _SHORTEST_S if changed else min(self._pause * 1.5, _LONGEST_S)
            except OSError as error:
                self._tell(str(error))
            self._next = time.monotonic() + self._pause
        finally:
            self._lock.release()

    def forget(self, name: str) -> None:
        """Its result was taken: remove its job and result there. Where that fails, the next call does it."""
        if self._store:
            with contextlib.suppress(OSError):
                self._store.remove((f"jobs/{name}.json", f"results/{name}.json"))

    def _out(self) -> set[str]:
        return {path.stem for path in self._spool.jobs.glob("*.json")}

    def _exchange(self, store: ObjectStore) -> bool:
        """Whether anything was new."""
        seen, out = store.listed(), self._out()
        there = [path for path in seen if path.startswith(("jobs/", "results/"))]
        store.remove(path for path in there if (self._spool.taken / Path(path).name).exists())
        new = [name for name in sorted(out) if not {f"jobs/{name}.json", f"results/{name}.json"} & seen.keys()]
        for name in new:
            with contextlib.suppress(FileNotFoundError):  # taken just now
                store.write(f"jobs/{name}.json", (self._spool.jobs / f"{name}.json").read_bytes())
        self._sent = out
        came = [self._bring_result(store, name, seen) for name in out if f"results/{name}.json" in seen]
        self._bring_signs(store, seen)
        return bool(new) or any(came)

    def _bring_result(self, store: ObjectStore, name: str, seen: Mapping[str, Stored]) -> bool:
        """Whether it was new. One that whoever waits has found damaged is removed there, too: it is judged again."""
        path = f"results/{name}.json"
        here, stored = self._spool.results / f"{name}.json", seen[path]
        known = self._got.get(path) == stored.version
        if stored.size > LARGEST or (known and not here.exists() and not self._is_over(name)):
            store.remove([path])
            return True
        data = None if known or self._is_over(name) else store.read(path)
        if data is None:
            return False
        home.write(here, data, durable=True)
        self._got[path] = stored.version
        return True

    def _is_over(self, name: str) -> bool:
        return (self._spool.taken / f"{name}.json").exists() or not (self._spool.jobs / f"{name}.json").exists()

    def _bring_signs(self, store: ObjectStore, seen: Mapping[str, Stored]) -> None:
        """Have the workers' signs here that are there."""
        signs = {found[1]: path for path in seen if (found := SIGN.fullmatch(path)) and seen[path].size <= LARGEST}
        for name, path in signs.items():
            if self._got.get(path) != seen[path].version and (data := store.read(path)) is not None:
                home.write(self._spool.workers / name, data)
                self._got[path] = seen[path].version
        for gone in self._spool.workers.glob("*.json"):
            if gone.name not in signs:
                gone.unlink(missing_ok=True)
