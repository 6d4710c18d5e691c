"""What is to be made fast."""

import re
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Literal

from ksflow.records.base import Json, Record, Scalar, geomean
from ksflow.records.kernels import C_TYPES, Kernel

_PRECISION = re.compile(r"[-_.](?:fp|bf|tf|int|float|bfloat)\d+(?:_?e\dm\d\w*)?$")


def family(name: str) -> str:
    """A problem's name without the precision at its end: the same task in bf16 and in fp32 is one problem where parts
    of a data set must not know of each other.
    """
    return _PRECISION.sub("", name)


def check_inside(name: str) -> None:
    """Raise ValueError where a file of this name may come to lie outside the folder that it is put into."""
    path = PurePosixPath(name)
    if not path.parts or path.is_absolute() or ".." in path.parts or "\0" in name:
        raise ValueError(f"a problem's file {name!r} would lie outside its folder")


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
    """How a target's `march` begins -> what its matrix unit may err by, as a share of the root of the squares' sum."""
    allow: Literal["", "tf32", "fp16", "bf16"] = ""
    """The precision that operands of products may be rounded to; every claim on such a problem names it."""
    contents: Literal["structured", "own"] = "structured"
    """`own`: kernels are checked on what `generate_input` draws, not on sorted, scaled or masked variants of it too."""

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
    """The text of `reference.py`."""
    languages: tuple[str, ...]
    args: tuple[Arg, ...]
    dims: tuple[str, ...]
    """The case parameters a C kernel receives as int64, in order."""
    tests: tuple[Case, ...]
    """Must be right on these before anything is timed."""
    benchmarks: tuple[Case, ...]
    """Timed; the score is over these."""
    seeds: tuple[Seed, ...]
    heldout: tuple[Case, ...] = ()
    """On these a leader is judged once a run ends. No model is shown them, or what came of them."""
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
    files: Mapping[str, str] = field(default_factory=dict)
    """Beside every candidate in Python: what its format lets it import."""
    called: str = ""
    """How a candidate in Python is called, in words, where that is another format's way; empty for the own way."""
    listing: str = ""
    """What people and models read in place of `reference`: the task without what the judge alone needs."""
    good: tuple[Seed, ...] = ()
    """Kernels that came with the problem as right; `problem check` judges them."""
    bad: tuple[Seed, ...] = ()
    """Kernels that came with it as wrong; `problem check` sees them rejected."""
    origin: Json = field(default_factory=dict)
    """Of an imported problem: `format`, `path`, `commit`, `licence`, and what was `inferred` and `dropped`."""
    alike: tuple[str, ...] = ()
    """Languages that count as one of `languages` unless a run keeps to one of them, as CuTe DSL counts as Python."""
    lane_seeds: tuple[Seed, ...] = ()
    """Those in languages that are `alike`."""
    lane: str = ""
    """The one language that new kernels are written in, where a run keeps to one."""

    def __post_init__(self) -> None:
        for name in self.files:
            check_inside(name)

    @property
    def writable(self) -> tuple[str, ...]:
        """The languages that new kernels may be in."""
        return (self.lane,) if self.lane else self.languages

    def takes(self, language: str) -> bool:
        """Whether kernels may be in it."""
        return language in self.languages or language in self.alike

    def keeping_to(self, language: str) -> "Problem":
        """The problem for a run in one language: baselines of any, seeds of that one. ValueError says what it takes."""
        if not self.takes(language):
            raise ValueError(f"{self.name} takes here: {', '.join(dict.fromkeys((*self.languages, *self.alike)))}")
        own = [seed for seed in (*self.seeds, *self.lane_seeds) if seed.baseline or seed.kernel.language == language]
        return replace(self, lane=language, languages=(*dict.fromkeys((*self.languages, language)),), seeds=tuple(own))

    @property
    def shown(self) -> str:
        """The reference as it is read by people and models."""
        return self.listing or self.reference

    def aggregate(self, values: Iterable[float]) -> float:
        """One figure for one value per benchmark, in their order. Values must be positive."""
        numbers = list(values)
        if self.score == "last":
            return numbers[-1]
        return statistics.fmean(numbers) if self.score == "mean" else geomean(numbers)

    @property
    def signature(self) -> str:
        """The C declaration a `cpp` kernel must define."""
        pointers = [f"{'const ' if arg.role == 'in' else ''}{C_TYPES[arg.dtype]} *{arg.name}" for arg in self.args]
        sizes = [f"int64_t {dim}" for dim in self.dims]
        return f'extern "C" void custom_kernel({", ".join([*pointers, *sizes, "const int64_t *strides"])})'
