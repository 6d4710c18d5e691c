"""What a verdict rests on: how a kernel did beside others, what was checked and timed, what compilers and tools said.

Judges answer in JSON, which is parsed once, where it comes in: `parse(Evidence, answer)`. On disk the records keep the
keys that they have here. What an evaluator adds of its own, and what a record does not know, is in `more`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ksflow.records.base import Json, Record, plausible

RESOLVED = 1.01
"""A kernel is called faster or slower where its interval clears this margin; what lies between is a tie. Less than
that is decided by where memory lies and by neighbours, in a handful of processes."""
ANOTHER_DAY = 1.03
"""By how much a ratio or a time may be off, where nothing but the machine's moment has changed."""
SELF_TIMED = "by the benchmark's own clock, in one comparison"
"""The clock of a ratio that rests on what a benchmark says of itself, in one process with the kernel, and on no second
comparison in fresh processes."""


class Speedup(NamedTuple):
    """How many times as fast one kernel is as another."""

    ratio: float
    """2 means twice as fast."""
    low: float
    """Lower end of the 95 % interval."""
    high: float
    ranked: bool = True
    """Whether ranked measurements connect the two."""

    def __str__(self) -> str:
        return f"x{self.ratio:.3g} [{self.low:.3g}, {self.high:.3g}]"

    def over(self, name: str) -> str:
        """`x1.23 [1.2, 1.25] over NumPy`, and whether that is a tie or could not be ranked."""
        return f"{self} over {name}{' (a tie)' if self.tie else '' if self.ranked else ' (not ranked)'}"

    @property
    def gain_percent(self) -> float:
        """100 means twice as fast."""
        return 100 * (self.ratio - 1)

    @property
    def faster(self) -> bool:
        """Whether it is surely ahead, by more than a judge resolves (`RESOLVED`)."""
        return self.ranked and self.low > RESOLVED

    @property
    def slower(self) -> bool:
        """Whether it is surely behind, by more than a judge resolves."""
        return self.ranked and self.high < 1 / RESOLVED

    @property
    def tie(self) -> bool:
        """Whether it is neither, and the two could be ranked."""
        return self.ranked and not (self.faster or self.slower)


@dataclass(frozen=True, kw_only=True, slots=True)
class EvidenceRecord(Record):
    """Base of what is read from judges of any version."""

    more: Json = field(default_factory=dict)
    """Keys that this version does not know, as they came."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ratio(EvidenceRecord):
    """How many times as fast one kernel is as another, timed in turns: above 1 it is faster."""

    speedup: float
    low: float
    """Lower end of the 95 % interval."""
    high: float
    clocks: tuple[str, ...] = ()
    """By which clocks the two were timed."""
    replicates: tuple[float, ...] = ()
    """What each pair of fresh processes read."""
    tau: float | None = None
    """How far replicates differ beyond what varies within them: the standard deviation of the random effect, as a
    natural logarithm (0.01 is 1 %)."""
    heterogeneity_p: float | None = None
    """How likely readings so far apart would be without such an effect (Cochran's Q)."""
    ranked: bool = True
    """Whether the two can be told apart, or be told to be alike."""
    why: str = ""
    """Why they cannot: replicates disagree, or there are too few."""
    mean: tuple[float, float, float] | None = None
    """The same with its interval by the mean over all calls, dear ones among them, where `speedup` is that of the usual
    call. A claim holds by both."""
    moment: int = 0
    """When it was seen: 0 in the search, else in the run's first, second, ... confirmation of a winner."""

    def __post_init__(self) -> None:
        if not plausible(self.speedup, self.low, self.high, *self.replicates):
            raise ValueError(f"a speed-up must be finite and positive, not {self}")

    def __str__(self) -> str:
        interval = f"x{self.speedup:.3g} [{self.low:.3g}, {self.high:.3g}]"
        return interval if self.ranked else f"{interval}, not ranked"

    @property
    def ahead(self) -> bool:
        """Whether it is surely faster, by more than a judge resolves (`RESOLVED`)."""
        return self.ranked and self.low > RESOLVED

    @property
    def slower(self) -> bool:
        """Whether it is surely slower, by more than a judge resolves."""
        return self.ranked and self.high < 1 / RESOLVED

    @property
    def tie(self) -> bool:
        """Whether the two could be ranked, and neither is ahead."""
        return self.ranked and not (self.ahead or self.slower)

    @property
    def inverse(self) -> "Ratio":
        """The same from the other kernel's side."""
        same = {name: getattr(self, name) for name in ("clocks", "tau", "heterogeneity_p", "ranked", "why", "moment")}
        replicates = tuple(1 / value for value in self.replicates)
        return Ratio(speedup=1 / self.speedup, low=1 / self.high, high=1 / self.low, replicates=replicates, **same)


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison(Ratio):
    """How a kernel did beside another trial."""

    id: str
    """The other trial's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim(Comparison):
    """How it did beside the incumbent, with the incumbent beside itself as the control."""

    faster: bool
    """Whether it is, beyond noise, twice, and by more than the control is off. `ranked` tells whether readings and
    control were steady enough to say anything."""
    first: Ratio | None = None
    """Measured before the control: it decided only to look again."""
    again: Ratio | None = None
    """Measured with the control: the claim's own ratio, without the control's part in its interval."""
    control: Ratio | None = None
    """One kernel against itself."""

    @property
    def ahead(self) -> bool:
        """Whether the claim holds, by more than a judge resolves."""
        return self.faster and self.ranked and self.low > RESOLVED


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckedCase(EvidenceRecord):
    """A case on which the kernel was right."""

    case: str
    seeds: tuple[int, ...] = ()
    worst: float | str | None = None
    """The largest error as a share of its bound; a word where that is no number (`inf`)."""
    upstream: str = ""
    """What the rule of an imported problem says, which does not decide: `pass`, or its objection."""
    outputs: tuple[tuple[float | str, ...], ...] = ()
    """Of each output its values, where they were asked for and are few."""
    errors: tuple[tuple[float | str, ...], ...] = ()
    """Of each output the largest absolute and the largest relative error, where they were asked for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TimedCase(EvidenceRecord):
    """How a case was timed. Its samples are in the evaluation's `timings`."""

    case: str
    us: float | None = None
    interval_us: tuple[float, float] | None = None
    """The 95 % interval of `us`."""
    at_most_us: float | None = None
    """The time with no more taken off than surely is not the kernel's."""
    impossible: bool = False
    median_us: float | None = None
    wall_us: float | None = None
    cpu_us: float | None = None
    floor_us: float | None = None
    """The judge's limit: a time below it is impossible. What a kernel can come near is its `RooflineCase`."""
    floor: str = ""
    """What sets it."""
    disturbed: int = 0
    """Calls that were preempted."""
    legs: int = 0
    """Fresh processes that it was timed in."""
    rounds: int = 0
    calls: int = 0
    """Calls in a round."""
    worst: float | None = None
    """The largest error as a share of its bound."""
    contents: tuple[int, ...] = ()
    """Seeds of the inputs that it was timed on, which nobody is given again."""
    compared_whole: int = 0
    """Calls whose outputs were compared in full."""
    null: Mapping[str, float] = field(default_factory=dict)
    """On a CPU: what calls of the null kernel took, and what was taken off."""
    clock: str = ""
    """By which clock it was timed."""
    trusted: bool | None = None
    """On a GPU: whether no code of the kernel's ran on the host."""
    events_us: float | None = None
    """By the device events of the kernel's own process."""
    bracket_us: float | None = None
    """By the judge's clock."""
    added_us: float | None = None
    """What the judge's clock saw beyond the device events, which counts."""
    gated: bool | None = None
    """On a GPU: whether calls were queued before their inputs existed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CompiledKernel(EvidenceRecord):
    """What a compiler says of one kernel on a device, in one variant."""

    kernel: str = ""
    target: str = ""
    compiler: str = ""
    variant: Mapping[str, bool | int | float | str] = field(default_factory=dict)
    """The tunables that it was compiled with."""
    registers: int | None = None
    """A thread's vector registers."""
    agprs: int | None = None
    """AMD: accumulation registers."""
    sgprs: int | None = None
    """AMD: scalar registers."""
    spill_bytes: int | None = None
    stack_bytes: int | None = None
    scratch_bytes: int | None = None
    shared_bytes: int | None = None
    threads: int | None = None
    """In a block."""
    occupancy: float | None = None
    """A fraction of the warps that fit."""
    limited_by: str = ""
    """What keeps the occupancy from being higher."""
    instructions: Mapping[str, int] = field(default_factory=dict)
    """How often instructions of interest stand in the code."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RooflineCase(EvidenceRecord):
    """A timed case beside what the chip allows: by its data sheet, on a CPU by what probes measured."""

    case: str
    bound: str = ""
    """`compute`, `memory` or `cache`, whichever takes longest."""
    tflops: float | None = None
    gbs: float | None = None
    """10^9 bytes a second."""
    intensity: float | None = None
    """Operations for each byte."""
    bound_us: float | None = None
    """The least time at these rates."""
    share: float | None = None
    """`bound_us` over the measured time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Clocks(EvidenceRecord):
    """A GPU's state right after timing; None for what it does not tell."""

    sm_mhz: int | None = None
    memory_mhz: int | None = None
    watts: int | None = None
    celsius: int | None = None
    throttled: tuple[str, ...] | None = None
    """What holds the clocks down."""
    state: str = ""
    """Why nothing could be read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfilePage(EvidenceRecord):
    """A profiler's hardware counters as text, or why there are none."""

    tool: str = ""
    case: str = ""
    page: str = ""
    refused: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class SanitizerFinding(EvidenceRecord):
    """What one of compute-sanitizer's tools found, or why it did not run."""

    tool: str
    case: str = ""
    errors: int | None = None
    finding: str = ""
    """The first of them."""
    refused: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class EarlierVerdict(EvidenceRecord):
    """What a trial's verdict was before it was judged again."""

    verdict: str
    score_us: float | None = None
    problem: str = ""
    judge: str = ""
    target: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Repeat(EvidenceRecord):
    """The verdict was taken over from an earlier trial with the same code."""

    of: str
    """That trial's id."""
    compiled: bool = False
    """Whether the sources differ, and what was compiled of them is the same."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cached(EvidenceRecord):
    """The verdict was known already."""

    source: str
    """What had it judged: a branch, or the command `evaluate`."""
    date: str
    """When, in ISO 8601."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldOut(EvidenceRecord):
    """How a leader did on the cases that no model is shown. For people: no prompt says any of it."""

    right: Mapping[str, float] = field(default_factory=dict)
    """Case -> its time in µs."""
    wrong: Mapping[str, str] = field(default_factory=dict)
    """Case -> the verdict there, and why."""
    over: Comparison | None = None
    """Beside the fastest baseline, on the cases where it is right."""

    def __str__(self) -> str:
        cases = len(self.right) + len(self.wrong)
        shapes = f"of {cases} held-out shape{'s' * (cases > 1)}"
        if self.wrong:
            return f"wrong on {len(self.wrong)} {shapes}: {', '.join(self.wrong)}"
        return f"right on {cases} {shapes}{f', there {self.over}' if self.over else ''}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence(EvidenceRecord):
    """All that a verdict rests on. What does not apply to a kernel or a machine is empty."""

    against: tuple[Comparison, ...] = ()
    """The trials that it was timed beside, the incumbent first."""
    claim: Claim | None = None
    """Whether it is faster than the incumbent; None where there was none."""
    unranked: str = ""
    """Why its times rank nothing."""
    unconfirmed: str = ""
    """Why it could not be ranked when it was judged again at the end of a run."""
    confirmed: int = 0
    """The run's newest confirmation that it came out of behind nothing that it was timed beside; 0 where there is
    none."""
    heldout: HeldOut | None = None
    """Of one that led at the end of a run, where its problem holds cases back."""
    renewed: EarlierVerdict | None = None
    """What was said of it before something changed, and it was judged again."""
    repeat: Repeat | None = None
    cached: Cached | None = None

    checked: tuple[CheckedCase, ...] = ()
    timed: tuple[TimedCase, ...] = ()
    failed: Json = field(default_factory=dict)
    """Where it was wrong: case, seed, index, got, expected, bound."""
    phase: str = ""
    """Where it failed: `import`, `check`, `time`, `confirm`."""
    at: str = ""
    """On which case it failed."""
    error: str = ""
    log: str = ""
    """What the compiler or the kernel printed."""
    upstream: str = ""
    """As in `checked`: the first objection."""
    skipped: Mapping[str, str] = field(default_factory=dict)
    """Trials that it was not timed beside, and why."""
    failed_rivals: Mapping[str, str] = field(default_factory=dict)
    """Those of them that failed beside this kernel, and beside themselves as well: they lead no more."""

    compiler: tuple[CompiledKernel, ...] = ()
    artefact: str = ""
    """Names what was compiled (`Evaluator.code`)."""
    precision: str = ""
    """The lower precision that the problem allows operands of products, such as `tf32`; empty where it allows none."""
    made: str = ""
    """How a kernel for a GPU was compiled: `strong` or `host`."""
    roofline: tuple[RooflineCase, ...] = ()
    profile: ProfilePage | None = None
    sanitizer: tuple[SanitizerFinding, ...] = ()
    emulated: str = ""
    """What came of running it in an emulator, without a GPU."""

    device: str = ""
    """The chip's name."""
    clocks: Clocks | None = None
    transfer: Json = field(default_factory=dict)
    """On a GPU: how inputs and outputs get there, and what a call of the null kernel takes."""
    overhead_us: Mapping[str, float] = field(default_factory=dict)
    """On a CPU: what a call of the null kernel takes."""
    cores: Json = field(default_factory=dict)
    """Where the judge and the kernel's process ran."""
    load: float | None = None
    """The machine's load average when judging began."""
    throttled: int | None = None
    """How often a quota on CPU time stopped the judge and its sandboxes meanwhile."""
    spent_s: Mapping[str, float] = field(default_factory=dict)
    """Phase -> how long it took."""
    layers: Mapping[str, str] = field(default_factory=dict)
    """What held the kernel's process."""
    one_process: bool | None = None
    """Whether every kernel was held to one process while it was timed."""

    def joined(self, newer: Iterable[Comparison]) -> tuple[Comparison, ...]:
        """The comparisons of this and of a newer evaluation; of two with the same trial the newer."""
        return tuple({row.id: row for row in (*self.against, *newer)}.values())
