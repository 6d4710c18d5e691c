"""How steady the judge is, what it tells apart, and what a judgement costs.

    python benchmarks/judge.py [--times 20] [--short | --neighbour]

The kernel is a vectorised softmax; its slower twin does 3 % of the rows again, which is 3 % more of the same work.
With --short only the same for calls of about 5 and 30 µs, where the judge's own part of a turn is as long.
Run it on an idle machine: where the A/A control says that nothing can be ranked, a judgement counts as unranked.
With --neighbour it brings the other work itself: a loop that keeps one core busy all the time, then one that is busy
for a second in three. The exit status is 1 where one of the comparisons is ranked the wrong way.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from ksflow.hardware.target import detect
from ksflow.problem.loader import load
from ksflow.records import Case, Evaluation, Kernel, Origin, Problem, Trial
from ksflow.stages.evaluator.local import LocalEvaluator

_SHORT_ROWS = (32, 192)
_KERNEL = """
#include <algorithm>
#include <cstdint>
#include <cstring>

constexpr int AGAIN = %d;  // percent of the rows that are done twice
constexpr int LANES = 16;

static inline float expf_(float x) {  // x <= 0
    x = std::max(x, -87.0f);
    float n = x * 1.44269504f + 12582912.0f;
    n -= 12582912.0f;
    float r = x - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    int32_t bits = (static_cast<int32_t>(n) + 127) << 23;
    float scale;
    std::memcpy(&scale, &bits, 4);
    return p * scale;
}

static void row(const float *x, float *y, int64_t cols) {
    float top[LANES], sum[LANES] = {};
    std::fill(top, top + LANES, x[0]);
    int64_t whole = cols - cols %% LANES;
    for (int64_t i = 0; i < whole; i += LANES)
        for (int j = 0; j < LANES; j++) top[j] = std::max(top[j], x[i + j]);
    for (int64_t i = whole; i < cols; i++) top[0] = std::max(top[0], x[i]);
    float most = *std::max_element(top, top + LANES);
    for (int64_t i = 0; i < whole; i += LANES)
        for (int j = 0; j < LANES; j++) sum[j] += y[i + j] = expf_(x[i + j] - most);
    for (int64_t i = whole; i < cols; i++) sum[0] += y[i] = expf_(x[i] - most);
    float all = 0;
    for (float s : sum) all += s;
    float scale = 1 / all;
    for (int64_t i = 0; i < cols; i++) y[i] *= scale;
}

extern "C" void custom_kernel(const float *x, float *y, int64_t rows, int64_t cols, const int64_t *strides) {
    for (int64_t r = 0; r < rows; r++) row(x + r * cols, y + r * cols, cols);
    for (int64_t r = 0; r < (rows * AGAIN + 50) / 100; r++) row(x + r * cols, y + r * cols, cols);
}
"""


def softmax(again: int) -> Kernel:
    """The kernel that does so many percent of its rows twice."""
    return Kernel("cpp", {"softmax.cpp": _KERNEL % again})


_LOOP = """
import os
own = os.getppid()
while os.getppid() == own: pass
"""
_BURSTS = """
import os, time
own = os.getppid()
while os.getppid() == own:
    end = time.time() + 1
    while time.time() < end: pass
    time.sleep(2)
"""
_NEIGHBOURS = {"a loop on another core": _LOOP, "a second of work in three": _BURSTS}


def main() -> int:
    """Judge again and again, and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--neighbour", action="store_true")
    options = parser.parse_args()
    times = options.times
    os.environ["KSFLOW_CACHE"] = tempfile.mkdtemp(prefix="ksflow-bench-")
    problem, target = load("softmax"), detect()
    judge = LocalEvaluator(target) if options.neighbour else LocalEvaluator(target, control="always")

    def against(own: int, rival: int, of: Problem = problem) -> Callable[[], Evaluation]:
        trial = Trial("00001", Origin.SEED, kernel=softmax(rival))
        return lambda: judge(of, softmax(own), (trial,))

    print(f"{target.chip}, load {os.getloadavg()[0]:.2f}, isolation {judge.level}, {time.strftime('%Y-%m-%d')}")
    if options.neighbour:
        return sum(neighbour(name, program, against, times) for name, program in _NEIGHBOURS.items()) and 1
    if options.short:
        for rows in _SHORT_ROWS:
            case = Case(f"{rows}x256", {"rows": rows, "cols": 256}, 9)
            short = replace(problem, benchmarks=(case,))
            against(0, 3, short)()
            alarms(f"{case.name}, a true 3 %: found faster", against(0, 3, short), times)
            alarms(f"{case.name}, the same kernel: called faster", against(0, 0, short), times)
        return 0
    against(0, 3)()
    alarms("a true 3 %: found faster", against(0, 3), times)
    repeat(against(0, 10), times)
    alarms("the same kernel: called faster", against(0, 0), times)
    cost(times)
    return 0


def neighbour(name: str, program: str, against: Callable[[int, int], Callable[[], Evaluation]], times: int) -> int:
    """How comparisons end beside other work; how many of them the wrong way."""
    wrong = 0
    with subprocess.Popen([sys.executable, "-c", program]) as other:
        try:
            for what, run, wrongly in (
                ("the same kernel", against(0, 0), ("faster", "slower")),
                ("10 % less work", against(0, 10), ("slower",)),
                ("10 % more work", against(10, 0), ("faster",)),
            ):
                said = Counter(_word(run()) for _ in range(times))
                wrong += sum(said[word] for word in wrongly)
                print(
                    f"{name}, {what}: {', '.join(f'{word} {count}' for word, count in said.most_common())}", flush=True
                )
        finally:
            other.kill()
    return wrong


def _word(evaluation: Evaluation) -> str:
    """What a record says of its kernel beside the other one."""
    row = evaluation.evidence.against[0] if evaluation.evidence.against else None
    if row is None or evaluation.unranked or not row.ranked:
        return "not ranked"
    if row.low > 1:
        return "faster" if evaluation.claim and evaluation.claim.faster else "not shown to be faster"
    return "slower" if row.slower else "a tie" if row.tie else "not shown to be slower"


def repeat(run: Callable[[], Evaluation], times: int) -> None:
    """The spread of one kernel's ratio to an anchor, where the control passes."""
    claims = [claim for _ in range(times) if (claim := run().claim)]
    ratios = sorted(claim.speedup for claim in claims if claim.ranked)
    if len(ratios) < 3:
        print(f"ratio to an anchor: unranked in {times - len(ratios)} of {times}")
        return
    tenths = statistics.quantiles(ratios, n=10, method="inclusive")
    middle = statistics.median(ratios)
    print(
        f"ratio to an anchor: median {middle:.4f}, (p90 - p10) / median {(tenths[-1] - tenths[0]) / middle:.2%}, "
        f"{len(ratios)} of {times} ranked"
    )


def alarms(name: str, run: Callable[[], Evaluation], times: int) -> None:
    """How often a claim is upheld."""
    found = [run() for _ in range(times)]
    claims = [evaluation.claim for evaluation in found if evaluation.claim]
    ranked = [claim for claim in claims if claim.ranked]
    controls = sorted(abs(claim.control.speedup - 1) for claim in claims if claim.control)
    ratios = sorted(claim.speedup for claim in ranked)
    middle = statistics.median(timing.us for evaluation in found for timing in evaluation.timings)
    print(
        f"{name} in {sum(claim.faster for claim in ranked)} of {len(ranked)} ranked ({times} judged); "
        f"ratios {ratios[0]:.4f} to {ratios[-1]:.4f}, control off by at most {controls[-1]:.2%}, {middle:.1f} µs a call"
    )


def cost(times: int) -> None:
    """Wall seconds of judging the main job's seeds, compile included, against the fastest C++ one."""
    problem = load("fp8_gemm")
    judge = LocalEvaluator(detect())
    seeds = {seed.name: seed.kernel for seed in problem.seeds}
    rival = Trial("00001", Origin.SEED, kernel=seeds["01_numpy_pairs.py"])
    judge(problem, seeds["01_numpy_pairs.py"], ())
    rows: list[float] = []
    compiled: list[float] = []
    for turn in range(times):
        kernel = seeds["03_tiles.cpp"]
        fresh = Kernel("cpp", {name: f"{text}\n// {turn}\n" for name, text in kernel.files.items()})
        started = time.perf_counter()
        evaluation = judge(problem, fresh, (rival,))
        rows.append(time.perf_counter() - started)
        spent = evaluation.evidence.spent_s
        compiled.append(rows[-1] - sum(seconds for name, seconds in spent.items() if "start" not in name))
        starts = [spent[name] * 1e3 for name in spent if "start" in name]
    print(
        f"a judged C++ kernel of fp8_gemm: mean {statistics.fmean(rows):.2f} s, most {max(rows):.2f} s, of which "
        f"compile and the rest {statistics.fmean(compiled):.2f} s; a box starts in {max(starts):.0f} ms"
    )


if __name__ == "__main__":
    sys.exit(main())
