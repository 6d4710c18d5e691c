"""Who judges which job: exclusive files, kept fresh while their owners live, taken over when they are dead.

A claim is `<id>.<n>`; the highest n counts. Whoever finds it dead creates n + 1, which only one of them can. An owner
is dead when its process is gone from this machine, or when its file stayed as it is for long, by the observer's own
clock: machines need not agree about the time. Two owners of one job cost a judgement, and nothing else.
"""

import contextlib
import json
import os
import socket
import threading
import time
from pathlib import Path

from ksflow.records import Json
from ksflow.remote.job_store import read

BEAT_S = 10.0
STALE_S = 120.0
"""Without a sign of life. File systems of several machines may show each other a minute-old state."""


def identity() -> Json:
    """This process, so that others of this machine can tell whether it lives."""
    pid = os.getpid()
    return {"host": socket.gethostname(), "machine": _machine(), "pid": pid, "started": _started(pid)}


def is_dead(owner: Json | None) -> bool:
    """Whether it was a process of this machine, and is no more. False where nobody can tell."""
    if owner is None or owner.get("machine") != _machine() or not owner["machine"]:
        return False
    return type(owner.get("pid")) is int and _started(owner["pid"]) != owner.get("started")


class JobLocks:
    """The claims of a folder, as one worker sees them over time."""

    def __init__(self, folder: Path, stale_s: float = STALE_S) -> None:
        self.folder, self.stale_s = folder, stale_s
        self._seen: dict[str, tuple[int, float]] = {}

    def take(self, name: str) -> list[Path] | None:
        """A claim of this process on a job (its files, its own last), or None while another's holds."""
        held = sorted(self.folder.glob(f"{name}.*"), key=_number)
        if held and not self._over(held[-1]):
            return None
        mine = self.folder / f"{name}.{_number(held[-1]) + 1 if held else 0}"
        try:
            fd = os.open(mine, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            return None
        with open(fd, "w", encoding="utf-8") as out:
            json.dump({**identity(), "at": time.time()}, out)
        return [*held, mine]

    def _over(self, path: Path) -> bool:
        """Whether its owner is dead."""
        try:
            beat = path.stat().st_mtime_ns
        except OSError:
            return False
        before, since = self._seen.setdefault(path.name, (beat, time.monotonic()))
        if before != beat:
            self._seen[path.name] = (beat, time.monotonic())
            return False
        return is_dead(read(path)) or time.monotonic() - since > self.stale_s


def release(claim: list[Path]) -> None:
    """Give a job free: those before go first, so that none of them counts in between."""
    for path in claim:
        path.unlink(missing_ok=True)


class Heartbeat:
    """Keeps files fresh while this process lives."""

    def __init__(self, beat_s: float = BEAT_S) -> None:
        self.files: tuple[Path, ...] = ()
        self._over = threading.Event()
        threading.Thread(target=self._beat, args=(beat_s,), daemon=True).start()

    def close(self) -> None:
        """No more."""
        self._over.set()

    def _beat(self, beat_s: float) -> None:
        while not self._over.wait(beat_s):
            for path in self.files:
                with contextlib.suppress(OSError):
                    os.utime(path)


def _number(path: Path) -> int:
    number = path.name.rpartition(".")[2]
    return int(number) if number.isdecimal() else -1


def _machine() -> str:
    """Names this boot of this machine and this space of process ids; empty where the system does not tell."""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    return ""


def _started(pid: int) -> str:
    """When a process began, in the kernel's ticks; empty where there is none, or only what is left of it."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return "" if fields[0] in "ZX" else fields[19]
    return ""
