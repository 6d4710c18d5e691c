"""The judge's verdicts, and what they apply to."""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from ksflow.records.base import Record, are_plausible
from ksflow.records.comparisons import Claim, Comparison
from ksflow.records.evidence import Evidence


class Verdict(StrEnum):
    """The judge's verdict on a kernel."""

    ACCEPT = "accept"
    INCORRECT = "reject-incorrect"
    CHEAT = "reject-cheat"
    IMPOSSIBLE = "reject-impossible"
    MALFORMED = "malformed-answer"
    CRASH = "contained-crash"
    TIMEOUT = "contained-timeout"
    COMPILE = "compile-error"
    UNTIMED = "untimed"  # for a target that is not here, and right if it could be emulated: nothing was timed
    HARNESS = "harness-error"

    @property
    def inconclusive(self) -> bool:
        """Whether it says nothing about the kernel."""
        return self in (Verdict.UNTIMED, Verdict.HARNESS)


@dataclass(frozen=True, slots=True)
class Timing(Record):
    """One benchmark's time, per call."""

    case: str
    us: float  # the ranked statistic (a low percentile of wall time on CPU, a median on GPU)
    samples_us: tuple[float, ...] = ()
    cpu_us: float | None = None  # the same statistic of CPU time, measured from outside the process

    def __post_init__(self) -> None:
        if not are_plausible(self.us):
            raise ValueError(f"a time must be finite and positive, not {self.us}")


@dataclass(frozen=True, slots=True)
class Evaluation(Record):
    """The judge's result. It has timings and a score exactly when the verdict is `accept`."""

    verdict: Verdict
    reason: str = ""
    """One line for a person, cut to 500 characters; empty when accepted."""
    score_us: float | None = None
    timings: tuple[Timing, ...] = ()
    evidence: Evidence = Evidence()  # noqa: RUF009 - Evidence is frozen
    """Seeds, errors against bounds, logs, ratios with intervals."""
    isolation: str = "none"
    target: str = ""
    """Fingerprint of the machine and its compiler."""
    wall_s: float = 0.0  # of judging
    judge: str = ""
    """The judge's name and version; results of another version are not comparable."""
    problem: str = ""  # the problem's digest

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", " ".join(self.reason.split())[:500])
        accepted = self.verdict is Verdict.ACCEPT
        if accepted != bool(self.timings) or accepted != (self.score_us is not None):
            raise ValueError(f"timings and score belong to `accept` alone, not to `{self.verdict}`")
        if self.score_us is not None and not are_plausible(self.score_us):
            raise ValueError(f"a score must be finite and positive, not {self.score_us}")

    @property
    def accepted(self) -> bool:
        """Whether the kernel is right, and timed."""
        return self.verdict is Verdict.ACCEPT

    @property
    def key(self) -> tuple[str, str, str]:
        """What it applies to: the problem's digest, the judge, the machine."""
        return self.problem, self.judge, self.target

    @property
    def claim(self) -> Claim | None:
        """Its speed-up over the incumbent, with the control; None without an incumbent."""
        return self.evidence.claim

    @property
    def why_unranked(self) -> str:
        """Why it could not be ranked when it was judged; "" if it could."""
        off = self.claim and not self.claim.ranked and (self.claim.why or "the control was off")
        return off or self.evidence.unranked

    @property
    def last_confirmation(self) -> int:
        """Number of the run's newest confirmation in which it was behind no other kernel; 0 if there is none.

        Old records do not have the number; it follows from their comparisons.
        """
        record = self.evidence
        newest = max((row.moment for row in record.against), default=0)
        behind = any(row.slower for row in record.against if row.moment == newest)
        return record.confirmed or (0 if behind or record.unconfirmed else newest)

    @property
    def cacheable(self) -> bool:
        """Whether it depends on the kernel, and not on the machine's state."""
        return self.verdict not in (Verdict.HARNESS, Verdict.TIMEOUT) and not self.why_unranked

    def versus(self, other: str) -> Comparison | None:
        """Return the comparison with a trial; None if it was not timed beside that one."""
        return next((row for row in self.evidence.against if row.id == other), None)

    def with_evidence(self, **changes: Any) -> "Evaluation":
        """Return the same verdict with some of its evidence replaced."""
        return replace(self, evidence=replace(self.evidence, **changes))


@dataclass(frozen=True)
class Key:
    """What a result applies to, beside its kernel. A result with another key is stale: kept, shown, not compared."""

    problem: str = ""  # the problem's digest
    judge: str = ""
    target: str = ""  # the machine's fingerprint; not compared if empty
    isolation: str = ""
    """The isolation level of kernels, "" if unknown. Only the cache compares it: another level does not make a record
    stale."""

    def describe_changes(self, evaluation: Evaluation) -> str:
        """Return what differs from the evaluation's key, in words; "" if nothing does."""
        differs = {
            "problem": evaluation.problem != self.problem,
            "judge": evaluation.judge != self.judge,
            "target": bool(self.target) and evaluation.target != self.target,
        }
        return ", ".join(name for name, other in differs.items() if other)


@dataclass(frozen=True)
class Approval:
    """A person's approval of a kernel: a tag in the lineage."""

    by: str
    note: str
    commit: str  # the commit that was approved
    date: str
    current: bool = True  # whether the kernel's branch still ends there

    def __str__(self) -> str:
        text = f"approved by {self.by}{f': {self.note}' if self.note else ''}"
        return text if self.current else f"{text} (as of commit {self.commit[:10]})"


@dataclass(frozen=True)
class Kept(Record):
    """An evaluation in the cache, with its kernel and problem."""

    kernel: str  # the kernel's digest
    name: str  # the problem's name
    source: str  # where it was judged: a branch, or the command `evaluate`
    date: str  # ISO 8601
    evaluation: Evaluation
