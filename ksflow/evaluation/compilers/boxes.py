"""What GPU compilers share: their requests, and jobs in sandboxes, several at once if there are cores.

A job is one sandbox: sources, a script to run, and a function `distil` that turns the answer into the JSON object to
cache, under a digest of everything that it depends on. A failure of the source itself is cached too.
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

from ksflow.errors import ConfigError
from ksflow.evaluation.compilers import client
from ksflow.evaluation.compilers.client import SHARED_SERVER, BuildResult, CompileServer
from ksflow.kernels.source.launches import CaseLaunch, CasePlan, with_constants
from ksflow.records import Json, Kernel, Limits, Problem, Target, digest

_VERSION = "3"  # version of cached results; change it with a `distil` function
_ROOM = 4  # memory factor: GPU compilers map far more than they use
FAULT = re.compile(
    r"^error: |\): error|:\d+:\d+: (?:fatal )?error: |undefined (?:symbol|reference)|ptxas.* error: ", re.M
)
"""Matches errors of the source, for which a second attempt is useless."""


@dataclass(frozen=True)
class CompileJob:
    """One compilation in a sandbox."""

    script: str  # a file of this package that runs in the sandbox: `steps_box.py`
    order: Json  # input of the script
    files: Mapping[str, str]
    version: str  # of all compilers involved
    distil: Callable[[Json], Json]
    explain: Callable[[str], str] = str  # the compiler's log -> its relevant part, the reason first
    extra: tuple[str, ...] = ()  # further folders that the sandbox may read
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def sources(self) -> dict[str, str]:
        """All files of the sandbox."""
        script = Path(__file__).with_name(self.script).read_text(encoding="utf-8")
        return {**self.files, f".{self.script}": script, ".order.json": json.dumps(self.order, sort_keys=True)}

    @property
    def digest(self) -> str:
        """Digest of everything that the result depends on."""
        return digest(_VERSION, self.version, *(f"{name}\0{text}" for name, text in self.sources.items()), digits=32)


@dataclass(frozen=True)
class CompileRequest:
    """A kernel for a target, with its variants and plans in strong mode."""

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
        """Return the sources of a variant."""
        return {**self.kernel.files, self.main: with_constants(self.kernel.main, values)}


@dataclass(frozen=True)
class DeviceFunction:
    """A device function compiled for a launch."""

    code: str  # base 64
    kernel: str  # its name in the code
    block: tuple[int, int, int]
    shared: int  # dynamic shared memory in bytes
    facts: Json  # the compiler's figures; `parameters`: the size of each, if only the compiler reports it
    spare: bool = False  # whether the compiler may have added parameters that no launch line has


@dataclass(frozen=True, kw_only=True)
class Toolchain:
    """One GPU compiler."""

    platform: str  # `cuda` or `hip`
    version: str

    def jobs(self, request: CompileRequest) -> list[CompileJob]:
        """Return one job for each variant."""
        raise NotImplementedError

    def host(self, request: CompileRequest) -> CompileJob | None:
        """Return the job of host mode; None if not available, or if the kernel is compiled when it runs."""

    def entry(self, request: CompileRequest, units: Sequence[Json], variant: int, step: CaseLaunch) -> DeviceFunction:
        """Return a launch's function, by its name, mangled or not. Raises ValueError, which lists the functions."""
        kernels, name = units[variant]["kernels"], step.kernel
        mangled = [other for other in kernels if other.startswith(f"_Z{len(name)}{name}")]
        if name not in kernels and len(mangled) != 1:
            there = f"it has {', '.join(kernels)}" if kernels else "it has no kernels"
            hint = f'{there}; declare it extern "C" __global__'
            raise ValueError(f"launch: {name}: the code has no kernel of this name, {hint}")
        name = name if name in kernels else mangled[0]
        return DeviceFunction(units[variant]["code"], name, step.block, step.shared, kernels[name])


def run(jobs: Sequence[CompileJob], limits: Limits) -> list[BuildResult]:
    """Return the results in the order of the jobs; an artefact is a JSON file. Raises ConfigError if sandboxes do not
    start.
    """
    with ThreadPoolExecutor(min(_SERVERS, max(len(jobs), 1))) as pool:
        return list(pool.map(lambda job: _result(job, limits), jobs))


def _result(job: CompileJob, limits: Limits) -> BuildResult:
    def make(file: Path) -> BuildResult:
        command, memory_mb = [sys.executable, "-P", f".{job.script}"], limits.memory_mb * _ROOM
        environment = client.boxed_environment(job.environment)
        options = {"kind": "json", "environment": environment, "extra": list(job.extra)}
        request = client.box_request(command, job.sources, file, limits.compile_s, memory_mb, **options)
        server = _FREE.get()
        try:
            answer = server.ask(request, limits.compile_s)
        finally:
            _FREE.put(server)
        if why := client.python_fault(answer["log"]):
            raise ConfigError(why)
        answer["log"] = job.explain(answer["log"])
        built = client.outcome(answer, str(file), limits.compile_s, memory_mb)
        try:
            if built.artefact:
                file.write_text(json.dumps(job.distil(json.loads(file.read_text(encoding="utf-8")))), encoding="utf-8")
        except (ValueError, TypeError, KeyError, RecursionError) as error:  # the source may have written it
            why = " ".join(str(error).split())[:200]
            return BuildResult(reason=f"compile: the compiled file cannot be read: {why}")
        return built

    built = client.cached_build(job.digest, "json", make, FAULT)
    return replace(built, reason=built.reason.removeprefix("error: "))


_SERVERS = max(len(os.sched_getaffinity(0)) - 1, 1)
"""Compile servers, each with one sandbox at a time: the shared one, and more if there are cores to spare."""
_FREE: "queue.SimpleQueue[CompileServer]" = queue.SimpleQueue()
for _server in (SHARED_SERVER, *(CompileServer() for _ in range(_SERVERS - 1))):
    _FREE.put(_server)
