"""What compilers for GPUs share: what is asked of them, and compiling in boxes, several at once where there are cores.

A job is one box: sources, what runs there, and what of its answer is kept. Kept is what `distil` makes of the answer: a
JSON object, in a file named by everything it depends on. A failure that is the source's own is kept too.
"""

import json
import os
import queue
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from ksflow.compilers.client import (
    SHARED_SERVER,
    BuildResult,
    CompileServer,
    box_request,
    boxed_environment,
    cached_build,
    outcome,
)
from ksflow.errors import ConfigError
from ksflow.records import Json, Kernel, Limits, Problem, Target, digest
from ksflow.source.launches import CaseLaunch, CasePlan, with_constants

_VERSION = "3"
"""Of what is kept; a new one where a distiller changes."""
_ROOM = 4
"""Compilers for GPUs map far more memory than they use."""
_CLOSED = re.compile(r"\[Errno \d+\] ")
"""The script was not even started."""
FAULT = re.compile(
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
    def sources(self) -> dict[str, str]:
        """All files of the box."""
        script = Path(__file__).with_name(self.script).read_text(encoding="utf-8")
        return {**self.files, f".{self.script}": script, ".order.json": json.dumps(self.order, sort_keys=True)}

    @property
    def digest(self) -> str:
        """Names everything that its result depends on."""
        return digest(_VERSION, self.version, *(f"{name}\0{text}" for name, text in self.sources.items()), digits=32)


@dataclass(frozen=True)
class CompileRequest:
    """A kernel for a target, with its variants and plans where it is in strong mode."""

    problem: Problem
    kernel: Kernel
    target: Target
    variants: Sequence[Mapping[str, str]] = ()
    plans: Mapping[str, CasePlan] = field(default_factory=dict)

    @property
    def main(self) -> str:
        """The name of the file with the launch lines."""
        return next(iter(self.kernel.files))

    def files(self, values: Mapping[str, str]) -> dict[str, str]:
        """The sources of a variant."""
        return {**self.kernel.files, self.main: with_constants(self.kernel.main, values)}


@dataclass(frozen=True)
class DeviceFunction:
    """A device function that was made for a launch."""

    code: str
    """Base 64; empty where no linker was found."""
    kernel: str
    """Its name in the code."""
    block: tuple[int, int, int]
    shared: int
    """Dynamic shared memory in bytes."""
    facts: Json
    """Figures of the compiler's; `parameters`: the size of each, where only the compiler tells."""
    spare: bool = False
    """Whether the compiler may have given it parameters that no launch line has."""


@dataclass(frozen=True, kw_only=True)
class Toolchain:
    """One compiler for GPUs."""

    platform: str
    """`cuda` or `hip`."""
    version: str
    """What is on record."""

    @property
    def note(self) -> str:
        """What cannot be had with it; empty otherwise."""
        return ""

    def jobs(self, request: CompileRequest) -> list[CompileJob]:
        """One for each variant."""
        raise NotImplementedError

    def host(self, request: CompileRequest) -> CompileJob | None:
        """For host mode; None where this cannot be had, or the compiler compiles when the kernel is run."""

    def knows(self, march: str) -> bool:
        """Whether there can be code for it, as far as can be told before a compiler says so."""
        return True

    def entry(self, request: CompileRequest, units: Sequence[Json], variant: int, step: CaseLaunch) -> DeviceFunction:
        """What was made for a launch: the function of its name, mangled or not. ValueError says which there are."""
        kernels, name = units[variant]["kernels"], step.kernel
        mangled = [other for other in kernels if other.startswith(f"_Z{len(name)}{name}")]
        if name not in kernels and len(mangled) != 1:
            there = f"it has {', '.join(kernels)}" if kernels else "it has no kernels"
            hint = f'{there}; declare it extern "C" __global__'
            raise ValueError(f"launch: {name}: the code has no kernel of this name, {hint}")
        name = name if name in kernels else mangled[0]
        return DeviceFunction(units[variant]["code"], name, step.block, step.shared, kernels[name])


def run(jobs: Sequence[CompileJob], limits: Limits) -> list[BuildResult]:
    """The results in the order of the jobs; an artefact is a JSON file. Raises ConfigError where boxes do not start."""
    with ThreadPoolExecutor(min(_SERVERS, max(len(jobs), 1))) as pool:
        return list(pool.map(lambda job: _result(job, limits), jobs))


def _result(job: CompileJob, limits: Limits) -> BuildResult:
    def make(file: Path) -> BuildResult:
        command, memory_mb = [sys.executable, "-P", f".{job.script}"], limits.memory_mb * _ROOM
        environment = {**boxed_environment(), **job.environment}
        options = {"kind": "json", "environment": environment, "extra": list(job.extra)}
        request = box_request(command, job.sources, file, limits.compile_s, memory_mb, **options)
        server = _FREE.get()
        try:
            answer = server.ask(request, limits.compile_s)
        finally:
            _FREE.put(server)
        if _CLOSED.match(answer["log"]):
            raise ConfigError(f"boxes cannot run {sys.executable}: use a Python that every user may read and run")
        answer["log"] = job.explain(answer["log"])
        built = outcome(answer, str(file), limits.compile_s, memory_mb)
        try:
            if built.artefact:
                file.write_text(json.dumps(job.distil(json.loads(file.read_text(encoding="utf-8")))), encoding="utf-8")
        except (ValueError, TypeError, KeyError, RecursionError) as error:  # the source's own doing may have written it
            why = " ".join(str(error).split())[:200]
            return BuildResult(reason=f"compile: what was made cannot be read: {why}")
        return built

    built = cached_build(job.digest, "json", make, FAULT)
    return replace(built, reason=built.reason.removeprefix("error: "))


_SERVERS = max(len(os.sched_getaffinity(0)) - 1, 1)
"""Compile servers, each with one box at a time: the one that all share, and more where there are cores to spare."""
_FREE: "queue.SimpleQueue[CompileServer]" = queue.SimpleQueue()
for _server in (SHARED_SERVER, *(CompileServer() for _ in range(_SERVERS - 1))):
    _FREE.put(_server)
