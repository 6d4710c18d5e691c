"""What tools say of a kernel that was accepted on a GPU: hardware counters, and faults that its results do not show."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ksflow.records import Json, Problem
from ksflow.stages.evaluator.profile import ncu, rocprof, sanitizer
from ksflow.stages.evaluator.profile.job import jobs
from ksflow.stages.evaluator.toolchain import Made

_PATIENCE_S, _SANITIZER_S = 120.0, 30.0
_HOST_CODE = "not run: host code of a kernel would run outside its box; launch lines make it strong mode"


@dataclass(frozen=True)
class Watch:
    """Which tools look at which kernels."""

    profile: bool
    """Counters of every kernel."""
    sanitize: bool
    """compute-sanitizer on those that are faster than the incumbent, once each; AMD has no such tool."""
    _sanitized: dict[tuple[str, str], list[Json]] = field(default_factory=dict)
    """By the problem's digest and the artefact's."""

    def __call__(self, problem: Problem, made: Made, evidence: Json, environment: Mapping[str, str]) -> Json:
        """More evidence; a `fault` in it says why the kernel is wrong after all."""
        found: Json = {}
        amd = bool(made.resources) and str(made.resources[0].get("target", "")).startswith("gfx")
        winner = self.sanitize and not amd and bool(evidence.get("claim", {}).get("faster"))
        if not (self.profile or winner):
            return found
        if made.mode != "strong":
            return {name: _HOST_CODE for name, wanted in (("profile", self.profile), ("sanitizer", winner)) if wanted}
        wanted = jobs(problem, "launch", made.artefact)
        if self.profile:
            found["profile"] = (rocprof if amd else ncu).profile(wanted[0], _PATIENCE_S, environment)
        if winner:
            key = problem.digest, hashlib.sha256(Path(made.artefact).read_bytes()).hexdigest()
            if key not in self._sanitized:
                self._sanitized[key] = sanitizer.sanitize(wanted, _SANITIZER_S, sanitizer.TOOLS[:3], environment)
            found["sanitizer"] = self._sanitized[key]
            found |= _fault(found["sanitizer"])
        return found


def _fault(rows: list[Json]) -> Json:
    """An access out of bounds is a wrong kernel; a race or an unset value may be meant, and is told."""
    for row in rows:
        if row["tool"] == "memcheck" and row.get("errors"):
            return {"fault": f"memcheck: {row['errors']} errors, the first: {row.get('finding', '')}"}
    return {}
