"""The evidence of a verdict: comparisons, checks, timings, and reports of compilers and tools.

Judges answer in JSON, which is parsed once, where it comes in: `parse(Evidence, answer)`. On disk the records keep
these keys. Keys that an evaluator adds, and keys that this version does not know, are in `more`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ksflow.records.base import Json
from ksflow.records.comparisons import Claim, Comparison, EvidenceRecord


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckedCase(EvidenceRecord):
    """A case on which the kernel was right."""

    case: str
    seeds: tuple[int, ...] = ()
    worst: float | str | None = None  # the largest error as a share of its bound; a word if that is no number (`inf`)
    upstream: str = ""  # result of an imported problem's rule, which does not decide: `pass`, or its objection
    outputs: tuple[tuple[float | str, ...], ...] = ()  # values of each output, if asked for and few
    errors: tuple[tuple[float | str, ...], ...] = ()  # largest absolute and relative error of each output, if asked for


@dataclass(frozen=True, kw_only=True, slots=True)
class TimedCase(EvidenceRecord):
    """The timing of a case. Its samples are in the evaluation's `timings`."""

    case: str
    us: float | None = None
    interval_us: tuple[float, float] | None = None  # the 95 % interval of `us`
    at_most_us: float | None = None  # the time with only the certain overhead subtracted
    impossible: bool = False
    median_us: float | None = None
    wall_us: float | None = None
    cpu_us: float | None = None  # CPU time of the kernel's process, all threads, less a null kernel's with one core
    threads: int | None = None  # with several cores: the number of threads in the kernel's process after a call
    floor_us: float | None = None
    """The judge's limit: a time below it is impossible. The goal of a kernel is in `RooflineCase`."""
    floor: str = ""  # the cause of the floor
    disturbed: int = 0  # calls that were preempted
    legs: int = 0  # fresh processes in which it was timed
    rounds: int = 0
    calls: int = 0  # per round
    worst: float | None = None  # largest error as a share of its bound
    contents: tuple[int, ...] = ()  # seeds of the inputs in the timed calls, which are never used again
    compared_whole: int = 0  # calls whose outputs were compared in full
    null: Mapping[str, float] = field(default_factory=dict)
    """On a CPU: times of the null kernel, and the times subtracted."""
    clock: str = ""  # name of the clock
    trusted: bool | None = None  # on a GPU: whether no code of the kernel ran on the host
    events_us: float | None = None  # by the device events of the kernel's own process
    bracket_us: float | None = None  # by the judge's clock
    added_us: float | None = None  # time that the judge's clock saw beyond the device events, which counts
    gated: bool | None = None  # on a GPU: whether calls were queued before their inputs existed


@dataclass(frozen=True, kw_only=True, slots=True)
class CompiledKernel(EvidenceRecord):
    """A compiler's report on one kernel of a device, in one variant."""

    kernel: str = ""
    target: str = ""
    compiler: str = ""
    variant: Mapping[str, bool | int | float | str] = field(default_factory=dict)
    """The tunables with which it was compiled."""
    registers: int | None = None  # vector registers per thread
    agprs: int | None = None  # AMD: accumulation registers
    sgprs: int | None = None  # AMD: scalar registers
    spill_bytes: int | None = None
    stack_bytes: int | None = None
    scratch_bytes: int | None = None
    shared_bytes: int | None = None
    threads: int | None = None  # per block
    occupancy: float | None = None  # fraction of the warps that fit
    limited_by: str = ""  # the resource that limits the occupancy
    instructions: Mapping[str, int] = field(default_factory=dict)
    """Instruction of interest -> how often it is in the code."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RooflineCase(EvidenceRecord):
    """A timed case compared with the chip's limits: by its data sheet, on a CPU by measured rates."""

    case: str
    bound: str = ""  # `compute`, `memory` or `cache`, whichever takes longest
    tflops: float | None = None
    gbs: float | None = None  # 10^9 bytes per second
    intensity: float | None = None  # operations per byte
    bound_us: float | None = None  # the least time at these rates
    share: float | None = None  # `bound_us` over the measured time
    theirs: float | None = None  # the share by the formula of the problem's format, which takes one limit alone


@dataclass(frozen=True, kw_only=True, slots=True)
class Clocks(EvidenceRecord):
    """A GPU's state right after timing; None for values that it does not report."""

    sm_mhz: int | None = None
    memory_mhz: int | None = None
    watts: int | None = None
    celsius: int | None = None
    throttled: tuple[str, ...] | None = None  # causes of throttling
    state: str = ""  # why nothing could be read


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfilePage(EvidenceRecord):
    """A profiler's hardware counters as text, or why there are none."""

    tool: str = ""
    case: str = ""
    page: str = ""
    refused: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class SanitizerFinding(EvidenceRecord):
    """The finding of one of compute-sanitizer's tools, or why it did not run."""

    tool: str
    case: str = ""
    errors: int | None = None
    finding: str = ""  # the first of them
    refused: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class EarlierVerdict(EvidenceRecord):
    """A trial's verdict before it was judged again."""

    verdict: str
    score_us: float | None = None
    problem: str = ""
    judge: str = ""
    target: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Repeat(EvidenceRecord):
    """The verdict was taken over from an earlier trial with the same code."""

    of: str  # that trial's id
    compiled: bool = False  # whether only the compiled code is the same, not the source


@dataclass(frozen=True, kw_only=True, slots=True)
class Cached(EvidenceRecord):
    """The verdict came from the cache."""

    source: str  # where it was judged: a branch, or the command `evaluate`
    date: str  # ISO 8601


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldOut(EvidenceRecord):
    """A leader's results on held-out cases, which no prompt mentions."""

    right: Mapping[str, float] = field(default_factory=dict)  # case -> time in µs
    wrong: Mapping[str, str] = field(default_factory=dict)  # case -> verdict, and why
    over: Comparison | None = None  # Speed-up over the fastest baseline, on the cases where it is right

    def __str__(self) -> str:
        cases = len(self.right) + len(self.wrong)
        shapes = f"of {cases} held-out shape{'s' * (cases > 1)}"
        if self.wrong:
            return f"wrong on {len(self.wrong)} {shapes}: {', '.join(self.wrong)}"
        return f"right on {cases} {shapes}{f', there {self.over}' if self.over else ''}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence(EvidenceRecord):
    """Everything that a verdict rests on. Fields that do not apply are empty."""

    against: tuple[Comparison, ...] = ()
    """The trials beside which it was timed, the incumbent first."""
    claim: Claim | None = None
    """Whether it is faster than the incumbent; None without an incumbent."""
    unranked: str = ""  # why its times cannot be ranked
    unconfirmed: str = ""
    """Why it could not be ranked when it was judged again at the end of a run."""
    confirmed: int = 0
    """Number of the run's newest confirmation in which it was behind no other kernel; 0 if there is none."""
    heldout: HeldOut | None = None
    """Of a leader at the end of a run, if its problem has held-out cases."""
    renewed: EarlierVerdict | None = None
    """The previous verdict, if it was judged again after a change."""
    repeat: Repeat | None = None
    cached: Cached | None = None

    checked: tuple[CheckedCase, ...] = ()
    timed: tuple[TimedCase, ...] = ()
    failed: Json = field(default_factory=dict)
    """Details of a wrong output: case, seed, index, got, expected, bound."""
    phase: str = ""
    """The phase that failed: `import`, `check`, `time`, `confirm`."""
    at: str = ""  # the case that failed
    error: str = ""
    log: str = ""  # output of the compiler or the kernel
    upstream: str = ""  # as in `checked`: the first objection
    skipped: Mapping[str, str] = field(default_factory=dict)
    """Trials beside which it was not timed -> why."""
    failed_rivals: Mapping[str, str] = field(default_factory=dict)
    """Those of `skipped` that failed beside this kernel, and beside themselves as well: they lead no more."""

    compiler: tuple[CompiledKernel, ...] = ()
    artefact: str = ""  # digest of the compiled code (`Evaluator.code`)
    precision: str = ""
    """The lower precision that the problem allows for operands of products, such as `tf32`; "" if none."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """The weight of each case in the score and in every speed-up, with a mean of 1; empty if each counts alike."""
    made: str = ""
    """How a GPU kernel was compiled: `strong` or `host`."""
    roofline: tuple[RooflineCase, ...] = ()
    profile: ProfilePage | None = None
    sanitizer: tuple[SanitizerFinding, ...] = ()
    emulated: str = ""
    """Result of running it in an emulator, without a GPU."""

    device: str = ""  # the chip's name
    clocks: Clocks | None = None
    transfer: Json = field(default_factory=dict)
    """On a GPU: how inputs and outputs are transferred, and the time of a null kernel's call."""
    overhead_us: Mapping[str, float] = field(default_factory=dict)  # on a CPU: times of the null kernel
    cores: Json = field(default_factory=dict)
    """Cores of the judge and of the kernel's process: the number of its core, or a list of several."""
    features: tuple[str, ...] = ()
    """Instruction sets of the CPU that the kernel could use (`Target.features`)."""
    load: float | None = None
    """The machine's load average when judging began."""
    throttled: int | None = None
    """How often a CPU quota stopped the judge and its sandboxes meanwhile."""
    spent_s: Mapping[str, float] = field(default_factory=dict)  # phase -> seconds
    layers: Mapping[str, str] = field(default_factory=dict)  # layers of the kernel's sandbox
    one_process: bool | None = None
    """Whether every kernel was limited to one process while it was timed."""

    @property
    def core_count(self) -> int:
        """How many cores the kernel had, and each kernel beside it."""
        return len(kernel_cores(self.cores)) or 1

    @property
    def cores_each(self) -> str:
        """`, 8 cores each`, the end of a claim; "" for one core."""
        return f", {self.core_count} cores each" if self.core_count > 1 else ""

    def merge_comparisons(self, newer: Iterable[Comparison]) -> tuple[Comparison, ...]:
        """Return the comparisons of this and of a newer evaluation; the newer one for the same trial."""
        return tuple({row.id: row for row in (*self.against, *newer)}.values())


def kernel_cores(cores: Json) -> tuple[int, ...]:
    """Return the cores of the kernel's process from `Evidence.cores`; none if there was none to spare."""
    box = cores.get("box")
    return () if box is None else tuple(box) if isinstance(box, list) else (box,)
