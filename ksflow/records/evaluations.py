"""What the judge says of a kernel, and what that holds for."""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from ksflow.records.base import Record, plausible
from ksflow.records.evidence import Claim, Comparison, Evidence


class Verdict(StrEnum):
    """What the judge says of a kernel."""

    ACCEPT = "accept"
    INCORRECT = "reject-incorrect"
    CHEAT = "reject-cheat"
    IMPOSSIBLE = "reject-impossible"
    MALFORMED = "malformed-answer"
    CRASH = "contained-crash"
    TIMEOUT = "contained-timeout"
    COMPILE = "compile-error"
    UNTIMED = "untimed"
    """Made for a target that is not here, and right where it could be emulated: nothing was timed."""
    HARNESS = "harness-error"

    @property
    def blameless(self) -> bool:
        """Whether it says nothing against the kernel, and nothing of its time."""
        return self in (Verdict.UNTIMED, Verdict.HARNESS)


@dataclass(frozen=True, slots=True)
class Timing(Record):
    """One benchmark's time, per call."""

    case: str
    us: float
    """The statistic that is ranked (a low percentile of wall time on CPU, a median on GPU)."""
    samples_us: tuple[float, ...] = ()
    cpu_us: float | None = None
    """The same statistic of CPU time, as seen from outside the process."""

    def __post_init__(self) -> None:
        if not plausible(self.us):
            raise ValueError(f"a time must be finite and positive, not {self.us}")


@dataclass(frozen=True, slots=True)
class Evaluation(Record):
    """The judge's word. It has timings and a score exactly when the verdict is `accept`."""

    verdict: Verdict
    reason: str = ""
    """One line for a person, of 500 characters at most whatever is given; empty when accepted."""
    score_us: float | None = None
    timings: tuple[Timing, ...] = ()
    evidence: Evidence = Evidence()  # noqa: RUF009 - Evidence is frozen
    """What the verdict rests on: seeds, errors against bounds, logs, ratios with intervals."""
    isolation: str = "none"
    target: str = ""
    """Fingerprint of the machine and its compiler."""
    wall_s: float = 0.0
    """How long judging took."""
    judge: str = ""
    """The judge's name and version; another version may say something else."""
    problem: str = ""
    """Digest of the problem it was judged on."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", " ".join(self.reason.split())[:500])
        accepted = self.verdict is Verdict.ACCEPT
        if accepted != bool(self.timings) or accepted != (self.score_us is not None):
            raise ValueError(f"timings and score belong to `accept` alone, not to `{self.verdict}`")
        if self.score_us is not None and not plausible(self.score_us):
            raise ValueError(f"a score must be finite and positive, not {self.score_us}")

    @property
    def accepted(self) -> bool:
        """Right, and timed."""
        return self.verdict is Verdict.ACCEPT

    @property
    def claim(self) -> Claim | None:
        """How it did beside the incumbent, with the control; None where there was no incumbent."""
        return self.evidence.claim

    @property
    def unranked(self) -> str:
        """Why it could not be ranked when it was judged; empty when it could."""
        off = self.claim and not self.claim.ranked and (self.claim.why or "the control was off")
        return off or self.evidence.unranked

    @property
    def confirmed(self) -> int:
        """The run's newest confirmation that it came out of behind nothing; 0 where there is none.

        Of a record from before that was kept, as its comparisons tell it.
        """
        record = self.evidence
        newest = max((row.moment for row in record.against), default=0)
        behind = any(row.slower for row in record.against if row.moment == newest)
        return record.confirmed or (0 if behind or record.unconfirmed else newest)

    @property
    def lasting(self) -> bool:
        """Whether it speaks of the kernel, and not of what the machine was doing just then."""
        return self.verdict not in (Verdict.HARNESS, Verdict.TIMEOUT) and not self.unranked

    def beside(self, other: str) -> Comparison | None:
        """How it did beside a trial; None where it was not timed beside that one."""
        return next((row for row in self.evidence.against if row.id == other), None)

    def with_evidence(self, **changes: Any) -> "Evaluation":
        """The same verdict with some of its evidence replaced."""
        return replace(self, evidence=replace(self.evidence, **changes))


@dataclass(frozen=True)
class Key:
    """What a result holds for, beside its kernel. A result with another key is stale: kept, shown, not compared."""

    problem: str = ""
    """The problem's digest."""
    judge: str = ""
    target: str = ""
    """The machine's fingerprint; empty when the evaluator does not tell, and then not compared."""
    isolation: str = ""
    """The level at which kernels are held; empty when the evaluator does not tell. Only the cache looks at it: a record
    is not stale because the machine holds kernels in another way now."""

    def changed(self, evaluation: Evaluation) -> str:
        """What differs from the evaluation's key, in words; empty when nothing does."""
        differs = {
            "problem": evaluation.problem != self.problem,
            "judge": evaluation.judge != self.judge,
            "target": bool(self.target) and evaluation.target != self.target,
        }
        return ", ".join(name for name, other in differs.items() if other)


@dataclass(frozen=True)
class Approval:
    """A person's last word on a kernel: a tag in the lineage."""

    by: str
    note: str
    commit: str
    """The commit that was approved."""
    date: str
    current: bool = True
    """Whether the kernel's branch still ends there."""

    def __str__(self) -> str:
        text = f"approved by {self.by}{f': {self.note}' if self.note else ''}"
        return text if self.current else f"{text} (as of commit {self.commit[:10]})"


@dataclass(frozen=True)
class Kept(Record):
    """An evaluation in the cache, with what it is of."""

    kernel: str
    """The kernel's digest."""
    name: str
    """The problem's name."""
    source: str
    """What had it judged: a branch, or the command `evaluate`."""
    date: str
    """When, in ISO 8601."""
    evaluation: Evaluation
