"""Speed-ups of one kernel over another: with 95 % intervals, whether they are ranked, and what they rest on."""

from dataclasses import dataclass, field

from ksflow.records.base import Json, Record, are_plausible

BUSY = "(is the machine busy?)"  # ends the reason why a reading is not ranked
RESOLVED = 1.01
"""A kernel is called faster or slower if its interval clears this margin; else it is a tie. Smaller differences depend
on memory addresses and other processes."""
ANOTHER_DAY = 1.03  # how far a ratio or a time may be off from one day to another on the same machine
SELF_TIMED = "by the benchmark's own clock, in one comparison"
"""The clock of a ratio that a benchmark reports of itself, in one process with the kernel, without a confirmation."""


class Interval:
    """What the 95 % interval of a speed-up says, where ranked measurements connect the two kernels."""

    __slots__ = ()
    low: float
    high: float
    ranked: bool

    @property
    def ahead(self) -> bool:
        """Whether it is surely faster, by more than `RESOLVED`."""
        return self.ranked and self.low > RESOLVED

    @property
    def slower(self) -> bool:
        """Whether it is surely slower, by more than `RESOLVED`."""
        return self.ranked and self.high < 1 / RESOLVED

    @property
    def tie(self) -> bool:
        """Whether it is ranked, and neither ahead nor slower."""
        return self.ranked and not (self.ahead or self.slower)


@dataclass(frozen=True, slots=True)
class Speedup(Interval):
    """The speed-up of one kernel over another."""

    ratio: float  # 2 means twice as fast
    low: float  # lower end of the 95 % interval
    high: float
    ranked: bool = True

    def __str__(self) -> str:
        return f"x{self.ratio:.3g} [{self.low:.3g}, {self.high:.3g}]"

    def describe(self, name: str) -> str:
        """Return `x1.23 [1.2, 1.25] over NumPy`, with a remark for a tie or a ratio that is not ranked."""
        return f"{self} over {name}{' (a tie)' if self.tie else '' if self.ranked else ' (not ranked)'}"

    @property
    def gain_percent(self) -> float:
        """100 means twice as fast."""
        return 100 * (self.ratio - 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class EvidenceRecord(Record):
    """Base of the records that judges of any version write."""

    more: Json = field(default_factory=dict)  # keys that this version does not know, unchanged


@dataclass(frozen=True, kw_only=True, slots=True)
class Ratio(EvidenceRecord, Interval):
    """The speed-up of one kernel over another, timed in turns: above 1 it is faster."""

    speedup: float
    low: float  # lower end of the 95 % interval
    high: float
    clocks: tuple[str, ...] = ()  # names of the clocks
    replicates: tuple[float, ...] = ()  # the ratio by each pair of fresh processes
    tau: float | None = None
    """Standard deviation between replicates beyond their own errors, as a natural logarithm (0.01 is 1 %)."""
    heterogeneity_p: float | None = None  # p value of readings so far apart without such an effect (Cochran's Q)
    ranked: bool = True  # whether the two can be told apart, or be called a tie
    why: str = ""  # why it is not ranked: replicates disagree, or there are too few
    mean: tuple[float, float, float] | None = None
    """Ratio and interval by the mean over all calls, slow ones included; `speedup` is that of the usual call. A claim
    must hold by both."""
    moment: int = 0  # 0 in the search, else the number of the run's confirmation of a winner

    def __post_init__(self) -> None:
        if not are_plausible(self.speedup, self.low, self.high, *self.replicates):
            raise ValueError(f"a speed-up must be finite and positive, not {self}")

    def __str__(self) -> str:
        interval = f"x{self.speedup:.3g} [{self.low:.3g}, {self.high:.3g}]"
        return interval if self.ranked else f"{interval}, not ranked"

    @property
    def inverse(self) -> "Ratio":
        """The same with the kernels exchanged."""
        same = {name: getattr(self, name) for name in ("clocks", "tau", "heterogeneity_p", "ranked", "why", "moment")}
        replicates = tuple(1 / value for value in self.replicates)
        return Ratio(speedup=1 / self.speedup, low=1 / self.high, high=1 / self.low, replicates=replicates, **same)


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison(Ratio):
    """A kernel's speed-up over another trial."""

    id: str  # the other trial's


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim(Comparison):
    """A kernel's speed-up over the incumbent, with the incumbent against itself as control."""

    faster: bool
    """Whether it is faster, beyond noise, twice, and by more than the control is off. `ranked` tells whether readings
    and control were steady enough."""
    first: Ratio | None = None  # the first comparison, which decides only whether to repeat it
    again: Ratio | None = None  # the repetition, without the control's part in its interval
    control: Ratio | None = None  # one kernel against itself

    @property
    def ahead(self) -> bool:
        """Whether the claim holds, by more than `RESOLVED`."""
        return self.faster and self.ranked and self.low > RESOLVED
