"""How steady the judge is, what it tells apart, and what a judgement costs.

    python benchmarks/judge.py [--times 20] [--short | --neighbour | --itself | --spread | --simulate [--between 1.6]]

The kernel is a vectorised softmax; its slower twin does 3 % of the rows again, which is 3 % more of the same work.
With --short only the same for calls of about 5 and 30 µs, where the judge's own part of a turn is as long.
Run it on an idle machine: where the A/A control says that nothing can be ranked, a judgement counts as unranked.
With --neighbour it brings the other work itself: a loop that keeps one core busy all the time, then one that is busy
for a second in three. With --itself kernels of ten problems, native ones and Python's, calls of 0.01 to 20 ms on
inputs of 16 kB to 64 MB, are each judged beside themselves, on the machine as it is and beside a loop on another core.
With --spread what replicates differ by is taken apart (`judge_spread.py`).
The exit status is 1 where one of the comparisons is ranked the wrong way.

With --simulate nothing is timed: the judge's own rule (`ksflow.evaluation.judge`, from samples to the claim) is given
samples that are drawn, --times judgements for each true gain. Between replicates the ratio varies by --between per
cent (a standard deviation; 1.6 is what this judge sees on two cores of an AMD EPYC), calls by 1 % and more, upwards.
"""

import argparse
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from ksflow.kernels.hardware.target import detect
from ksflow.kernels.problem.loader import load
from ksflow.records import Case, Claim, Evaluation, Evidence, Kernel, Origin, Problem, Trial, parse
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
    parser.add_argument("--itself", action="store_true")
    parser.add_argument("--simulate", action="store_true")
    parser.add_argument("--between", type=float, default=1.6)
    parser.add_argument("--spread", action="store_true")
    options = parser.parse_args()
    times = options.times
    if options.simulate:
        return simulate(times, options.between / 100)
    os.environ["KSFLOW_CACHE"] = tempfile.mkdtemp(prefix="ksflow-bench-")
    problem, target = load("softmax"), detect()
    if options.spread:
        from judge_spread import spread

        spread(softmax(0), problem)
        return 0
    judge = LocalEvaluator(target) if options.neighbour or options.itself else LocalEvaluator(target, control="always")

    def against(own: int, rival: int, of: Problem = problem) -> Callable[[], Evaluation]:
        trial = Trial("00001", Origin.SEED, kernel=softmax(rival))
        return lambda: judge(of, softmax(own), (trial,))

    print(f"{target.chip}, load {os.getloadavg()[0]:.2f}, isolation {judge.level}, {time.strftime('%Y-%m-%d')}")
    if options.itself:
        return itself(judge, times)
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


def neighbour(name: str, program: str, versus: Callable[[int, int], Callable[[], Evaluation]], times: int) -> int:
    """How comparisons end beside other work; how many of them the wrong way."""
    wrong = 0
    with subprocess.Popen([sys.executable, "-c", program]) as other:
        try:
            for what, run, wrongly in (
                ("the same kernel", versus(0, 0), ("faster", "slower")),
                ("10 % less work", versus(0, 10), ("slower",)),
                ("10 % more work", versus(10, 0), ("faster",)),
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
    if row is None or evaluation.why_unranked or not row.ranked:
        return "not ranked"
    if row.ahead:
        return "faster" if evaluation.claim and evaluation.claim.faster else "not shown to be faster"
    return "slower" if row.slower else "a tie"


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


_GAINS = (0.0, 0.005, 0.01, 0.02, 0.03, 0.05, -0.03)
_NOISE = 0.01
_TRIALS = 60


def simulate(times: int, spread: float) -> int:
    """How often the rule says what, by the true gain."""
    print(f"{times} judgements each, {spread:.1%} between replicates")
    columns = ("faster", f"one of {_TRIALS} or more", "read when faster", "slower", "tie", "unranked")
    print("true gain | " + " | ".join((*columns, "interval holds the truth", "replicates")))
    for gain in _GAINS:
        said: Counter[str] = Counter()
        claimed, held, effort = list[float](), 0, 0
        for number in range(times):
            claim, replicates = _simulated(gain, spread, random.Random(f"{gain} {number}"))
            said[_said(claim)] += 1
            claimed += [claim.speedup] if claim.faster else []
            held += claim.low <= 1 + gain <= claim.high
            effort += replicates
        share = said["faster"] / times
        read = f"x{statistics.geometric_mean(claimed):.4f}" if claimed else "-"
        words = (f"{said[word] / times:.1%}" for word in ("slower", "a tie", "not ranked"))
        print(
            f"x{1 + gain:.3f} | {share:.2%} | {1 - (1 - share) ** _TRIALS:.0%} | {read} | {' | '.join(words)} | "
            f"{held / times:.1%} | {effort / times:.1f}",
            flush=True,
        )
    return 0


def _said(claim: Claim) -> str:
    if claim.faster:
        return "faster"
    if not claim.ranked:
        return "not ranked"
    return "slower" if claim.slower else "a tie"


def _simulated(gain: float, spread: float, draw: random.Random) -> tuple[Claim, int]:
    """What the judge says of a kernel that is faster by `gain`, and after how many replicates."""
    from ksflow.evaluation.judge import session  # torch is slow to load, and nothing else here needs it
    from ksflow.evaluation.judge.comparison import PairedComparison
    from ksflow.evaluation.judge.outcome import CaseResult
    from ksflow.evaluation.judge.samples import Samples
    from ksflow.evaluation.judge.timing import CaseBenchmark

    class Drawn(PairedComparison):
        def _run_replicate(self, stack: object, own: object, opener: object, replicate: Any) -> None:
            samples = {}
            for name in self.kernels:
                us = 1000 / (1 if name else 1 + gain) * math.exp(draw.gauss(0, spread / math.sqrt(2)))
                row = [us * math.exp(abs(draw.gauss(0, _NOISE))) for _ in range(CaseBenchmark.rounds_of[replicate.of])]
                samples[name] = Samples(row, row, row)
            contents = [draw.getrandbits(32)]
            done = CaseResult(samples, frozenset(samples), len(row), 1, 0.0, contents, 1)
            self.outcome.cases[0].results.append(done)

    class Played(session.Judgement):
        def _compare(self, phase: str, kernels: Any, effort: Any = session.Effort()) -> Any:  # noqa: B008
            return Drawn(self.pool, self.backend, kernels, str, effort).run(cast(Any, None), cast(Any, None))

    case = SimpleNamespace(case={"name": "only"})
    pool = SimpleNamespace(tests=[], benchmarks=[case], large=False, problem={"limits": {}})
    backend = SimpleNamespace(evidence=dict, device_uuid="", starts_together=False, spread=0.02)
    kernel = {"language": "cpp"}
    request = {"kernel": kernel, "against": [{**kernel, "id": "00001"}]}
    answer = Played(cast(Any, SimpleNamespace(cores=())), cast(Any, pool), cast(Any, backend), request).run()
    claim = parse(Evidence, answer["evidence"]).claim
    assert claim is not None
    return claim, sum(len(row.replicates) for row in (claim.first or claim, claim.again) if row)


_PYTHON = """
import torch

def custom_kernel(data):
    return torch.softmax(data[0], dim=1, out=data[1])
"""
_SIZES = ((16, 256), (64, 256), (512, 256), (2048, 256), (8192, 256), (32768, 256), (65536, 256))
"""Rows and columns: 16 kB to 64 MB, in calls of about 0.01 to 20 ms."""
_PYTHON_SIZES = ((64, 256), (2048, 256), (32768, 256))


def itself(judge: LocalEvaluator, times: int) -> int:
    """How kernels are said to do beside themselves; how many of them are ranked."""
    problem = load("softmax")
    library = Kernel("python", {"library.py": _PYTHON})
    ran = [*((softmax(0), size) for size in _SIZES), *((library, size) for size in _PYTHON_SIZES)]
    wrong = 0
    for name, program in (("as it is", "pass"), ("a loop on another core", _LOOP)):
        every: Counter[str] = Counter()
        with subprocess.Popen([sys.executable, "-c", program]) as other:
            try:
                for kernel, (rows, cols) in ran:
                    case = Case(f"{rows}x{cols}", {"rows": rows, "cols": cols}, 9)
                    of = replace(problem, benchmarks=(case,))
                    trial, spent = Trial("00001", Origin.SEED, kernel=kernel), time.perf_counter()
                    found = [judge(of, kernel, (trial,)) for _ in range(times)]
                    spent = (time.perf_counter() - spent) / times
                    said = Counter(map(_word, found))
                    every += said
                    middle = statistics.median(timing.us for each in found for timing in each.timings)
                    words = ", ".join(f"{word} {count}" for word, count in said.most_common())
                    print(f"{name}, {kernel.language} {case.name}, {middle:.0f} us, {spent:.1f} s: {words}", flush=True)
            finally:
                other.kill()
        print(f"{name}, all: {', '.join(f'{word} {count}' for word, count in every.most_common())}", flush=True)
        wrong += every["faster"] + every["slower"]
    return wrong and 1


if __name__ == "__main__":
    sys.exit(main())
