"""The compilers' sandbox: sources -> one file, cached under a digest of everything that it depends on.

Covered: a scrubbed environment, the layers of a sandbox (`ksflow.evaluation.sandbox`), limits on wall and CPU time,
memory and disk, a cache that concurrent runs can share.
NOT covered: where sandboxes reach `rlimits` only, a source can have the compiler read the user's files (`#include`,
`.incbin`).
"""

import contextlib
import hashlib
import os
import re
import shutil
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ksflow import home
from ksflow.errors import ConfigError
from ksflow.evaluation.processes.child_environment import child_environment
from ksflow.evaluation.processes.server_process import ServerProcess
from ksflow.evaluation.processes.wire import Closed
from ksflow.evaluation.sandbox.levels import PRIVATE, probe
from ksflow.records import Json

_UNFINISHED = "tmp-"
_LOG = 4000
_FILE_MB, _DISK_MB = 256, 512
_HELD = ("landlock", *PRIVATE)  # levels at which a kernel cannot write to the user's files
_DIGESTS: dict[str, str] = {}  # path of a cached file -> SHA-256
_KEPT_BYTES, _KEPT_S = 2 << 30, 30 * 86400
_ERROR = re.compile(r"(?:fatal )?[eE]rror: |undefined reference|undefined symbol|: error:")


@dataclass(frozen=True)
class BuildResult:
    """Result of building a kernel: an artefact to launch, or the reason for a failure."""

    artefact: str = ""
    """Path of the shared object (host mode) or the device container (strong mode); empty if none is needed."""
    reason: str = ""  # why it cannot be built; empty if it can
    log: str = ""
    timed_out: bool = False
    cached: bool = False
    mode: str = "host"
    """`strong`: device code alone, launched by our launcher; `host`: the kernel's own host code launches."""
    resources: tuple[Json, ...] = ()
    """A row for each kernel and variant: registers, shared memory, occupancy, instructions."""


def cached_build(
    name: str, ending: str, make: Callable[[Path], BuildResult], own_fault: re.Pattern[str]
) -> BuildResult:
    """Return the artefact cached under `name`, else the result of `make`, which writes it to the given path.

    `name` must depend on all inputs. A failure whose log matches `own_fault` is cached too.
    """
    trim_cache(home.cache("build"))
    folder = home.cache("build", name[:2])
    done, failed = folder / f"{name}.{ending}", folder / f"{name}.log"
    if _is_kept(done):
        os.utime(done)
        return BuildResult(str(done), cached=True)
    if _is_kept(failed):
        return failure(failed.read_text(encoding="utf-8"), cached=True)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=_UNFINISHED, dir=folder) as work:
        artefact = Path(work, f"made.{ending}")
        built = make(artefact)
        if built.artefact:
            _DIGESTS[str(done)] = _digest(artefact)
            os.replace(artefact, done)
            return BuildResult(str(done))
        if built.reason and not built.timed_out and own_fault.search(built.log) and "emory" not in built.log:
            home.write(failed, built.log)
            _DIGESTS[str(failed)] = _digest(failed)
        return built


def digest_of(artefact: str) -> str:
    """Return the SHA-256 of a cached file as this process wrote or found it; "" for any other file."""
    return _DIGESTS.get(artefact, "")


def _is_kept(file: Path) -> bool:
    """Return whether a cached file can be trusted: it belongs to this user or root, others cannot write to it, and it
    is unchanged since this process made or found it. If kernels run as this user, another process' file may be a
    kernel's work and is made again."""
    try:
        status, digest_now = os.lstat(file), _digest(file)
    except OSError:
        return False
    known = _DIGESTS.get(str(file))
    if known is None and os.getuid() and probe().level not in _HELD:
        return False
    theirs = status.st_uid not in (0, os.getuid()) or bool(status.st_mode & stat.S_IWOTH)
    if theirs or not stat.S_ISREG(status.st_mode) or known not in (None, digest_now):
        return False
    _DIGESTS[str(file)] = digest_now
    return True


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def box_request(
    command: Sequence[str], files: Mapping[str, str], result: Path, limit: float, memory_mb: int, **options: Any
) -> Json:
    """Return a request: one command in one sandbox, which makes one file. options: overrides of the sandbox's order."""
    order = {
        "level": probe().level,
        "command": [*command],
        "makes": result.name,
        "environment": boxed_environment({}),
        "memory_mb": memory_mb,
        "cpu_s": int(limit) + 5,
        "file_mb": _FILE_MB,
        "disk_mb": _DISK_MB,
        **options,
    }
    return {"files": files, "order": order, "wall_s": limit, "into": str(result) if result.name else ""}


def boxed_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a command in a sandbox, which has its own TMPDIR."""
    return {name: value for name, value in child_environment(extra).items() if name != "TMPDIR"}


def lasting_folder(user: int, *parts: str) -> tuple[str, Json]:
    """Return a cache folder that outlives the sandboxes writing to it, and the options of their order.

    user: the sandboxes' user if this process is root, so that each may change the files of earlier ones.
    """
    folder = home.cache(*parts)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    order: Json = {"writable": [str(folder)]}
    if os.getuid() == 0:
        order["uid"] = user
        os.chown(folder, user, user)
    return str(folder), order


def stopped(answer: Json, whose: str, limit: float, memory_mb: int) -> str:
    """Return why a sandbox ended its command, "" if the command ended by itself. Raises ConfigError if the sandbox did
    not start."""
    words = answer["words"]
    if answer["timed_out"]:
        return f"took longer than {limit:g} s"
    if "exit" not in words and "disk" not in words:
        raise ConfigError(f"the {whose}'s sandbox does not start: {words.get('fault', 'its supervisor ended')}")
    if "memory" in words:
        return f"used up its memory ({memory_mb} MB)"
    return "filled its disk" if "disk" in words else ""


def python_fault(log: str) -> str:
    """Return why a sandbox could not start its Python script, by its log; "" if it started."""
    words = f"sandboxes cannot run {sys.executable}: use a Python that every user may read and run"
    return words if re.match(r"\[Errno \d+\] ", log) else ""


def outcome(answer: Json, artefact: str, limit: float, memory_mb: int) -> BuildResult:
    """Return the result of a compiler's request. Raises ConfigError if sandboxes do not start."""
    status = answer["words"].get("exit")
    if status == "0" and not answer["timed_out"]:
        return BuildResult(artefact)
    why = stopped(answer, "compiler", limit, memory_mb)
    lines = answer["log"].splitlines()
    first = next((index for index, line in enumerate(lines) if _ERROR.search(line)), 0)
    text = "\n".join(lines[max(first - 2, 0) :])[:_LOG]
    if why:
        return BuildResult(reason=f"compile: {why}", log=text, timed_out=answer["timed_out"])
    return failure(text or f"the compiler ended with status {status}")


class CompileServer:
    """The process that runs compilers in sandboxes, started by the first request.

    grace_s: time for its own work, beside the limit of a command.
    """

    def __init__(self, grace_s: float = 30.0) -> None:
        self._grace_s = grace_s
        self._lock = threading.Lock()
        self._child: ServerProcess | None = None

    def ask(self, request: dict[str, Any], limit: float) -> dict[str, Any]:
        """Return the answer; a process that died is restarted once. Raises ConfigError if that fails."""
        cause = ""
        with self._lock:
            for _ in range(2):
                if self._child is None:
                    self._child = ServerProcess("ksflow.evaluation.compilers.server", {})
                elif not self._child.alive:
                    self._child.restart()
                try:
                    return self._child.ask(request, limit + self._grace_s)
                except Closed as error:
                    cause = str(error)
        raise ConfigError(f"the process that runs compilers does not answer: {' '.join(cause.split())}")

    @property
    def pid(self) -> int:
        """The process id; 0 before the first request."""
        return self._child.pid if self._child else 0


SHARED_SERVER = CompileServer()  # the server that all compilers share; more may be started beside it


@cache
def trim_cache(folder: Path) -> None:
    """Remove files that are old, then the least recently used beyond the size limit. Runs once per process."""
    used, total, oldest = [], 0, time.time() - _KEPT_S
    for path in folder.glob("??/*"):
        with contextlib.suppress(FileNotFoundError, PermissionError):
            status = path.lstat()
            if path.is_file():
                used.append((status.st_mtime, status.st_size, path))
            elif path.name.startswith(_UNFINISHED) and status.st_mtime < oldest:
                shutil.rmtree(path, ignore_errors=True)
    for when, size, path in sorted(used, reverse=True):
        total += size
        if total > _KEPT_BYTES or when < oldest:
            path.unlink(missing_ok=True)


def failure(log: str, cached: bool = False) -> BuildResult:
    """Return a failed result whose reason is the first error of the log."""
    lines = log.splitlines()
    reason = next((line for line in lines if _ERROR.search(line)), lines[0])
    return BuildResult(reason=reason[:300], log=log, cached=cached)
