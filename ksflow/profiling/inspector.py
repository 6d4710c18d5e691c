"""What tools say of a kernel that was accepted on a GPU: hardware counters, and faults that its results do not show."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ksflow.compilers import BuildResult
from ksflow.processes.device_lock import DeviceBusy, lock_device
from ksflow.profiling import ncu, rocprof, sanitizer
from ksflow.profiling.workload import Workload, jobs
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

    def jobs(self) -> tuple[Workload, ...]:
        """What tools are to watch."""
        if self.made.mode == "strong":
            return jobs(self.problem, "launch", self.made.artefact)
        if self.made.artefact:
            return jobs(self.problem, "native", self.made.artefact)
        names = self.problem.files.items()
        others = {name: text for name, text in names if name not in self.kernel.files}
        return jobs(self.problem, "torch", next(iter(self.kernel.files)), {**self.kernel.files, **others})


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
        key = accepted.problem.digest, accepted.kernel.digest
        if winner and not self.profile and key in self._sanitized:
            return self._told(accepted, self._sanitized[key])
        try:
            with lock_device(device_uuid, _LOCK_S):
                return self._look(accepted, winner, environment)
        except DeviceBusy as error:
            row = {"tool": "lock", "refused": str(error)}
            return ({"profile": row} if self.profile else {}) | ({"sanitizer": [row]} if winner else {})

    def _look(self, accepted: AcceptedKernel, winner: bool, environment: Mapping[str, str]) -> Json:
        wanted = accepted.jobs()
        found: Json = {}
        if self.profile:
            tool = rocprof if self.platform == "hip" else ncu
            found["profile"] = tool.profile(wanted[0], _PATIENCE_S, environment)
        if winner:
            key = accepted.problem.digest, accepted.kernel.digest
            if key not in self._sanitized:
                self._sanitized[key] = sanitizer.sanitize(wanted, _SANITIZER_S, sanitizer.TOOLS[:3], environment)
            found |= self._told(accepted, self._sanitized[key])
        return found

    @staticmethod
    def _told(accepted: AcceptedKernel, rows: list[Json]) -> Json:
        """In strong mode all device code is the kernel's, and a finding is its fault. In host mode the libraries that
        it calls launch kernels, too, so findings are told only."""
        return {"sanitizer": rows, **(_fault(rows) if accepted.made.mode == "strong" else {})}


def _fault(rows: list[Json]) -> Json:
    """An access out of bounds is a wrong kernel; a race or an unset value may be meant, and is told."""
    for row in rows:
        if row["tool"] == "memcheck" and row.get("errors"):
            return {"fault": f"memcheck: {row['errors']} errors, the first: {row.get('finding', '')}"}
    return {}
