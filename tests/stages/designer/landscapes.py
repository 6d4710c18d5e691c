"""Landscapes a search can be tried on in milliseconds: pure functions from tunables to a time or a verdict.

Modelled on what was measured for a block-scaled matrix multiply and a softmax: forms that make other choices
matter, values that only work together, wrong ones, and noise that is the same for the same kernel.
"""

import math
from collections.abc import Callable
from random import Random

from conftest import paired

from ksflow.kernels.source.tunables import values
from ksflow.protocols import Designer, Selector
from ksflow.records import Evaluation, Experiment, Kernel, Origin, Population, Problem, Timing, Trial, Verdict, geomean
from ksflow.stages.selector.fastest import Fastest
from ksflow.stages.writer.tune import Tune

PROBLEM = Problem("toy", "", "", "", "", "", ("cpp",), (), (), (), (), ())

GEMM = """
int FORM = naive;    // tune: naive rows dot outer matrix | form: how often a loaded value is reused
int DECODE = table;  // tune: arith table bit perm | decode: formula, table, shifts, permutes
int PACK = 0;        // tune: 0 1 | pack: element by element, or vectors
int DOT = fp32;      // tune: fp32 bf16 | precision: of the products
int SCALE = block;   // tune: block operand | fuse: where the scales go in
int VL = 16;         // tune: 16 32 64 | vector: bytes
int MR = 1;          // tune: 1 2 4 6 8 12 | tile: rows
int NV = 1;          // tune: 1 2 3 4 | tile: vectors
int KC = 128;        // tune: 128 256 512 1024 | block: depth
int UNROLL = 1;      // tune: 1 2 4 8 | unroll: steps
int PREFETCH = 0;    // tune: 0 4 16 | prefetch: steps ahead
int WORKSPACE = 0;   // tune: 0 1 | memory: kept between calls
"""

SOFTMAX = """
constexpr int SIMD = 0;    // tune: 0 1
constexpr int POLY = 0;    // tune: 0 1 | decode: exp by a polynomial
constexpr int DEGREE = 7;  // tune: 7 6 5 4 3 | precision: of the polynomial
constexpr int FUSE = 0;    // tune: 0 1 2 | fuse: passes in one
constexpr int VEC = 4;     // tune: 4 8 16
constexpr int UNROLL = 1;  // tune: 1 2 4 8
constexpr int STREAM = 0;  // tune: 0 1 | memory: past the cache
"""

PLAIN = "int custom_kernel;\n"

Landscape = Callable[[dict[str, str]], tuple[Verdict, float]]


def gemm(c: dict[str, str]) -> tuple[Verdict, float]:
    """Best 158; the declared values take 20,000."""
    form, vl, rows, vectors = c["FORM"], int(c["VL"]), int(c["MR"]), int(c["NV"])
    if form == "matrix" and rows > 8:
        return Verdict.COMPILE, 0
    if c["DECODE"] == "perm" and (vl < 64 or c["PACK"] == "0"):
        return Verdict.COMPILE, 0
    if c["DOT"] == "bf16" and (c["SCALE"] == "operand" or vectors == 3) and form in ("outer", "matrix"):
        return Verdict.INCORRECT, 0
    time = {"naive": 20000.0, "rows": 4000.0, "dot": 3000.0, "outer": 2500.0, "matrix": 1500.0}[form]
    if form == "naive":
        return Verdict.ACCEPT, time * {"arith": 8, "table": 1, "bit": 1.2, "perm": 1.5}[c["DECODE"]]
    time *= {"arith": 1.6, "table": 1.25, "bit": 1.1, "perm": 1.0}[c["DECODE"]]
    time *= 1.0 if c["PACK"] == "1" else 1.8
    time *= (64 / vl) ** (0.7 if c["PACK"] == "1" else 0.2)
    if form in ("outer", "matrix"):
        spill = 1.5 if rows * vectors > 26 else 1.0
        time *= spill * (1 + 1.5 / rows) * (1 + 0.6 / vectors)
        time *= 0.55 if c["DOT"] == "bf16" else 1.0
    time *= 1 + 0.08 * abs(math.log2(int(c["KC"]) / 512))
    time *= {"1": 1.15, "2": 1.05, "4": 1.0, "8": 1.1}[c["UNROLL"]]
    time *= {"0": 1.0, "4": 0.98, "16": 1.06}[c["PREFETCH"]]
    fixed = 60 + (0 if c["WORKSPACE"] == "1" else 25)
    return Verdict.ACCEPT, fixed + time / 16


def softmax(c: dict[str, str]) -> tuple[Verdict, float]:
    """Best 190; the declared values take 2,200."""
    if c["POLY"] == "1" and c["DEGREE"] in "34":
        return Verdict.INCORRECT, 0
    width = int(c["VEC"]) if c["SIMD"] == "1" else 1
    exponential = 300.0 + 90 * int(c["DEGREE"]) if c["POLY"] == "1" else 1600.0
    exponential /= width**0.8 if c["POLY"] == "1" else 1
    passes = {"0": 420.0, "1": 320.0, "2": 350.0}[c["FUSE"]] / width**0.4
    passes *= {"1": 1.3, "2": 1.1, "4": 1.0, "8": 1.02}[c["UNROLL"]]
    return Verdict.ACCEPT, (exponential + passes) * (1.2 if c["STREAM"] == "1" else 1.0)


def judged(landscape: Landscape, kernel: Kernel) -> Evaluation:
    """The verdict on a kernel; two benchmarks, 1 % noise that depends on nothing but the kernel."""
    config = values(kernel.main)
    verdict, time = landscape(config) if config else (Verdict.ACCEPT, 900.0)
    rng = Random(kernel.digest)
    if verdict is not Verdict.ACCEPT:
        wrong = f"off by {rng.random():.3f}" if verdict is Verdict.INCORRECT else "does not compile"
        return Evaluation(verdict, wrong, target="sim")
    timings = tuple(Timing(case, time * part * rng.gauss(1, 0.01)) for case, part in (("small", 0.5), ("large", 2)))
    return Evaluation(verdict, "", geomean(t.us for t in timings), timings, target="sim")


def seeds(landscape: Landscape, *texts: str) -> Population:
    """Judged seeds."""
    kernels = [Kernel("cpp", {"kernel.cpp": text}) for text in texts]
    return paired(
        tuple(
            Trial(f"{index:05d}", Origin.SEED, kernel=kernel, evaluation=judged(landscape, kernel))
            for index, kernel in enumerate(kernels)
        )
    )


def run(
    landscape: Landscape,
    population: Population,
    designer: Designer,
    evaluations: int,
    selector: Selector | None = None,
) -> Population:
    """The loop without its lineage: select, design, write, judge, until so many more kernels were judged."""
    select, write = selector or Fastest(), Tune()
    end = len(population.trials) + evaluations
    while len(population.trials) < end:
        selection = select(PROBLEM, population)
        plan = designer(PROBLEM, population, selection, ())
        for index in plan.picked[: end - len(population.trials)]:
            experiment: Experiment = plan.experiments[index]
            kernel = write(PROBLEM, selection, experiment, ())
            trial = Trial(
                f"{len(population.trials):05d}",
                Origin.EXPERIMENT,
                tuple(dict.fromkeys((selection.base.id, selection.reference.id))),
                experiment,
                kernel,
                "",
                judged(landscape, kernel),
            )
            population = paired((*population.trials, trial))
    return population


def best(population: Population) -> float:
    """The best score."""
    return population.ranked[0].score_us or math.inf
