"""Trials: kernels, their origins and results, and what is selected of them."""

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum

from ksflow.errors import one_line, strip_controls
from ksflow.records.base import Record
from ksflow.records.comparisons import Speedup
from ksflow.records.evaluations import Evaluation
from ksflow.records.evidence import HeldOut
from ksflow.records.kernels import Kernel
from ksflow.records.plans import Experiment


class Origin(StrEnum):
    """Where a trial came from."""

    SEED = "seed"
    EXPERIMENT = "experiment"
    REPAIR = "repair"
    PUSH = "push"  # a person put a branch into the lineage


@dataclass(frozen=True, slots=True)
class Cost(Record):
    """Tokens, dollars and seconds spent."""

    usd: float = 0.0
    tokens_in: int = 0
    tokens_out: int = 0
    calls: int = 0
    wall_s: float = 0.0
    untold: int = 0
    """Answers of unknown cost; the most that they may have cost is included."""
    tokens_cached: int = 0  # of `tokens_in`, from the provider's cache
    usd_cached: float = 0.0  # of `usd`, for cached tokens

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(*map(operator.add, _amounts(self), _amounts(other)))

    def __sub__(self, other: "Cost") -> "Cost":
        return Cost(*map(operator.sub, _amounts(self), _amounts(other)))

    @property
    def tokens(self) -> int:
        """Tokens of prompts and answers."""
        return self.tokens_in + self.tokens_out

    @property
    def cached_share(self) -> float:
        """The share of the prompts' tokens from the provider's cache."""
        return self.tokens_cached / self.tokens_in if self.tokens_in else 0.0

    def dollars(self, digits: int = 2, shares: int = 1) -> str:
        """Return a share of the cost: `$0.01`, or `at most $0.01` if some answers' cost is unknown; "" without
        prices."""
        return f"{'at most ' if self.untold else ''}${self.usd / shares:.{digits}f}" if self.usd else ""

    def split(self, shares: int) -> tuple["Cost", ...]:
        """Return equal shares whose tokens and calls add up to this cost exactly; the first shares get the
        remainders."""

        def counts(index: int) -> dict[str, int]:
            whole = {name: getattr(self, name) for name in ("tokens_in", "tokens_out", "calls", "tokens_cached")}
            return {name: count // shares + (index < count % shares) for name, count in whole.items()}

        wall_s = round(self.wall_s / shares, 3)
        even = replace(self, usd=self.usd / shares, usd_cached=self.usd_cached / shares, wall_s=wall_s)
        return tuple(replace(even, **counts(index)) for index in range(shares))


_amounts = operator.attrgetter(*(field.name for field in fields(Cost)))


@dataclass(frozen=True, slots=True)
class Finding(Record):
    """What a verifier takes for a mistake in a kernel."""

    text: str
    quote: str = ""  # the line of the kernel that it refers to; empty if none

    def __post_init__(self) -> None:
        if not self.text.strip() or len(self.text) > 1000 or len(self.quote) > 300:
            raise ValueError("a finding is 1 to 1000 characters of text, and a quote of at most 300")

    def __str__(self) -> str:
        location = f" (at the line: {one_line(strip_controls(self.quote), 300)})" if self.quote.strip() else ""
        return f"{one_line(strip_controls(self.text), 1000)}{location}"


@dataclass(frozen=True, slots=True)
class Review(Record):
    """What a verifier says of a kernel that nobody has compiled."""

    findings: tuple[Finding, ...]
    risk_percent: float  # probability that the judge rejects the kernel, as estimated
    mended: bool = False  # whether the writer then wrote another kernel, on which the verdict is

    def __post_init__(self) -> None:
        if len(self.findings) > 8:
            raise ValueError(f"a review has at most 8 findings, not {len(self.findings)}")
        if not 0 <= self.risk_percent <= 100:
            raise ValueError(f"risk_percent is 0 to 100, not {self.risk_percent}")


@dataclass(frozen=True, slots=True)
class Trial(Record):
    """One attempt: a kernel (or the reason why there is none), its origin, and its result."""

    id: str  # five digits, unique within a run: 00052
    origin: Origin
    parents: tuple[str, ...] = ()
    """(base, reference), (base,) if they are the same, () for a seed."""
    experiment: Experiment | None = None
    kernel: Kernel | None = None
    failure: str = ""  # why there is no kernel
    evaluation: Evaluation | None = None
    cost: Cost = Cost()
    name: str = ""  # a seed's file name
    baseline: bool = False
    """Whether it is a seed over which speed-ups are claimed."""
    by: str = ""  # the designer of its experiment: `Plan.by`
    form: str = ""
    """Fingerprint of the code without layout and comments: trials with the same one are repeats."""
    review: Review | None = None
    """A verifier's review of its kernel before compilation."""
    stale: str = ""
    """What has changed since it was judged (problem, judge, target). Set when read, empty on disk."""

    def __post_init__(self) -> None:
        if self.kernel is not None and self.failure:
            raise ValueError(f"trial {self.id} has both a kernel and a reason for having none")

    @property
    def wall_s(self) -> float:
        """Seconds spent on design, writing and judging."""
        return self.cost.wall_s + (self.evaluation.wall_s if self.evaluation else 0.0)

    @property
    def idea(self) -> str:
        """The experiment's description, or the seed's file name; "" for a branch pushed without a description."""
        return self.experiment.description if self.experiment else self.name

    @property
    def reason(self) -> str:
        """Why there is no kernel, or the judge's reason for a rejection; "" otherwise."""
        return self.failure or (self.evaluation.reason if self.evaluation else "")

    @property
    def score_us(self) -> float | None:
        """The score, if accepted and not stale."""
        return self.evaluation.score_us if self.evaluation and not self.stale else None

    @property
    def repeats(self) -> str:
        """The earlier trial whose verdict was taken over; "" if it was judged itself."""
        repeat = self.evaluation.evidence.repeat if self.evaluation else None
        return repeat.of if repeat else ""

    @property
    def compiles_alike(self) -> bool:
        """Whether it is a repeat by its compiled code only."""
        repeat = self.evaluation.evidence.repeat if self.evaluation else None
        return bool(repeat and repeat.compiled)

    @property
    def held_out(self) -> HeldOut | None:
        """Its results on held-out shapes; None if not judged there."""
        return self.evaluation.evidence.heldout if self.evaluation else None

    @property
    def verdict(self) -> str:
        """The verdict, or the trial's state before there is one."""
        if self.evaluation:
            return "stale" if self.stale else self.evaluation.verdict.value
        return "written" if self.kernel else "failed" if self.failure else "planned"


def first_attempt(trial: Trial, trials: Mapping[str, Trial]) -> Trial | None:
    """Return the trial that first carried out the same experiment: itself, or for a repair the first attempt of its
    chain of repairs; None if that is not among `trials`.
    """
    found: Trial | None = trial
    for _ in range(len(trials) + 1):
        if found is None or found.origin is not Origin.REPAIR:
            return found
        found = trials.get(found.parents[0]) if found.parents else None
    return None


def base_of(trial: Trial, trials: Mapping[str, Trial]) -> Trial | None:
    """Return the kernel for which a trial's experiment was designed, as for the attempt that a repair repairs; None for
    a seed, or if the kernel is not among `trials` (id -> trial).
    """
    first = first_attempt(trial, trials)
    return trials.get(first.parents[0]) if first and first.parents else None


@dataclass(frozen=True, slots=True)
class Draft(Trial):
    """A kernel that returns to its writer before compilation."""

    review: Review = Review((), 0.0)
    repaired: Trial | None = None  # the failed attempt that it repairs


@dataclass(frozen=True)
class Step:
    """One-step analysis of a kernel: the experiment that led to it, and the effect."""

    experiment: Experiment | None
    report: str
    parent: str
    before_us: Mapping[str, float]  # the parent's time per benchmark, on the population's scale
    after_us: Mapping[str, float]  # the kernel's own
    score_us: float | None = None  # its score on the scale
    versus: Mapping[str, Speedup] = field(default_factory=dict)
    """A kernel beside which it was timed -> its speed-up over that kernel."""


@dataclass(frozen=True)
class Rival:
    """A kernel to beat: the best so far, or a baseline."""

    trial: Trial
    us: float | None  # its score on the population's scale
    lead: Speedup | None = None
    """Speed-up of the best so far over it; None for the best itself, or without a connecting measurement."""


@dataclass(frozen=True)
class Selection:
    """The selector's answer."""

    base: Trial  # the kernel to change
    reference: Trial  # a second kernel to learn from; may be the base
    rationale: str
    base_step: Step
    reference_step: Step
    siblings: tuple[Trial, ...] = ()
    """The newest failed trials made from the same base, newest first."""
    rivals: tuple[Rival, ...] = ()  # the best so far, then the baselines
    avenue: str = ""
    """The avenue that the current experiment follows; "" if unknown."""
