"""Problems (tasks, cases, checks, limits), and targets: the machines of kernels."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Literal

from ksflow.records.base import Json, Record, Scalar, digest, geomean, mean, relative_weights
from ksflow.records.kernels import C_TYPES, Kernel

_PRECISION = re.compile(r"[-_.](?:fp|bf|tf|int|float|bfloat)\d+(?:_?e\dm\d\w*)?$")


def name_without_precision(name: str) -> str:
    """Return a problem's name without the precision at its end, as data sets are split by tasks."""
    return _PRECISION.sub("", name)


def check_inside(name: str) -> None:
    """Raise ValueError if a file of this name might lie outside the folder that it is put into."""
    path = PurePosixPath(name)
    if not path.parts or path.is_absolute() or ".." in path.parts or "\0" in name:
        raise ValueError(f"a problem's file {name!r} would lie outside its folder")


@dataclass(frozen=True)
class Case(Record):
    """One set of inputs: arguments of `generate_input(**params, seed=seed)`."""

    name: str
    params: Mapping[str, Scalar]
    seed: int
    weight: float = 1.0
    """How much the case counts in the score and in every speed-up, relative to the other benchmarks."""


@dataclass(frozen=True)
class Arg(Record):
    """One tensor of `custom_kernel`'s data, in order."""

    name: str
    dtype: str
    role: str
    """`in`, `out`, or `inout` for what is changed in place; an output is preallocated and comes last."""
    shape: str = ""
    layout: str = ""
    doc: str = ""


@dataclass(frozen=True)
class Check(Record):
    """The derived bound: c1 * eps(accumulate) * sqrt(terms) * magnitude + u_out * |expected| (+ unit * spread)."""

    c1: float = 8.0
    accumulate: str = "float32"
    units: Mapping[str, float] = field(default_factory=dict)
    """Prefix of a target's `march` -> error of its matrix unit, as a share of the root of the sum of squares."""
    allow: Literal["", "tf32", "fp16", "bf16"] = ""
    """The precision to which operands of products may be rounded; every claim on such a problem names it."""
    contents: Literal["structured", "own"] = "structured"
    """`own`: kernels are checked only on what `generate_input` draws, not on sorted, scaled or masked variants."""

    def unit(self, march: str) -> float:
        """Return a target's value; 0 if its matrix unit is as good as `accumulate`."""
        return next((share for prefix, share in self.units.items() if march.startswith(prefix)), 0.0)


@dataclass(frozen=True)
class Limits(Record):
    """Limits of one candidate."""

    compile_s: float = 60.0
    check_s: float = 60.0
    time_s: float = 60.0
    memory_mb: int = 4096


@dataclass(frozen=True)
class Seed(Record):
    """A kernel to start from. Speed-ups are claimed over a baseline."""

    name: str
    kernel: Kernel
    baseline: bool = False


@dataclass(frozen=True)
class Problem:
    """A task with its cases, check and score."""

    name: str
    title: str
    description: str
    statement: str  # Markdown for the writer of a kernel
    root: str
    """The folder with `reference.py`, which only the judge's side executes."""
    reference: str  # the text of `reference.py`
    languages: tuple[str, ...]
    args: tuple[Arg, ...]
    dims: tuple[str, ...]
    """The case parameters that a C kernel receives as int64, in order."""
    tests: tuple[Case, ...]  # must be right before anything is timed
    benchmarks: tuple[Case, ...]  # timed; the score is over these
    seeds: tuple[Seed, ...]
    heldout: tuple[Case, ...] = ()
    """Cases on which a leader is judged once a run ends. No prompt mentions them or their results."""
    small: tuple[Case, ...] = ()  # small enough for an emulator
    variant: str = ""
    defines: Mapping[str, Scalar] = field(default_factory=dict)
    """Preprocessor definitions for every C-like kernel."""
    check: Check = Check()
    score: str = "geomean"  # `geomean`, `mean` or `last` of the benchmarks' times
    limits: Limits = Limits()
    work: Mapping[str, str] = field(default_factory=dict)
    """`flops` and `bytes` as expressions over a case's parameters; `dtype`: the precision that sets the peak rate.
    `regime`, of a format's own estimate: `compute` or `memory`, of which alone the format takes a kernel's share."""
    digest: str = ""
    """Digest of everything that could change a verdict or a time."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Files beside every candidate in Python, which its format lets it import."""
    called: str = ""
    """How a Python candidate of another format is called, in words; empty for `custom_kernel(data)`."""
    listing: str = ""
    """Shown to people and models in place of `reference`, without what the judge alone needs."""
    good: tuple[Seed, ...] = ()
    """Right kernels that came with the problem; `problem check` judges them."""
    bad: tuple[Seed, ...] = ()
    """Wrong kernels that came with the problem; `problem check` expects their rejection."""
    origin: Json = field(default_factory=dict)
    """Of an imported problem: `format`, `path`, `commit`, `licence`, and what was `inferred` and `dropped`."""
    alike: tuple[str, ...] = ()
    """Languages that count as one of `languages` unless a run is limited to one, as CuTe DSL counts as Python."""
    lane_seeds: tuple[Seed, ...] = ()  # seeds in languages that are `alike`
    lane: str = ""
    """The language of new kernels, if a run is limited to one."""

    def __post_init__(self) -> None:
        for name in self.files:
            check_inside(name)

    @property
    def writable_languages(self) -> tuple[str, ...]:
        """The languages of new kernels."""
        return (self.lane,) if self.lane else self.languages

    def accepts_language(self, language: str) -> bool:
        """Return whether kernels may be in this language."""
        return language in self.languages or language in self.alike

    def keeping_to(self, language: str) -> "Problem":
        """Return the problem for a run in one language: baselines of any, seeds of that one. Raises ValueError."""
        if not self.accepts_language(language):
            raise ValueError(f"{self.name} takes here: {', '.join(dict.fromkeys((*self.languages, *self.alike)))}")
        own = [seed for seed in (*self.seeds, *self.lane_seeds) if seed.baseline or seed.kernel.language == language]
        return replace(self, lane=language, languages=(*dict.fromkeys((*self.languages, language)),), seeds=tuple(own))

    @property
    def reference_text(self) -> str:
        """The reference for people and models."""
        return self.listing or self.reference

    def aggregate(self, values: Iterable[float]) -> float:
        """Return the score for one value per benchmark, in order. Values must be positive."""
        numbers, weights = list(values), [case.weight for case in self.benchmarks]
        if self.score == "last":
            return numbers[-1]
        return mean(numbers, weights) if self.score == "mean" else geomean(numbers, weights)

    @property
    def weights(self) -> dict[str, float]:
        """The weights of the benchmarks, with a mean of 1; empty if each counts alike."""
        weights = [case.weight for case in self.benchmarks]
        names = [case.name for case in self.benchmarks] if len(set(weights)) > 1 else []
        return dict(zip(names, relative_weights(weights), strict=False))

    @property
    def score_name(self) -> str:
        """The score in words: `geomean`, or `weighted geomean`."""
        return f"weighted {self.score}" if self.weights and self.score != "last" else self.score

    @property
    def case_words(self) -> list[str]:
        """The benchmarks' names, with their weights if those differ."""
        weights = self.weights
        return [f"{case.name} (weight {weights[case.name]:.3g})" if weights else case.name for case in self.benchmarks]

    @property
    def signature(self) -> str:
        """The C declaration that a `cpp` kernel must define."""
        pointers = [f"{'const ' if arg.role == 'in' else ''}{C_TYPES[arg.dtype]} *{arg.name}" for arg in self.args]
        sizes = [f"int64_t {dim}" for dim in self.dims]
        return f'extern "C" void custom_kernel({", ".join([*pointers, *sizes, "const int64_t *strides"])})'


@dataclass(frozen=True)
class Target:
    """The machine for which kernels are built and on which they are judged."""

    name: str
    kind: str  # `cpu` or `gpu`
    chip: str
    features: tuple[str, ...] = ()  # instruction sets that a kernel may use
    march: str = "native"  # the compiler's `-march=`
    environment: Mapping[str, str] = field(default_factory=dict)
    """Set in every sandbox, for example to keep libraries off instructions that a target lacks."""
    peaks: Mapping[str, float] = field(default_factory=dict)
    """Rates that nothing on it exceeds, per second: `flops.<dtype>` for arithmetic, `bytes` for main memory,
    `bytes.cache` for the fastest cache that holds a kernel's data. Of a CPU, those of its `cores` together."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Bytes of `memory`, of the last `cache` before it, and of the `shared` memory of one block of threads."""
    measured: Mapping[str, float] = field(default_factory=dict)
    """Measured rates of the `cores` of this CPU, named like the peaks, and `bytes.N` for working sets of up to N bytes;
    empty if not measured."""

    units: int = 0
    """Number of a GPU's multiprocessors or compute units; 0 if unknown."""
    cores: int = 1
    """Number of a CPU's cores, and threads, that a kernel has (`target.cores`, or a problem's `cores`)."""

    @property
    def fingerprint(self) -> str:
        """Identifies everything that a time depends on."""
        several = [f"{self.cores} cores"] if self.cores > 1 else []
        return f"{self.name}-{digest(self.name, self.chip, self.march, *self.features, *several, digits=8)}"
