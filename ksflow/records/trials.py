"""What is tried: experiments, plans, and what became of them."""

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum

from ksflow.errors import one_line, printable
from ksflow.records.base import Record
from ksflow.records.evaluations import Evaluation
from ksflow.records.evidence import HeldOut, Speedup
from ksflow.records.kernels import Kernel


class Origin(StrEnum):
    """Where a trial came from."""

    SEED = "seed"
    EXPERIMENT = "experiment"
    REPAIR = "repair"
    PUSH = "push"
    """A person put a branch into the lineage."""


@dataclass(frozen=True, slots=True)
class Cost(Record):
    """What something cost."""

    usd: float = 0.0
    tokens_in: int = 0
    tokens_out: int = 0
    calls: int = 0
    wall_s: float = 0.0
    untold: int = 0
    """Answers of which nobody told what they took: the most that it may have been is in this cost."""
    tokens_cached: int = 0
    """Of `tokens_in` those that came out of the provider's cache."""
    usd_cached: float = 0.0
    """Of `usd` what these cost."""

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(*map(operator.add, _amounts(self), _amounts(other)))

    def __sub__(self, other: "Cost") -> "Cost":
        return Cost(*map(operator.sub, _amounts(self), _amounts(other)))

    @property
    def tokens(self) -> int:
        """Of prompts and answers."""
        return self.tokens_in + self.tokens_out

    @property
    def cached_share(self) -> float:
        """Of the prompts' tokens the share that came out of the provider's cache."""
        return self.tokens_cached / self.tokens_in if self.tokens_in else 0.0

    def dollars(self, digits: int = 2, shares: int = 1) -> str:
        """`$0.01`, or `at most $0.01` where nobody told what some of it was: its part of so many. Empty where no
        call had a price.
        """
        return f"{'at most ' if self.untold else ''}${self.usd / shares:.{digits}f}" if self.usd else ""

    def split(self, shares: int) -> tuple["Cost", ...]:
        """So many shares, as even as can be, whose tokens and calls add up to this cost exactly.

        What of these does not divide goes to the first shares.
        """

        def counts(index: int) -> dict[str, int]:
            whole = {name: getattr(self, name) for name in ("tokens_in", "tokens_out", "calls", "tokens_cached")}
            return {name: count // shares + (index < count % shares) for name, count in whole.items()}

        wall_s = round(self.wall_s / shares, 3)
        even = replace(self, usd=self.usd / shares, usd_cached=self.usd_cached / shares, wall_s=wall_s)
        return tuple(replace(even, **counts(index)) for index in range(shares))


_amounts = operator.attrgetter(*(field.name for field in fields(Cost)))


@dataclass(frozen=True, slots=True)
class Experiment(Record):
    """One thing to try on the base kernel."""

    description: str
    """What to change and why it should help."""
    rubric: str
    """How to tell that it was done as meant."""
    gain_percent: tuple[float, float]
    """Predicted [lowest, highest] gain of the whole score."""
    innovation: float
    """0 (routine) to 100 (never seen)."""
    changes: Mapping[str, str] = field(default_factory=dict)
    """Tunable -> value, where the experiment is an assignment of tunables."""
    avenue: int = 0
    """The number of the avenue of its plan that it follows, from 1; 0 where none is named."""

    def __post_init__(self) -> None:
        lowest, highest = self.gain_percent
        if not (math.isfinite(lowest) and math.isfinite(highest) and lowest <= highest):
            raise ValueError(f"a gain range is [lowest, highest], not {list(self.gain_percent)}")
        if not 0 <= self.innovation <= 100:
            raise ValueError(f"innovation is 0 to 100, not {self.innovation}")
        if self.avenue < 0:
            raise ValueError(f"avenue is the number of an avenue, from 1, not {self.avenue}")


@dataclass(frozen=True)
class Plan(Record):
    """The designer's answer: avenues, experiments, and which of them are run."""

    avenues: tuple[str, ...]
    experiments: tuple[Experiment, ...]
    picked: tuple[int, ...]
    """Indices into `experiments`, distinct, in the order they are run."""
    by: str = ""
    """What designed it: the variant, with its model and prompt where it has them."""

    def __post_init__(self) -> None:
        if len(set(self.picked)) != len(self.picked) or not set(self.picked) <= {*range(len(self.experiments))}:
            raise ValueError(f"picked {list(self.picked)} of {len(self.experiments)} experiments")

    def avenue_of(self, experiment: Experiment) -> str:
        """Return the avenue that one of its experiments follows; empty where none is named."""
        return self.avenues[experiment.avenue - 1] if 0 < experiment.avenue <= len(self.avenues) else ""


def portfolio(experiments: tuple[Experiment, ...], risks: Sequence[float] = ()) -> tuple[int, ...]:
    """The paper's pick, without replacement: most innovative, highest maximum, highest minimum.

    Where the chances to fail are known, each merit is what is to be expected of it; a failure gains -100 %.
    """
    merits = [(each.innovation, each.gain_percent[1] + 100, each.gain_percent[0] + 100) for each in experiments]
    hopes = [1 - risk for risk in risks] or [1.0] * len(experiments)
    picked: list[int] = []
    for merit in range(min(3, len(experiments))):
        left = [index for index in range(len(experiments)) if index not in picked]
        picked.append(max(left, key=lambda index: hopes[index] * merits[index][merit]))
    return tuple(picked)


@dataclass(frozen=True, slots=True)
class Finding(Record):
    """What a verifier takes for a mistake in a kernel."""

    text: str
    quote: str = ""
    """The line of the kernel that it is about; empty where it is about none."""

    def __post_init__(self) -> None:
        if not self.text.strip() or len(self.text) > 1000 or len(self.quote) > 300:
            raise ValueError("a finding is 1 to 1000 characters of text, and a quote of at most 300")

    def __str__(self) -> str:
        place = f" (at the line: {one_line(printable(self.quote), 300)})" if self.quote.strip() else ""
        return f"{one_line(printable(self.text), 1000)}{place}"


@dataclass(frozen=True, slots=True)
class Review(Record):
    """What a verifier says of a kernel that nobody has compiled."""

    findings: tuple[Finding, ...]
    risk_percent: float
    """How likely it takes the judge to refuse the kernel as it is."""
    mended: bool = False
    """Whether its writer wrote another kernel then: the verdict is on that one."""

    def __post_init__(self) -> None:
        if len(self.findings) > 8:
            raise ValueError(f"a review has at most 8 findings, not {len(self.findings)}")
        if not 0 <= self.risk_percent <= 100:
            raise ValueError(f"risk_percent is 0 to 100, not {self.risk_percent}")


@dataclass(frozen=True, slots=True)
class Trial(Record):
    """One attempt: a kernel (or the reason there is none), where it came from, and what became of it."""

    id: str
    """Five digits, unique within a run: 00052."""
    origin: Origin
    parents: tuple[str, ...] = ()
    """(base, reference), (base,) when they are the same, () for a seed."""
    experiment: Experiment | None = None
    kernel: Kernel | None = None
    failure: str = ""
    """Why there is no kernel."""
    evaluation: Evaluation | None = None
    cost: Cost = Cost()
    name: str = ""
    """The seed's file name, where it is a seed."""
    baseline: bool = False
    """Whether it is a seed that speed-ups are claimed against."""
    by: str = ""
    """What designed its experiment: `Plan.by`."""
    form: str = ""
    """Names the code without its layout and comments (see `fingerprint`): two trials of one form are repeats."""
    review: Review | None = None
    """What a verifier said of its kernel before it was compiled."""
    stale: str = ""
    """What has changed since it was judged (problem, judge, target). Found out when read, empty on disk."""

    def __post_init__(self) -> None:
        if self.kernel is not None and self.failure:
            raise ValueError(f"trial {self.id} has both a kernel and a reason for having none")

    @property
    def wall_s(self) -> float:
        """Seconds spent on it: design, writing and judging."""
        return self.cost.wall_s + (self.evaluation.wall_s if self.evaluation else 0.0)

    @property
    def idea(self) -> str:
        """What was tried, or the file that it came from; empty where a person pushed it without a word."""
        return self.experiment.description if self.experiment else self.name

    @property
    def reason(self) -> str:
        """Why there is no kernel, or what the judge found wrong with it; empty where nothing is."""
        return self.failure or (self.evaluation.reason if self.evaluation else "")

    @property
    def score_us(self) -> float | None:
        """The score, where it was accepted and still holds."""
        return self.evaluation.score_us if self.evaluation and not self.stale else None

    @property
    def repeats(self) -> str:
        """The earlier trial with the same code whose verdict was taken over; empty where it was judged itself."""
        repeat = self.evaluation.evidence.repeat if self.evaluation else None
        return repeat.of if repeat else ""

    @property
    def compiles_alike(self) -> bool:
        """Whether it is a repeat by what was compiled of it alone."""
        repeat = self.evaluation.evidence.repeat if self.evaluation else None
        return bool(repeat and repeat.compiled)

    @property
    def held_out(self) -> HeldOut | None:
        """How it did on held-out shapes; None where it was not judged there."""
        return self.evaluation.evidence.heldout if self.evaluation else None

    @property
    def verdict(self) -> str:
        """The verdict, or where the trial stands before there is one."""
        if self.evaluation:
            return "stale" if self.stale else self.evaluation.verdict.value
        return "written" if self.kernel else "failed" if self.failure else "planned"


@dataclass(frozen=True, slots=True)
class Draft(Trial):
    """A kernel that goes back to its writer before anybody has compiled it."""

    review: Review = Review((), 0.0)
    repaired: Trial | None = None
    """The failed attempt that it repairs."""


@dataclass(frozen=True)
class Step:
    """The one-step analysis of a kernel: what was tried to get it, and what that did."""

    experiment: Experiment | None
    report: str
    parent: str
    before_us: Mapping[str, float]
    """The parent's time per benchmark, on the population's scale."""
    after_us: Mapping[str, float]
    """The kernel's own."""
    score_us: float | None = None
    """Its score on the scale."""
    beside: Mapping[str, Speedup] = field(default_factory=dict)
    """A kernel that it was timed beside -> how many times as fast as that it is."""


@dataclass(frozen=True)
class Rival:
    """A kernel to be beaten: the best so far, or a baseline."""

    trial: Trial
    us: float | None
    """Its score on the population's scale."""
    lead: Speedup | None = None
    """How many times as fast the best so far is; None for the best itself, and where no measurement connects them."""


@dataclass(frozen=True)
class Selection:
    """The selector's answer."""

    base: Trial
    """The kernel to change."""
    reference: Trial
    """A second kernel to learn from; may be the base."""
    rationale: str
    base_step: Step
    reference_step: Step
    siblings: tuple[Trial, ...] = ()
    """The newest of those that were made from the same base and failed, the newest first."""
    rivals: tuple[Rival, ...] = ()
    """The best so far, then the baselines: what is to be beaten."""
    avenue: str = ""
    """The avenue that the experiment at hand follows; empty where none is known."""


@dataclass(frozen=True, slots=True)
class RoundStep(Record):
    """A step of a round: it began, made its selection, or gave ids to the experiments of its plan or to a repair."""

    cause: str
    """The round's name, `<session>.<number>`; of a repair the failed trial's id."""
    base: str = ""
    reference: str = ""
    rationale: str = ""
    ids: tuple[str, ...] = ()
    planned: bool = False
    """Whether the ids are those of a plan, which may have none."""

    @property
    def began(self) -> bool:
        """Whether the step only says that a round began."""
        return not (self.base or self.ids or self.planned)


@dataclass(frozen=True)
class PlannedRound:
    """What a round decided: whom it chose and why, what it designed, and which trials that became."""

    base: str
    reference: str
    rationale: str
    plan: Plan
    trials: tuple[str, ...]

    @property
    def left(self) -> tuple[Experiment, ...]:
        """What was designed and not run."""
        run = self.plan.picked[: len(self.trials)]
        return tuple(each for index, each in enumerate(self.plan.experiments) if index not in run)
