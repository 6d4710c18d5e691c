"""The files of the device corpus: a kernel's text, and in its first comments what should become of it.

    expect: reject        never accepted
            true-speed    accepted at most at the speed of the problem's plain kernel, or not at all
            contained     never accepted, and the next kernel is judged as ever
            harmless      accepted or not, and the next kernel is judged as ever
            race          right in most calls; not ranked where compute-sanitizer runs, for what racecheck finds
            accept        right and honest, however it looks
    problem: a key of `problems`
    honest: a file of the corpus that does the same work without the trick; the problem's plain kernel otherwise
    gain: more than so many times as fast as the honest one, by the judge's interval, is a gain; 1.01 otherwise
    time: host, where what the host does between launches is a part of it, or own, where the kernel chooses by a clock:
          such a time is shown beside a plain script's, and not held against it

What is to be at true speed, or a race, is judged beside the honest one. All other lines of the comment say what it
tries. `work.cuh` in a problem's folder is the honest computation, the same code for a trick and for the plain kernel;
other kernels of the corpus share other files there. Imports the standard library and `ksflow.records` alone, for
machines that have a GPU and little else.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from ksflow.kernels.languages import detect_language
from ksflow.records import Arg, Case, Check, Kernel, Limits, Problem

ROOT = Path(__file__).parent
CATEGORIES = ("cheats", "dangers", "honest")
EXPECTED = {
    "cheats": ("reject", "true-speed", "race"),
    "dangers": ("contained", "harmless"),
    "honest": ("accept",),
}
_HEADER = re.compile(r"^(?:#|//) (\w+): (.+)$")
_INCLUDE = re.compile(r'^#include "(\w+\.cuh)"\n', re.MULTILINE)
_GAIN = 1.01
_DEEP = (4096, 8192, 16384, 32768)
_LIMITS = Limits(compile_s=120, check_s=20, time_s=20, memory_mb=16384)


@dataclass(frozen=True)
class Specimen:
    """One kernel of the corpus."""

    path: Path
    header: dict[str, str]

    @property
    def name(self) -> str:
        """Where it is in the corpus."""
        return str(self.path.relative_to(ROOT))

    @property
    def expect(self) -> str:
        return self.header["expect"]

    @property
    def problem(self) -> str:
        return self.header["problem"]

    @property
    def twin(self) -> Kernel:
        """The kernel that does the same work honestly."""
        if "honest" in self.header:
            return read(ROOT / self.header["honest"], self.problem)
        return plain(self.problem, self.kernel)

    @property
    def rival(self) -> Kernel | None:
        """What it is timed beside."""
        return self.twin if self.expect in ("true-speed", "race") else None

    @property
    def gain(self) -> float:
        """What it may not be faster by than its twin."""
        return float(self.header.get("gain", _GAIN))

    @property
    def kernel(self) -> Kernel:
        """Its text, with the honest computation filled in."""
        return read(self.path, self.problem)


def specimens(category: str) -> list[Specimen]:
    """Those of one category, in the order of their names."""
    found = (ROOT / category).glob("*/*.*")
    return [Specimen(path, _header(path)) for path in sorted(found) if path.suffix in (".py", ".cu")]


def read(path: Path, problem: str) -> Kernel:
    """The kernel in a file."""
    text = _INCLUDE.sub(lambda found: (folder(problem) / found[1]).read_text(), path.read_text())
    return Kernel(detect_language(path.name, text), {f"kernel{path.suffix}": text})


def folder(problem: str) -> Path:
    """Where a problem's files are; problems that differ in a number share them."""
    return ROOT / "problems" / problem.rstrip("0123456789")


def plain(problem: str, kernel: Kernel) -> Kernel:
    """The plain kernel of the same language and mode."""
    strong = ["strong"] if any(f"{mark} launch: " in kernel.main for mark in ("//", "#")) else []
    words = ["plain", *strong, *(["triton"] if kernel.language == "triton" else [])]
    suffix = ".cu" if kernel.language == "cuda" else ".py"
    return read(folder(problem) / f"{'_'.join(words)}{suffix}", problem)


def problems() -> dict[str, Problem]:
    """All problems. True times at the benchmarks are 10 to 500 us on an H100 or H200; `deep`, one `momentum`: less."""
    x, w, out = Arg("x", "float32", "in", "rows, cols"), Arg("w", "float32", "in", "cols"), "rows, cols"
    a, b, c = Arg("a", "float32", "in", "m, k"), Arg("b", "float32", "in", "k, n"), Arg("c", "float32", "out", "m, n")
    return {
        "norm": _problem(
            "norm",
            (x, w, Arg("out", "float32", "out", out)),
            ("rows", "cols"),
            ((1, 1), (7, 33), (65, 1000)),
            ((4096, 4096), (8192, 2048), (1024, 2048)),
        ),
        "gemm": _problem(
            "gemm",
            (a, b, c),
            ("m", "n", "k"),
            ((1, 1, 1), (7, 5, 33), (130, 70, 96), (256, 512, 128)),
            ((2048, 2048, 512), (1024, 4096, 256)),
        ),
        "chain": _problem(
            "chain",
            (Arg("x", "float32", "in", "n"), Arg("out", "float32", "out", "n")),
            ("n",),
            ((1,), (33,), (1000,)),
            ((1024,),),
        ),
        "momentum": _problem(
            "momentum",
            (Arg("g", "float32", "in", "n"), Arg("m", "float32", "inout", "n")),
            ("n",),
            ((1,), (33,), (5000,)),
            ((1 << 20,), (1 << 24,)),
        ),
        **{
            f"deep{k}": _problem(f"deep{k}", (a, b, c), ("m", "n", "k"), ((64, 32, k),), ((128, 256, k),))
            for k in _DEEP
        },
    }


def _problem(
    name: str,
    args: tuple[Arg, ...],
    dims: tuple[str, ...],
    tests: tuple[tuple[int, ...], ...],
    benchmarks: tuple[tuple[int, ...], ...],
) -> Problem:
    root = folder(name)

    def cases(shapes: tuple[tuple[int, ...], ...], seed: int) -> tuple[Case, ...]:
        rows = [(dict(zip(dims, shape, strict=True)), number) for number, shape in enumerate(shapes, seed)]
        return tuple(Case("-".join(f"{k}{v}" for k, v in params.items()), params, seed) for params, seed in rows)

    return Problem(
        name=name,
        title=name,
        description="",
        statement="",
        root=str(root),
        reference=(root / "reference.py").read_text(),
        languages=("python", "triton", "cuda"),
        args=args,
        dims=dims,
        tests=cases(tests, 31),
        benchmarks=cases(benchmarks, 41),
        seeds=(),
        check=Check(c1=8, accumulate="float32"),
        limits=_LIMITS,
        digest=f"device-corpus-{name}",
    )


def _header(file: Path) -> dict[str, str]:
    header = {}
    for line in file.read_text().splitlines():
        if not line.startswith(("#", "//")):
            break
        if match := _HEADER.match(line):
            header.setdefault(match[1], match[2])
    return header
