"""Inspection of accepted GPU kernels by tools: hardware counters, and faults that results do not show."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from ksflow.evaluation.compilers import BuildResult
from ksflow.evaluation.processes.device_lock import DeviceBusy, lock_device
from ksflow.evaluation.profiling import ncu, rocprof, sanitizer
from ksflow.evaluation.profiling.tool_sandbox import Workload, workloads
from ksflow.records import Claim, Kernel, Problem, ProfilePage, SanitizerFinding

_PATIENCE_S, _SANITIZER_S = 120.0, 30.0
_REFUSALS = 3
_LOCK_S = 600.0  # wait for a device that other judges use in turns


@dataclass(frozen=True)
class AcceptedKernel:
    """A kernel that was accepted, or that crashed, with its build."""

    problem: Problem
    kernel: Kernel
    build: BuildResult

    def workloads(self, at: str = "") -> tuple[Workload, ...]:
        """Return the workloads for tools: the case `at`, or the smallest ones."""
        if self.build.artefact:
            mode = "launch" if self.build.mode == "strong" else "native"
            return workloads(self.problem, mode, self.build.artefact, at=at)
        main = next(iter(self.kernel.files))
        return workloads(self.problem, "torch", main, {**self.problem.files, **self.kernel.files}, at)


@dataclass(frozen=True)
class Findings:
    """Results of the tools."""

    profile: ProfilePage | None = None
    sanitizer: tuple[SanitizerFinding, ...] = ()
    fault: str = ""  # why the kernel is wrong after all
    doubt: str = ""  # why the kernel is not ranked


@dataclass(frozen=True)
class Inspector:
    """Runs tools on kernels."""

    profile: bool | None
    """Read counters of every kernel; None: until they were refused several times in a row."""
    sanitize: bool
    """Run compute-sanitizer, once each, on kernels that beat the incumbent, and on crashed ones; AMD has no such
    tool."""
    platform: str = "cuda"
    """`cuda` or `hip`; other platforms have no device to inspect."""
    _sanitized: dict[tuple[str, str], tuple[SanitizerFinding, ...]] = field(default_factory=dict)
    """By the problem's digest and the kernel's."""
    _refused: list[str] = field(default_factory=list)  # reasons of the refusals since counters were last read

    def __call__(
        self, accepted: AcceptedKernel, claim: Claim | None, environment: Mapping[str, str], device_uuid: str
    ) -> Findings:
        """Return the tools' results.

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
                        self._sanitized[key] = sanitizer.sanitize(watched, _SANITIZER_S, sanitizer.TOOLS, environment)
        except DeviceBusy as error:
            return Findings(
                ProfilePage(tool="lock", refused=str(error)) if self.profile else None,
                (SanitizerFinding(tool="lock", refused=str(error)),) if winner else (),
            )
        rows = self._sanitized[key] if winner else ()
        doubts = (sanitizer.race(row, accepted.kernel, accepted.build.mode == "strong") for row in rows)
        return Findings(page, rows, _fault(accepted, rows), next(filter(None, doubts), ""))

    def crash(self, crashed: AcceptedKernel, at: str, environment: Mapping[str, str], device_uuid: str) -> str:
        """Return the invalid access of a kernel that crashed on the case `at`; "" if unknown."""
        if not self.sanitize or self.platform != "cuda":
            return ""
        with suppress(DeviceBusy), lock_device(device_uuid, _LOCK_S):
            watched = crashed.workloads(at)[:1]
            (row,) = sanitizer.sanitize(watched, _SANITIZER_S, sanitizer.TOOLS[:1], environment)
            return sanitizer.locate_access(row.finding, crashed.kernel)
        return ""

    def _readable(self, page: ProfilePage) -> ProfilePage | None:
        """Return the page; None for a refusal unless counters are required."""
        if not page.refused:
            self._refused.clear()
            return page
        self._refused.append(page.refused)
        return page if self.profile else None


def _fault(accepted: AcceptedKernel, rows: tuple[SanitizerFinding, ...]) -> str:
    """Return why the kernel is wrong: it accesses memory out of bounds, in strong mode, where all device code is its
    own. An uninitialised value may be intended."""
    for row in rows:
        if accepted.build.mode == "strong" and row.tool == "memcheck" and row.errors:
            return f"memcheck: {row.errors} errors, the first: {row.finding}"
    return ""
