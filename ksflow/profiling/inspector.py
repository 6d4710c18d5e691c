"""What tools say of a kernel that was accepted on a GPU: hardware counters, and faults that its results do not show."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ksflow.compilers import BuildResult
from ksflow.processes.device_lock import DeviceBusy, lock_device
from ksflow.profiling import ncu, rocprof, sanitizer
from ksflow.profiling.workload import Workload, workloads
from ksflow.records import Json, Kernel, Problem

_PATIENCE_S, _SANITIZER_S = 120.0, 30.0
_LOCK_S = 600.0
"""So long is a device waited for that others judge on by turns."""


@dataclass(frozen=True)
class AcceptedKernel:
    """A kernel that was accepted, as it was built."""

    problem: Problem
    kernel: Kernel
    made: BuildResult

    def workloads(self) -> tuple[Workload, ...]:
        """What tools are to watch."""
        if self.made.artefact:
            mode = "launch" if self.made.mode == "strong" else "native"
            return workloads(self.problem, mode, self.made.artefact)
        main = next(iter(self.kernel.files))
        return workloads(self.problem, "torch", main, {**self.problem.files, **self.kernel.files})


@dataclass(frozen=True)
class Inspector:
    """Which tools look at which kernels."""

    profile: bool
    """Counters of every kernel."""
    sanitize: bool
    """compute-sanitizer on those that are faster than the incumbent, once each; AMD has no such tool."""
    platform: str = "cuda"
    """`cuda` or `hip`: on any other, there is no device that a tool could look at."""
    _sanitized: dict[tuple[str, str], list[Json]] = field(default_factory=dict)
    """By the problem's digest and the kernel's."""

    def __call__(
        self, accepted: AcceptedKernel, evidence: Json, environment: Mapping[str, str], device_uuid: str
    ) -> Json:
        """More evidence; a `fault` in it says why the kernel is wrong after all.

        environment: what the kernel needs. device_uuid: of the GPU, whose lock is held while tools run.
        """
        winner = self.sanitize and self.platform == "cuda" and bool(evidence.get("claim", {}).get("faster"))
        if self.platform not in ("cuda", "hip") or not (self.profile or winner):
            return {}
        found: Json = {}
        key = accepted.problem.digest, accepted.kernel.digest
        try:
            if self.profile or key not in self._sanitized:
                with lock_device(device_uuid, _LOCK_S):
                    watched = accepted.workloads()
                    if self.profile:
                        tool = rocprof if self.platform == "hip" else ncu
                        found["profile"] = tool.profile(watched[0], _PATIENCE_S, environment)
                    if winner and key not in self._sanitized:
                        chosen = sanitizer.TOOLS[:3]
                        self._sanitized[key] = sanitizer.sanitize(watched, _SANITIZER_S, chosen, environment)
        except DeviceBusy as error:
            row = {"tool": "lock", "refused": str(error)}
            return ({"profile": row} if self.profile else {}) | ({"sanitizer": [row]} if winner else {})
        return {**found, **_tell(accepted, self._sanitized[key])} if winner else found


def _tell(accepted: AcceptedKernel, rows: list[Json]) -> Json:
    """In strong mode all device code is the kernel's, and an access out of bounds makes it wrong; a race or an unset
    value may be meant, and is told. In host mode the libraries that it calls launch kernels, too: all is told only.
    """
    for row in rows:
        if accepted.made.mode == "strong" and row["tool"] == "memcheck" and row.get("errors"):
            fault = f"memcheck: {row['errors']} errors, the first: {row.get('finding', '')}"
            return {"sanitizer": rows, "fault": fault}
    return {"sanitizer": rows}
