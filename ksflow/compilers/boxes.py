"""Compiling in boxes, several at once where there are cores, and finding again what was compiled before.

A job is one box: sources, what runs there, and what of its answer is kept. Kept is what `distil` makes of the answer: a
JSON object, in a file named by everything it depends on. A failure that is the source's own is kept too.
"""

import hashlib
import json
import os
import queue
import re
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ksflow import home
from ksflow.compilers.client import (
    SHARED_SERVER,
    BuildResult,
    CompileServer,
    boxed_environment,
    failure,
    outcome,
    trim_cache,
)
from ksflow.errors import ConfigError
from ksflow.records import Json, Limits
from ksflow.sandbox.levels import probe

_VERSION = "2"
"""Of what is kept; a new one where a distiller changes."""
_DISK_MB, _FILE_MB = 512, 192
_ROOM = 4
"""Compilers for GPUs map far more memory than they use."""
_UNFINISHED = "tmp-"
_ORDER = ".order.json"
_CPU_GRACE_S = 5
_CLOSED = re.compile(r"\[Errno \d+\] ")
"""The script was not even started."""
_FAULT = re.compile(
    r"^error: |\): error|:\d+:\d+: (?:fatal )?error: |undefined (?:symbol|reference)|ptxas.* error: ", re.M
)
"""The source is to blame, so that trying again is in vain."""


@dataclass(frozen=True)
class CompileJob:
    """One box."""

    script: str
    """A file of this package that runs in the box: `steps_box.py`."""
    order: Json
    """What the script reads."""
    files: Mapping[str, str]
    version: str
    """Of all compilers that take part."""
    distil: Callable[[Json], Json]
    explain: Callable[[str], str] = str
    """The compiler's log -> what of it matters, the reason first."""
    extra: tuple[str, ...] = ()
    """Further folders that the box may read."""
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Names everything that its result depends on."""
        own = [_VERSION, self._text, self.version, json.dumps(self.order, sort_keys=True)]
        words = [*own, *(f"{name}\0{text}" for name, text in self.files.items())]
        return hashlib.sha256("\0".join(words).encode()).hexdigest()[:32]

    @property
    def sources(self) -> dict[str, str]:
        """All files of the box."""
        return {**self.files, f".{self.script}": self._text, _ORDER: json.dumps(self.order)}

    @property
    def _text(self) -> str:
        return Path(__file__).with_name(self.script).read_text()


@dataclass(frozen=True)
class CompileResult:
    """What came of a job: what is kept, or why there is nothing."""

    kept: Json | None
    reason: str = ""
    log: str = ""
    timed_out: bool = False
    cached: bool = False


def run(jobs: Sequence[CompileJob], limits: Limits) -> list[CompileResult]:
    """The results in the order of the jobs. Raises ConfigError where boxes do not start."""
    trim_cache(home.cache("build"))
    with ThreadPoolExecutor(min(_SERVERS.size, max(len(jobs), 1))) as pool:
        return list(pool.map(lambda job: _result(job, limits), jobs))


class _CompileServers:
    """Compile servers, each with one box at a time: the one that all share, and more where there are cores to spare."""

    def __init__(self) -> None:
        self.size = max(len(os.sched_getaffinity(0)) - 1, 1)
        self._free: queue.SimpleQueue[CompileServer] = queue.SimpleQueue()
        self._free.put(SHARED_SERVER)
        for _ in range(self.size - 1):
            self._free.put(CompileServer())

    def ask(self, request: Json, limit: float) -> Json:
        """By whichever is free first."""
        server = self._free.get()
        try:
            return server.ask(request, limit)
        finally:
            self._free.put(server)


_SERVERS = _CompileServers()


def _result(job: CompileJob, limits: Limits) -> CompileResult:
    name = job.digest
    folder = home.cache("build", name[:2])
    done, failed = folder / f"{name}.made", folder / f"{name}.log"
    if done.exists():
        os.utime(done)
        return CompileResult(json.loads(done.read_text()), cached=True)
    if failed.exists():
        return _failed(failure(failed.read_text(), cached=True))
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=_UNFINISHED, dir=folder) as work:
        made = Path(work, "made.json")
        result = _ask(job, made, limits)
        if result.kept is not None:
            home.write(done, json.dumps(result.kept))
        elif result.reason and not result.timed_out and _FAULT.search(result.log) and "emory" not in result.log:
            home.write(failed, result.log)
        return result


def _ask(job: CompileJob, made: Path, limits: Limits) -> CompileResult:
    order: dict[str, Any] = {
        "level": probe().level,
        "command": [sys.executable, "-P", f".{job.script}"],
        "makes": made.name,
        "kind": "json",
        "environment": {**boxed_environment(), **job.environment},
        "memory_mb": limits.memory_mb * _ROOM,
        "cpu_s": int(limits.compile_s) + _CPU_GRACE_S,
        "file_mb": _FILE_MB,
        "disk_mb": _DISK_MB,
        "extra": list(job.extra),
    }
    request = {"op": "make", "files": job.sources, "order": order, "wall_s": limits.compile_s, "into": str(made)}
    answer = _SERVERS.ask(request, limits.compile_s)
    if _CLOSED.match(answer["log"]):
        raise ConfigError(f"boxes cannot run {sys.executable}: use a Python that every user may read and run")
    answer["log"] = job.explain(answer["log"])
    built = outcome(answer, str(made), limits.compile_s, order["memory_mb"])
    if not built.artefact:
        return _failed(built)
    try:
        return CompileResult(job.distil(json.loads(made.read_text())))
    except (ValueError, TypeError, KeyError, RecursionError) as error:  # the source's own doing may have written it
        return CompileResult(None, f"compile: what was made cannot be read: {' '.join(str(error).split())[:200]}")


def _failed(built: BuildResult) -> CompileResult:
    return CompileResult(None, built.reason.removeprefix("error: "), built.log, built.timed_out, built.cached)
