"""`python -m ksflow worker URL`: jobs come down from an object store to a worker of this machine, results go up.

The worker is that of a folder, in a process of its own: it runs the code that the store has, on a folder below the
cache, and neither sees the store's keys nor needs fsspec. A job lies in its folder under a claim of this process until
the store gives it to this machine; so it can be compiled, and waits its turn.
"""

import contextlib
import fcntl
import hashlib
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType

from ksflow import home
from ksflow.processes.child_environment import base_environment, end_with_this_process
from ksflow.remote import job_locks, worker_payload
from ksflow.remote.job_store import LARGEST, NAME, InvalidFile, JobStore, read, write
from ksflow.remote.object_store import ObjectStore, Stored
from ksflow.remote.store_claims import StoreClaims
from ksflow.remote.store_link import CODE, SIGN
from ksflow.remote.worker_loop import Options, say

_SHORTEST_S, _LONGEST_S, _LOOK_S = 0.2, 2.0, 0.05
_MOST = 32
"""Jobs that lie here at a time."""
_JOB = re.compile(rf"jobs/({NAME.pattern})\.json")
_PASSED_ON = ("HOME", "USER", "XDG_CACHE_HOME", "VIRTUAL_ENV")


def serve(url: str, options: Options) -> int:
    """Until told to stop; the worker's exit code. ConfigError, OSError: the store cannot be used."""
    store = ObjectStore(url)
    with _own_folder(store.url) as folder:
        bridge = StoreWorker(store, folder, options)
        before = {number: signal.signal(number, bridge.asked) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            return bridge.run()
        finally:
            bridge.close()
            for number, old in before.items():
                signal.signal(number, old)


class StoreWorker:
    """A store on one side, a worker's folder on the other."""

    def __init__(self, store: ObjectStore, folder: Path, options: Options) -> None:
        self._store, self._spool, self._options = store, JobStore(folder), options
        self._spool.make()
        for path in (*self._spool.claims.iterdir(), *self._spool.workers.iterdir()):  # of one that was killed
            path.unlink()
        self._claims = StoreClaims(store, folder / "leases")
        self._me = job_locks.identity()
        self._heartbeat = job_locks.Heartbeat()
        self._got: dict[str, str] = {}
        self._signs: dict[str, int] = {}
        self._child: subprocess.Popen[bytes] | None = None
        self._busy = time.monotonic()
        self._ready = self._stopping = False
        self._said: set[str] = set()

    def asked(self, number: int, _: FrameType | None) -> None:
        """What Ctrl-C and SIGTERM do: the worker is told, and ends as it does in a folder."""
        if self._child is None:
            raise KeyboardInterrupt
        self._stop(number)

    def run(self) -> int:
        """Until the worker has ended; its exit code. OSError where the store cannot be used at the beginning."""
        self._remove_dead_signs()
        pause, failed = _SHORTEST_S, False
        self._exchange()
        while self._child is None or self._child.poll() is None:
            if self._child is None and not self._begin():
                return 0
            self._wait(pause)
            try:
                changed, failed = self._exchange(), False
            except OSError as error:
                if not failed:
                    say(f"{self._store.url} does not answer, and is asked again: {error}")
                changed, failed = False, True
                time.sleep(pause)
            pause = _SHORTEST_S if changed else min(pause * 1.5, _LONGEST_S)
            if not self._stopping and self._is_done():
                self._stop(signal.SIGINT)
        return abs(int(self._child.returncode))

    def close(self) -> None:
        """Send what is left, and give free what was claimed."""
        self._heartbeat.close()
        if self._child is None:
            return
        if self._child.poll() is None:
            self._child.kill()
            self._child.wait()
        try:
            self._send(self._store.listed())
            for name in list(self._claims.mine):
                self._claims.release(name)
            self._store.remove(f"workers/{name}" for name in self._signs)
        except OSError as error:
            say(f"{error}; what is judged here and not yet there is sent when the worker is started again")

    # -- the worker --------------------------------------------------------------------------------

    def _begin(self) -> bool:
        """Start the worker, once its code is there; whether to go on."""
        code = self._spool.root / worker_payload.FOLDER
        if not (code / "manifest.json").exists():
            where = f"{self._store.url}/{CODE}, which a run with evaluator.folder={self._store.url} puts there"
            self._say_once(f"waits for {where}")
            return not self._options.once
        options = [f"target={self._options.target}"] if self._options.target else []
        options += [f"devices={','.join(self._options.devices)}"] if self._options.devices != ("",) else []
        options += ["profile=true"] if self._options.profile else []
        options += [] if self._options.sanitize else ["sanitize=false"]
        own = {name: value for name, value in os.environ.items() if name in _PASSED_ON or name.startswith("KSFLOW_")}
        environment = {**base_environment(), **own, "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
        self._child = subprocess.Popen(
            [sys.executable, "-m", "ksflow", "worker", "..", *options],
            cwd=code,
            env=environment,
            process_group=0,  # Ctrl-C at the terminal comes through here
            preexec_fn=end_with_this_process(signal.SIGINT),
        )
        say(f"judges what {self._store.url} has")
        return True

    def _stop(self, number: int) -> None:
        self._stopping = True
        if self._child and self._child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child.pid, number)

    def _is_done(self) -> bool:
        """Whether it was to end now. Nothing is said of the time before the worker looks for jobs."""
        if self._claims.mine or not self._ready:
            self._busy = time.monotonic()
            return False
        idle_s = 0.0 if self._options.once else self._options.idle_s
        return idle_s is not None and time.monotonic() - self._busy >= idle_s

    def _wait(self, pause: float) -> None:
        """Until then, or until there is something to send."""
        end = time.monotonic() + pause
        while time.monotonic() < end and (self._child is None or self._child.poll() is None):
            if any(self._spool.results.glob("*.json")):
                return
            time.sleep(_LOOK_S)

    # -- the store ---------------------------------------------------------------------------------

    def _exchange(self) -> bool:
        """Bring everything up to date; whether anything was new."""
        seen = self._store.listed()
        self._bring_code(seen)
        sent = self._send(seen)
        asked = {found[1]: stored for path, stored in seen.items() if (found := _JOB.fullmatch(path))}
        unanswered = [name for name in asked if f"results/{name}.json" not in seen and name not in sent]
        jobs = sorted(unanswered, key=lambda name: asked[name].made)[:_MOST]
        self._claims.look(seen, asked)
        came = self._bring_jobs(jobs, asked)
        took = self._claim(jobs)
        self._publish()
        self._claims.beat()
        return bool(sent or came or took)

    def _bring_code(self, seen: Mapping[str, Stored]) -> None:
        if CODE in seen and self._got.get(CODE) != seen[CODE].version and (data := self._store.read(CODE)):
            try:
                worker_payload.unpack(self._spool.root, data)
            except ValueError as error:  # perhaps on its way
                self._say_once(f"{self._store.url}/{CODE} is left alone: {error}")
            else:
                self._got[CODE] = seen[CODE].version

    def _send(self, seen: Mapping[str, Stored]) -> list[str]:
        """Put results up that somebody waits for, and have no more of their jobs here."""
        sent = []
        for path in self._spool.results.glob("*.json"):
            name = path.stem
            if f"jobs/{name}.json" in seen and f"results/{name}.json" not in seen:
                self._store.write(f"results/{name}.json", path.read_bytes())
            self._forget(name)
            path.unlink()
            sent.append(name)
        return sent

    def _bring_jobs(self, jobs: list[str], asked: Mapping[str, Stored]) -> bool:
        """Have these jobs here, and no others; whether one was new."""
        came = False
        for gone in {path.stem for path in self._spool.jobs.glob("*.json")} - set(jobs):
            self._forget(gone)
        for name in jobs:
            path, version = f"jobs/{name}.json", asked[name].version
            if self._got.get(path) == version or asked[name].size > LARGEST or (data := self._store.read(path)) is None:
                continue
            if name not in self._claims.mine:
                write(self._held(name), self._me)
            home.write(self._spool.root / path, data)
            self._got[path] = version
            came = True
        self._heartbeat.files = tuple(self._held(name) for name in jobs if name not in self._claims.mine)
        return came

    def _claim(self, jobs: list[str]) -> bool:
        """Have as many jobs claimed as there are devices; whether one is new. What the worker refuses is given free."""
        signs = [read(path) or {} for path in self._spool.workers.glob("*.json")]
        refused = {name for sign in signs for name in sign.get("refuses", {})}
        self._ready = bool(signs)
        for name in self._claims.mine.keys() & refused:
            self._claims.release(name)
        took = False
        for name in jobs if self._ready and not self._stopping else ():
            if len(self._claims.mine) >= len(self._options.devices):
                break
            if name not in self._claims.mine and name not in refused and self._is_for_us(name):
                if not self._claims.take(name):
                    continue
                if self._store.has(f"results/{name}.json") or not self._store.has(f"jobs/{name}.json"):
                    self._claims.release(name)  # another has answered it since the listing
                    continue
                self._heartbeat.files = tuple(path for path in self._heartbeat.files if path != self._held(name))
                self._held(name).unlink(missing_ok=True)
                took = True
        return took

    def _is_for_us(self, name: str) -> bool:
        with contextlib.suppress(InvalidFile):
            if job := self._spool.job(name):
                return self._options.target in ("", job.target.name)
        return False

    def _held(self, name: str) -> Path:
        """The claim of this process in the worker's folder, which keeps a job from it."""
        return self._spool.claims / f"{name}.0"

    def _forget(self, name: str) -> None:
        """Have no job of that name here, and no claim on it."""
        self._claims.release(name)
        self._got.pop(f"jobs/{name}.json", None)
        (self._spool.jobs / f"{name}.json").unlink(missing_ok=True)
        if (read(self._held(name)) or {}).get("pid") == self._me["pid"]:
            self._held(name).unlink(missing_ok=True)

    # -- who is here -------------------------------------------------------------------------------

    def _publish(self) -> None:
        """Show the worker's signs in the store, as often as it gives them."""
        here = {path.name: path for path in self._spool.workers.glob("*.json")}
        for name, path in here.items():
            with contextlib.suppress(FileNotFoundError):
                touched = path.stat().st_mtime_ns
                if self._signs.get(name) != touched:
                    self._store.write(f"workers/{name}", path.read_bytes())
                    self._signs[name] = touched
        for name in self._signs.keys() - here.keys():
            self._store.remove([f"workers/{name}"])
            del self._signs[name]

    def _remove_dead_signs(self) -> None:
        """Of workers of this machine that were killed."""
        for path in filter(SIGN.fullmatch, self._store.listed()):
            with contextlib.suppress(ValueError):
                sign = json.loads(self._store.read(path) or b"")
                if isinstance(sign, dict) and job_locks.is_dead(sign):
                    self._store.remove([path])

    def _say_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            say(text)


@contextlib.contextmanager
def _own_folder(url: str) -> Iterator[Path]:
    """A folder below the cache that no other process has: what one that was killed has left in it is sent."""
    base = home.cache("spool", hashlib.sha256(url.encode()).hexdigest()[:16])
    for number in itertools.count():
        folder = base / str(number)
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / "lock", "wb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            yield folder
            return
