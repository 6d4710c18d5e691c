"""The nouns: frozen records that cannot contradict themselves, and the arithmetic that belongs to them.

No I/O, no configuration, no third-party import. Times are microseconds (`_us`), lower is better. A gain is
`before / after - 1` in percent: 100 means twice as fast. The same classes are what model answers are parsed into.
"""

import bisect
import hashlib
import math
import re
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, ClassVar

Scalar = bool | int | float | str
Json = dict[str, Any]


LANGUAGES = {
    ".py": "python",
    ".cpp": "cpp",
    ".cc": "cpp",
    ".c": "cpp",
    ".cu": "cuda",
    ".hip": "hip",
}
"""What a file's ending says of its language."""
DEVICE_LANGUAGES = {"triton": "", "cuda": "sm_", "hip": "gfx"}
"""Languages for GPUs -> how the `march` of the targets begins that they are for; empty for all."""
_TRITON = re.compile(r"^(?:import|from)\s+triton\b", re.MULTILINE)
FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}")
RESERVED_NAMES = frozenset({"trial.json", "evaluation.json"})
"""Written beside a kernel's files by the lineage."""


def language(name: str, text: str) -> str:
    """The language of a kernel's file; empty where its name says none. Python that needs Triton is `triton`."""
    found = LANGUAGES.get(name[name.rfind(".") :], "")
    return "triton" if found == "python" and _TRITON.search(text) else found


class Record:
    """Base of the records that are read from JSON: strict types, finite numbers, no unknown keys."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {
        "extra": "forbid",
        "allow_inf_nan": False,
        "strict": True,
    }


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


class Origin(StrEnum):
    """Where a trial came from."""

    SEED = "seed"
    EXPERIMENT = "experiment"
    REPAIR = "repair"
    PUSH = "push"
    """A person put a branch into the lineage."""


# -- the problem ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kernel(Record):
    """Source code in one language."""

    language: str
    """One of `problem.languages`: python, cpp, triton, cuda, hip."""
    files: Mapping[str, str]
    """File name -> text. The first is the one that holds `custom_kernel`."""
    report: str = ""
    """What the writer says it did: the techniques used."""

    def __post_init__(self) -> None:
        if not self.files:
            raise ValueError("a kernel has at least one file")
        for name in self.files:
            if not FILE_NAME.fullmatch(name) or name in RESERVED_NAMES:
                raise ValueError(f"not a kernel's file name: {name!r}")

    @property
    def main(self) -> str:
        """The text of the file that holds `custom_kernel`."""
        return next(iter(self.files.values()))

    @cached_property
    def digest(self) -> str:
        """Names the content (language, names, texts), whatever the report says."""
        text = "\0".join([self.language, *(f"{name}\0{body}" for name, body in self.files.items())])
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Case(Record):
    """One set of inputs: what `generate_input(**params, seed=seed)` is called with."""

    name: str
    params: Mapping[str, Scalar]
    seed: int


@dataclass(frozen=True)
class Arg(Record):
    """One tensor of `custom_kernel`'s data, in order."""

    name: str
    dtype: str
    role: str
    """`in` or `out`; an output is preallocated and comes last."""
    shape: str = ""
    layout: str = ""
    doc: str = ""


@dataclass(frozen=True)
class Check(Record):
    """The derived bound: c1 * eps(accumulate) * sqrt(terms) * magnitude + u_out * |expected| (+ unit * spread)."""

    c1: float = 8.0
    accumulate: str = "float32"
    units: Mapping[str, float] = field(default_factory=dict)
    """How a target's `march` begins -> what its matrix unit may err by, as a share of the root of the squares' sum."""

    def unit(self, march: str) -> float:
        """Of a target; 0 where its matrix unit is as good as `accumulate`."""
        return next((share for prefix, share in self.units.items() if march.startswith(prefix)), 0.0)


@dataclass(frozen=True)
class Limits(Record):
    """What one candidate may use."""

    compile_s: float = 60.0
    check_s: float = 60.0
    time_s: float = 60.0
    memory_mb: int = 4096


@dataclass(frozen=True)
class Seed(Record):
    """A kernel to start from. A baseline is also what a speed-up is claimed against."""

    name: str
    kernel: Kernel
    baseline: bool = False


@dataclass(frozen=True)
class Problem:
    """What is to be made fast: the task, its cases, how it is checked and scored."""

    name: str
    title: str
    description: str
    statement: str
    """Markdown: what an engineer or a model needs to write a kernel."""
    root: str
    """The folder with `reference.py`; only the judge's side runs it."""
    reference: str
    """The text of `reference.py`, shown to models."""
    languages: tuple[str, ...]
    args: tuple[Arg, ...]
    dims: tuple[str, ...]
    """The case parameters a C kernel receives as int64, in order."""
    tests: tuple[Case, ...]
    """Must be right on these before anything is timed."""
    benchmarks: tuple[Case, ...]
    """Timed; the score is over these."""
    seeds: tuple[Seed, ...]
    small: tuple[Case, ...] = ()
    """Small enough for an emulator."""
    variant: str = ""
    defines: Mapping[str, Scalar] = field(default_factory=dict)
    """Preprocessor definitions every C-like kernel is compiled with."""
    check: Check = Check()
    score: str = "geomean"
    """`geomean`, `mean` or `last` of the benchmarks' times."""
    limits: Limits = Limits()
    work: Mapping[str, str] = field(default_factory=dict)
    """`flops` and `bytes` as expressions over a case's parameters; `dtype`: the precision that sets the peak rate."""
    digest: str = ""
    """Names everything that could change a verdict or a time."""

    def aggregate(self, values: Iterable[float]) -> float:
        """One figure for one value per benchmark, in their order. Values must be positive."""
        numbers = list(values)
        if self.score == "last":
            return numbers[-1]
        return statistics.fmean(numbers) if self.score == "mean" else geomean(numbers)

    @property
    def signature(self) -> str:
        """The C declaration a `cpp` kernel must define."""
        pointers = [f"{'' if arg.role == 'out' else 'const '}{C_TYPES[arg.dtype]} *{arg.name}" for arg in self.args]
        sizes = [f"int64_t {dim}" for dim in self.dims]
        return f'extern "C" void custom_kernel({", ".join([*pointers, *sizes, "const int64_t *strides"])})'


C_TYPES = {
    "float64": "double",
    "float32": "float",
    "float16": "uint16_t",
    "bfloat16": "uint16_t",
    "float8_e4m3fn": "uint8_t",
    "float8_e4m3fnuz": "uint8_t",
    "float8_e5m2": "uint8_t",
    "int64": "int64_t",
    "int32": "int32_t",
    "int16": "int16_t",
    "int8": "int8_t",
    "uint8": "uint8_t",
    "bool": "uint8_t",
}
"""torch dtype -> what a C kernel sees: 8- and 16-bit floats travel as their bits."""


def geomean(values: Iterable[float]) -> float:
    """The geometric mean of positive numbers."""
    return math.exp(statistics.fmean(math.log(value) for value in values))


# -- what happened to a kernel -------------------------------------------------------------------


@dataclass(frozen=True)
class Timing(Record):
    """One benchmark's time, per call."""

    case: str
    us: float
    """The statistic that is ranked (a low percentile of wall time on CPU, a median on GPU)."""
    samples_us: tuple[float, ...] = ()
    cpu_us: float | None = None
    """The same statistic of CPU time, as seen from outside the process."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.us) and self.us > 0):
            raise ValueError(f"a time must be finite and positive, not {self.us}")


@dataclass(frozen=True)
class Evaluation(Record):
    """The judge's word. It has timings and a score exactly when the verdict is `accept`."""

    verdict: Verdict
    reason: str = ""
    """One line for a person; empty when accepted."""
    score_us: float | None = None
    timings: tuple[Timing, ...] = ()
    evidence: Json = field(default_factory=dict)
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
        accepted = self.verdict is Verdict.ACCEPT
        if accepted != bool(self.timings) or accepted != (self.score_us is not None):
            raise ValueError(f"timings and score belong to `accept` alone, not to `{self.verdict}`")
        if self.score_us is not None and not (math.isfinite(self.score_us) and self.score_us > 0):
            raise ValueError(f"a score must be finite and positive, not {self.score_us}")

    @property
    def accepted(self) -> bool:
        """Right, and timed."""
        return self.verdict is Verdict.ACCEPT

    @property
    def claim(self) -> Json:
        """How it did beside the incumbent and beside itself; empty where there was no incumbent."""
        return dict(self.evidence.get("claim", {}))

    @property
    def unranked(self) -> str:
        """Why it could not be ranked when it was judged; empty when it could."""
        claim = self.claim
        return "" if claim.get("ranked", True) else str(claim.get("why") or "the control was off")

    @property
    def lasting(self) -> bool:
        """Whether it speaks of the kernel, and not of what the machine was doing just then."""
        return self.verdict not in (Verdict.HARNESS, Verdict.TIMEOUT) and not self.unranked

    def beside(self, other: str) -> Json | None:
        """The row of a trial it was timed beside: `speedup` over that one, with `low` and `high`."""
        rows: list[Json] = self.evidence.get("against", [])
        return next((row for row in rows if row["id"] == other), None)


@dataclass(frozen=True)
class Key:
    """What a result holds for, beside its kernel. A result with another key is stale: kept, shown, not compared."""

    problem: str = ""
    """The problem's digest."""
    judge: str = ""
    target: str = ""
    """The machine's fingerprint; empty when the evaluator does not tell, and then not compared."""

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
class Cost(Record):
    """What something cost."""

    usd: float = 0.0
    tokens_in: int = 0
    tokens_out: int = 0
    calls: int = 0
    wall_s: float = 0.0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(
            self.usd + other.usd,
            self.tokens_in + other.tokens_in,
            self.tokens_out + other.tokens_out,
            self.calls + other.calls,
            self.wall_s + other.wall_s,
        )

    def __sub__(self, other: "Cost") -> "Cost":
        return Cost(
            self.usd - other.usd,
            self.tokens_in - other.tokens_in,
            self.tokens_out - other.tokens_out,
            self.calls - other.calls,
            self.wall_s - other.wall_s,
        )

    @property
    def tokens(self) -> int:
        """Of prompts and answers."""
        return self.tokens_in + self.tokens_out

    def shared(self, shares: int) -> "Cost":
        """One of so many equal shares; what does not divide is left out."""
        each = max(shares, 1)
        return Cost(
            self.usd / each,
            self.tokens_in // each,
            self.tokens_out // each,
            self.calls // each,
            round(self.wall_s / each, 3),
        )


@dataclass(frozen=True)
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

    def __post_init__(self) -> None:
        lowest, highest = self.gain_percent
        if not (math.isfinite(lowest) and math.isfinite(highest) and lowest <= highest):
            raise ValueError(f"a gain range is [lowest, highest], not {list(self.gain_percent)}")
        if not 0 <= self.innovation <= 100:
            raise ValueError(f"innovation is 0 to 100, not {self.innovation}")


@dataclass(frozen=True)
class Plan(Record):
    """The designer's answer: avenues, experiments, and which of them are run."""

    avenues: tuple[str, ...]
    experiments: tuple[Experiment, ...]
    picked: tuple[int, ...]
    """Indices into `experiments`, distinct, in the order they are run."""

    def __post_init__(self) -> None:
        if len(set(self.picked)) != len(self.picked) or not all(
            0 <= index < len(self.experiments) for index in self.picked
        ):
            raise ValueError(f"picked {list(self.picked)} of {len(self.experiments)} experiments")


def portfolio(experiments: tuple[Experiment, ...]) -> tuple[int, ...]:
    """The paper's pick, without replacement: most innovative, highest maximum, highest minimum."""
    keys = (
        lambda index: experiments[index].innovation,
        lambda index: experiments[index].gain_percent[1],
        lambda index: experiments[index].gain_percent[0],
    )
    left = list(range(len(experiments)))
    picked = []
    for key in keys[: len(left)]:
        best = max(left, key=key)
        left.remove(best)
        picked.append(best)
    return tuple(picked)


@dataclass(frozen=True)
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
    form: str = ""
    """Names the code without its layout and comments (`forms.form`): two trials of one form are repeats."""
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
    def score_us(self) -> float | None:
        """The score, where it was accepted and still holds."""
        return self.evaluation.score_us if self.evaluation and not self.stale else None

    @property
    def repeats(self) -> str:
        """The earlier trial of the same form whose verdict was taken over; empty where it was judged itself."""
        return str(self.evaluation.evidence.get("repeat", {}).get("of", "")) if self.evaluation else ""

    @property
    def verdict(self) -> str:
        """The verdict, or where the trial stands before there is one."""
        if self.evaluation:
            return "stale" if self.stale else self.evaluation.verdict.value
        return "written" if self.kernel else "failed" if self.failure else "planned"


@dataclass(frozen=True)
class Step:
    """The one-step analysis of a kernel: what was tried to get it, and what that did."""

    experiment: Experiment | None
    report: str
    parent: str
    before_us: Mapping[str, float]
    """The parent's time per benchmark."""
    after_us: Mapping[str, float]


@dataclass(frozen=True)
class Choice:
    """The selector's answer."""

    base: Trial
    """The kernel to change."""
    reference: Trial
    """A second kernel to learn from; may be the base."""
    rationale: str
    base_step: Step
    reference_step: Step


@dataclass(frozen=True)
class Population:
    """Every finished trial of a run whose verdict holds, in the order of their ids."""

    trials: tuple[Trial, ...]
    stale: tuple[Trial, ...] = ()
    """Trials whose verdict is from before something changed: known by their ids, and for nothing else."""

    @cached_property
    def by_id(self) -> Mapping[str, Trial]:
        return {trial.id: trial for trial in (*self.stale, *self.trials)}

    @cached_property
    def ranked(self) -> tuple[Trial, ...]:
        """The accepted trials by score, repeats left out; of equals the earlier."""
        accepted = (trial for trial in self.trials if trial.score_us is not None and not trial.repeats)
        return tuple(sorted(accepted, key=_rank))

    @cached_property
    def best(self) -> Trial | None:
        """The champion: it beat the one before it by more than noise, as the rest did not beat it."""
        return self.champions[-1] if self.trials else None

    @cached_property
    def champions(self) -> tuple["Trial | None", ...]:
        """The champion after each trial."""
        return _champions(None, self.trials)

    def plus(self, trial: Trial) -> "Population":
        """This population and another trial, without ranking everything again."""
        at = bisect.bisect(self.trials, trial.id, key=lambda other: other.id)
        after = self.trials[at:]
        grown = Population((*self.trials[:at], trial, *after), self.stale)
        ranked = list(self.ranked)
        if trial.score_us is not None and not trial.repeats:
            bisect.insort(ranked, trial, key=_rank)
        grown.__dict__["ranked"] = tuple(ranked)
        grown.__dict__["by_id"] = {**self.by_id, trial.id: trial}
        before = self.champions[:at]
        grown.__dict__["champions"] = before + _champions(before[-1] if before else None, (trial, *after))
        return grown

    def choose(self, base: str, reference: str, rationale: str) -> Choice:
        """A choice by ids, each with its one-step analysis. KeyError names an unknown id."""
        first, second = self.by_id[base], self.by_id[reference]
        return Choice(first, second, rationale, self.step(first), self.step(second))

    def step(self, trial: Trial) -> Step:
        """How `trial` came about, against its base."""
        parent = self.by_id.get(trial.parents[0]) if trial.parents else None
        report = trial.kernel.report if trial.kernel else ""
        return Step(
            trial.experiment,
            report,
            parent.id if parent else "",
            _times(parent),
            _times(trial),
        )


BETTER_BY = 1.03
"""How much better a score must be where two kernels were never timed side by side."""


def _champions(first: Trial | None, trials: Iterable[Trial]) -> tuple[Trial | None, ...]:
    """The champion after each of the trials, where `first` was it before them."""
    found = [first]
    for trial in trials:
        found.append(_champion(found[-1], trial))
    return tuple(found[1:])


def _champion(champion: Trial | None, trial: Trial) -> Trial | None:
    """Who is the best of the two, where `trial` is the newer."""
    if trial.score_us is None or trial.repeats or (champion and not _beats(trial, champion)):
        return champion
    return trial


def _beats(trial: Trial, champion: Trial) -> bool:
    """By what was seen last: the champion judged again beside it, its claim, side by side, the scores alone."""
    ours, theirs = trial.evaluation, champion.evaluation
    assert ours is not None
    assert theirs is not None
    doubtful = theirs.claim.get("id") == trial.id and theirs.unranked
    mine = ours.beside(champion.id)
    if (row := theirs.beside(trial.id)) and not doubtful:
        # an unsteady pair may each have looked slower than the other: then who looked better counts
        return bool(row["high"] < 1) and not (mine and mine["speedup"] <= row["speedup"])
    if ours.claim.get("id") == champion.id:
        return bool(ours.claim["faster"]) and not ours.unranked
    if mine:
        return bool(mine["low"] > 1)
    return (ours.score_us or math.inf) * BETTER_BY <= (theirs.score_us or math.inf)


def _rank(trial: Trial) -> tuple[float, str]:
    return (trial.score_us or math.inf, trial.id)


def _times(trial: Trial | None) -> dict[str, float]:
    evaluation = trial.evaluation if trial and not trial.stale else None
    return {timing.case: timing.us for timing in evaluation.timings} if evaluation else {}


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


# -- knowledge, models, machines -----------------------------------------------------------------


class Status(StrEnum):
    """How far a note can be trusted."""

    DOCUMENTED = "documented"
    MEASURED = "measured"
    ASSUMED = "assumed"
    REFUTED = "refuted"


@dataclass(frozen=True)
class Note(Record):
    """A finding, with where it comes from."""

    title: str
    text: str
    sources: tuple[str, ...]
    """Documents with section, or trial ids."""
    targets: tuple[str, ...] = ()
    """The chips it holds for; none means all."""
    status: Status = Status.DOCUMENTED


@dataclass(frozen=True)
class Document:
    """Raw text to digest."""

    source: str
    text: str


@dataclass(frozen=True)
class Material:
    """What a digester works from."""

    documents: tuple[Document, ...] = ()
    population: Population = Population(())
    notes: tuple[Note, ...] = ()


@dataclass(frozen=True)
class Call(Record):
    """One call of a model, as it is kept in the transcript."""

    stage: str
    model: str
    messages: tuple[Mapping[str, str], ...]
    """role and content, as sent."""
    answer: str = ""
    error: str = ""
    cost: Cost = Cost()
    price_source: str = ""
    """Where the price was read, or empty when it is unknown."""
    cut: bool = False
    """The provider stopped at its token limit."""
    settings: Mapping[str, Scalar] = field(default_factory=dict)
    """What the model was told beside the messages: temperature, max_tokens, reasoning_effort, ..."""
    about: str = ""
    """What it was for: `round 3`, or the id of a trial."""


@dataclass(frozen=True)
class Question:
    """A model call that is about to be made, and what it may cost."""

    stage: str
    model: str
    tokens_in: int
    """Of the prompt, estimated."""
    tokens_out: int
    """The most that the answer may have."""
    usd_in: float | None = None
    """The prompt's price; None when no price is known."""
    usd_most: float | None = None
    """The price of the prompt and the longest answer; None when no price is known."""
    price_source: str = ""


@dataclass
class Permit:
    """Leave to make one call. What it may cost is reserved until the call is over."""

    lost: bool = False
    """Set when nobody knows whether the provider will charge for it: it stays reserved."""


@dataclass(frozen=True)
class Target:
    """The machine kernels are built for and judged on."""

    name: str
    kind: str
    """`cpu` or `gpu`."""
    chip: str
    features: tuple[str, ...] = ()
    """Instruction sets a kernel writer can count on."""
    march: str = "native"
    """What the compiler is told (`-march=`)."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Set in every box, for example to keep libraries off instructions that a target lacks."""
    peaks: Mapping[str, float] = field(default_factory=dict)
    """Rates that nothing on it exceeds, per second: `flops.<dtype>` for arithmetic, `bytes` for main memory,
    `bytes.cache` for the fastest cache that holds a kernel's data. Of one core, where it is a CPU."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Bytes of `memory`, of the last `cache` before it, and of the `shared` memory of one block of threads."""

    @property
    def fingerprint(self) -> str:
        """Names what a time depends on."""
        text = "\0".join([self.name, self.chip, self.march, *self.features])
        return f"{self.name}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
