"""Kernels with threads on two cores, where the judge shares one of them: this needs no third core."""

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import pytest

from ksflow.evaluation.judge.evaluator import LocalJudge
from ksflow.evaluation.judge.overhead import Clocks
from ksflow.evaluation.judge.sandboxed import Sandbox
from ksflow.kernels.hardware import target
from ksflow.records import Problem, Verdict

from . import toy


class Crowded(LocalJudge):
    """A judge of kernels with both cores of a small machine."""

    shares_core = True


@pytest.fixture(scope="module")
def judge() -> Iterator[Crowded]:
    made = Crowded(target.detect(cores=2))
    yield made
    made.close()


OPENMP = toy.cpp(
    "int most = 0;\n#pragma omp parallel for reduction(max : most)\n"
    "for (int64_t i = 0; i < n; i++) { out[i] = a[i] + b[i]; most = omp_get_num_threads(); }\n"
    "if (n > 2 && most != NUM_THREADS) abort();",
    "// flags: -fopenmp\n#include <omp.h>\nstatic_assert(NUM_THREADS == 2);",
)
STD_THREAD = toy.cpp(
    "if (std::thread::hardware_concurrency() != NUM_THREADS) abort();\n"
    "auto half = [=](int64_t from, int64_t to) { for (int64_t i = from; i < to; i++) out[i] = a[i] + b[i]; };\n"
    "std::thread other(half, 0, n / 2);\nhalf(n / 2, n);\nother.join();",
    "#include <thread>",
)
TORCH = toy.python(
    "a, b, out = data\n"
    "if torch.get_num_threads() != 2 or len(os.sched_getaffinity(0)) != 2:\n"
    "    raise ValueError(f'{torch.get_num_threads()} threads')\n"
    "return torch.add(a, b, out=out)",
    "import os\nimport torch",
)
NUMPY = toy.python(
    "a, b, out = data\n"
    "if out.numel() > 9 and len(os.listdir('/proc/self/task')) < 2:\n"
    "    square @ square\n"
    "    if len(os.listdir('/proc/self/task')) < 2:\n"
    "        raise ValueError('BLAS has no threads')\n"
    "return torch.add(a, b, out=out)",
    "import os\nimport numpy\nimport torch\nsquare = numpy.ones((600, 600), dtype='float32')",
)
EXECUTOR = toy.python(
    "a, b, out = data\nhalf = len(a) // 2\n"
    "list(pool.map(lambda at: torch.add(a[at], b[at], out=out[at]), (slice(half), slice(half, None))))\nreturn out",
    "from concurrent.futures import ThreadPoolExecutor\nimport torch\npool = ThreadPoolExecutor(2)",
)
KINDS = {"openmp": OPENMP, "std::thread": STD_THREAD, "torch": TORCH, "numpy": NUMPY, "executor": EXECUTOR}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_kernel_with_threads_has_all_of_its_cores(judge: Crowded, problem: Problem, kind: str) -> None:
    result = judge.judge_correctness(replace(problem, tests=problem.tests[-1:]), KINDS[kind])
    assert result.verdict is Verdict.UNTIMED, f"{result.reason}\n{result.evidence.log}"
    assert result.evidence.core_count == 2


@pytest.mark.slow
def test_the_evidence_of_a_timed_kernel_has_its_threads_and_cores(judge: Crowded, problem: Problem) -> None:
    result = judge(replace(problem, benchmarks=problem.benchmarks[-1:]), OPENMP, ())
    assert result.accepted, result.reason
    assert result.evidence.cores["box"] == sorted(os.sched_getaffinity(0))
    (timed,) = result.evidence.timed
    assert timed.threads == 2
    assert timed.cpu_us
    assert result.target == judge.fingerprint != Crowded(target.detect()).fingerprint


class Simulated:
    """A sandbox of 8 threads whose CPU clock runs by simulation: `after` threads work on after an answer."""

    pid = 0

    def __init__(self, cores: int, before_us: int, after: int) -> None:
        self.cores, self.before_s, self.after = cores, before_us * 1e-6, after
        self.now_s, self.used_s, self.running = 0.0, 0.0, 0

    def passes(self, us: float) -> float:
        self.now_s, self.used_s = self.now_s + us * 1e-6, self.used_s + self.running * us * 1e-6
        return self.now_s

    def cpu_s(self) -> float:
        self.used_s, self.before_s = self.used_s + self.before_s, 0.0
        return self.used_s

    def go(self, slots: bytes, timeout_s: float) -> float:
        self.running = self.cores
        self.passes(100)
        self.running = self.after
        return 100e-6

    def freeze(self) -> str:
        self.passes(20)
        self.used_s, self.running = self.used_s + 4e-6 * (8 - self.running), 0
        return "simulated"


@pytest.mark.parametrize(
    ("cores", "before_us", "after", "beyond_us"),
    [
        (1, 0, 0, (32, 32)),  # CPU time counts: of eight threads that are stopped
        (1, 30, 1, (70, 90)),
        (8, 0, 0, (0, 0)),  # stopping threads that rest costs nothing
        (8, 0, 1, (40, 60)),  # what works on after the answer does so for as long as it can
        (8, 0, 7, (40, 60)),
        (8, 30, 0, (30, 30)),  # what worked while it ought to be frozen
    ],
)
def test_work_outside_of_a_call_counts(
    monkeypatch: pytest.MonkeyPatch, cores: int, before_us: int, after: int, beyond_us: tuple[int, int]
) -> None:
    box = Simulated(cores, before_us, after)
    clocks = Clocks(cast(Sandbox, box))
    monkeypatch.setattr("time.perf_counter", lambda: box.passes(1))
    monkeypatch.setattr("os.listdir", lambda _: ["1"] * 8)
    wall_s, second_s = clocks.call(b"", 1.0)
    monkeypatch.undo()
    least, most = beyond_us
    assert least - 0.01 <= (second_s - wall_s) * 1e6 <= most + 0.01
