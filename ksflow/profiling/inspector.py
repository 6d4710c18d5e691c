"""What tools say of a kernel that was accepted on a GPU: hardware counters, and faults that its results do not show."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from ksflow.compilers import BuildResult
from ksflow.processes.device_lock import DeviceBusy, lock_device
from ksflow.profiling import ncu, rocprof, sanitizer
from ksflow.profiling.workload import Workload, workloads
from ksflow.records import Claim, Kernel, Problem, ProfilePage, SanitizerFinding

_PATIENCE_S, _SANITIZER_S = 120.0, 30.0
_REFUSALS = 3
_LOCK_S = 600.0
"""So long is a device waited for that others judge on by turns."""


@dataclass(frozen=True)
class AcceptedKernel:
    """A kernel that was accepted, or that crashed, as it was built."""

    problem: Problem
    kernel: Kernel
    build: BuildResult

    def workloads(self, at: str = "") -> tuple[Workload, ...]:
        """What tools are to watch: the case `at`, or the smallest ones."""
        if self.build.artefact:
            mode = "launch" if self.build.mode == "strong" else "native"
            return workloads(self.problem, mode, self.build.artefact, at=at)
        main = next(iter(self.kernel.files))
        return workloads(self.problem, "torch", main, {**self.problem.files, **self.kernel.files}, at)


@dataclass(frozen=True)
class Findings:
    """What tools found."""

    profile: ProfilePage | None = None
    sanitizer: tuple[SanitizerFinding, ...] = ()
    fault: str = ""
    """Why the kernel is wrong after all."""
    doubt: str = ""
    """Why the kernel is not ranked."""


@dataclass(frozen=True)
class Inspector:
    """Which tools look at which kernels."""

    profile: bool | None
    """Counters of every kernel; None is where they can be read: after so many refusals in a row nobody asks again."""
    sanitize: bool
    """compute-sanitizer on those that beat the incumbent, once each, and on those that crash; AMD has no such tool."""
    platform: str = "cuda"
    """`cuda` or `hip`: on any other, there is no device that a tool could look at."""
    _sanitized: dict[tuple[str, str], tuple[SanitizerFinding, ...]] = field(default_factory=dict)
    """By the problem's digest and the kernel's."""
    _refused: list[str] = field(default_factory=list)
    """Why counters could not be read, since they last could."""

    def __call__(
        self, accepted: AcceptedKernel, claim: Claim | None, environment: Mapping[str, str], device_uuid: str
    ) -> Findings:
        """What the tools found.

        claim: about the kernel beside the incumbent. environment: what the kernel needs. device_uuid: of the GPU, whose
        lock is held while tools run.
        """
        winner = self.sanitize and self.platform == "cuda" and claim is not None and claim.faster
        counted = self.profile or (self.profile is None and len(self._refused) < _REFUSALS)
        if self.platform not in ("cuda", "hip") or not (counted or winner):
            return Findings()
        page = None
        key = accepted.problem.digest, accepted.kernel.digest
        try:
            if counted or key not in self._sanitized:
                with lock_device(device_uuid, _LOCK_S):
                    watched = accepted.workloads()
                    if counted:
                        tool = rocprof if self.platform == "hip" else ncu
                        page = self._readable(tool.profile(watched[0], _PATIENCE_S, environment))
                    if winner and key not in self._sanitized:
                        chosen = sanitizer.TOOLS[:3]
                        self._sanitized[key] = sanitizer.sanitize(watched, _SANITIZER_S, chosen, environment)
        except DeviceBusy as error:
            return Findings(
                ProfilePage(tool="lock", refused=str(error)) if self.profile else None,
                (SanitizerFinding(tool="lock", refused=str(error)),) if winner else (),
            )
        rows = self._sanitized[key] if winner else ()
        doubts = (sanitizer.race(row, accepted.kernel, accepted.build.mode == "strong") for row in rows)
        return Findings(page, rows, _fault(accepted, rows), next(filter(None, doubts), ""))

    def crash(self, crashed: AcceptedKernel, at: str, environment: Mapping[str, str], device_uuid: str) -> str:
        """Where a kernel that crashed on the case `at` accesses what is not its own; empty where nobody can tell."""
        if not self.sanitize or self.platform != "cuda":
            return ""
        with suppress(DeviceBusy), lock_device(device_uuid, _LOCK_S):
            watched = crashed.workloads(at)[:1]
            (row,) = sanitizer.sanitize(watched, _SANITIZER_S, sanitizer.TOOLS[:1], environment)
            return sanitizer.place(row.finding, crashed.kernel)
        return ""

    def _readable(self, page: ProfilePage) -> ProfilePage | None:
        """The page; None for a refusal where nobody insists on counters."""
        if not page.refused:
            self._refused.clear()
            return page
        self._refused.append(page.refused)
        return page if self.profile else None


def _fault(accepted: AcceptedKernel, rows: tuple[SanitizerFinding, ...]) -> str:
    """Why the kernel is wrong; empty where it is not.

    In strong mode all device code is the kernel's, and an access out of bounds makes it wrong; an unset value may be
    meant, and is told. In host mode the libraries that it calls launch kernels, too: all is told only. A race in the
    kernel's own code leaves it unranked in each mode (`sanitizer.race`).
    """
    for row in rows:
        if accepted.build.mode == "strong" and row.tool == "memcheck" and row.errors:
            return f"memcheck: {row.errors} errors, the first: {row.finding}"
    return ""
