"""Times are sane: the same kernel ties with itself, a faster one wins, and the machine is shared fairly."""

import subprocess
import sys
import time
from dataclasses import replace

import pytest

from ksflow import target
from ksflow.records import Case, Problem
from ksflow.stages.evaluator.local import LocalEvaluator

from . import toy
from .conftest import Judge


def test_kernel_ties_with_itself(judge: Judge) -> None:
    result = judge(toy.slow(4), toy.slow(4))
    (row,) = result.evidence["against"]
    assert row["id"] == "00000"
    assert 0.7 < row["speedup"] < 1.4
    assert row["low"] <= row["speedup"] <= row["high"]


def test_faster_kernel_wins(judge: Judge) -> None:
    result = judge(toy.RIGHT_CPP, toy.slow(300), toy.RIGHT_PYTHON)
    incumbent, baseline = result.evidence["against"]
    assert incumbent["low"] > 1
    assert baseline["id"] == "00001"


def test_slower_kernel_is_given_up_early_with_honest_times(judge: Judge) -> None:
    result = judge(toy.slow(300), toy.RIGHT_CPP)
    assert result.accepted
    assert result.evidence["against"][0]["high"] < 1
    assert len(result.timings[0].samples_us) < 25


def test_opponent_that_fails_is_skipped_with_a_note(judge: Judge) -> None:
    result = judge(toy.RIGHT_CPP, toy.cpp("abort();"), toy.cpp("nonsense"), toy.RIGHT_PYTHON)
    assert result.accepted
    assert [row["id"] for row in result.evidence["against"]] == ["00002"]
    assert "SIGABRT" in result.evidence["skipped"]["00000"]
    assert "nonsense" in result.evidence["skipped"]["00001"]


def test_work_on_other_threads_is_charged(judge: Judge) -> None:
    """A helper that goes on working between turns pays for it."""
    helper = """
#include <thread>
struct Burn { Burn() { std::thread([] { for (;;) asm volatile(""); }).detach(); } } burn;
"""
    result = judge(toy.cpp(toy.LOOP, helper))
    assert result.accepted
    assert max(result.evidence["charged_us"]) > 0


def test_evaluation_is_quick(judge: Judge) -> None:
    judge(toy.slow(8))
    time.sleep(0.5)
    started = time.monotonic()
    assert judge(toy.slow(8), toy.slow(8)).accepted
    assert time.monotonic() - started < 5  # about 0.5 s on a quiet machine


@pytest.mark.slow
def test_large_outputs_are_checked_at_a_sample(evaluator: LocalEvaluator, problem: Problem) -> None:
    large = replace(problem, tests=problem.tests[:1], benchmarks=(Case("large", {"n": 5_000_000}, 1),))
    result = evaluator(large, toy.RIGHT_CPP, ())
    assert result.evidence["sampled"] == ["large"]
    wrong = toy.cpp("for (int64_t i = 0; i < n; i++) out[i] = a[i] + b[i] + (n > 1000 && i % 1000 == 0);")
    assert not evaluator(large, wrong, ()).accepted


def test_admission_probes(evaluator: LocalEvaluator, problem: Problem) -> None:
    rows = {name: (ok, detail) for name, ok, detail in evaluator.admit(problem)}
    assert set(rows) == {"reference", "zeros output", "constant output", "scaled output"}
    assert all(ok for ok, _ in rows.values()), rows


def test_this_process_stays_light() -> None:
    code = (
        "import sys; from ksflow import target; from ksflow.stages.evaluator.local import LocalEvaluator;"
        "LocalEvaluator(target.detect()); sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_lesser_target_keeps_libraries_off_avx512(problem: Problem) -> None:
    environment = {"ATEN_CPU_CAPABILITY": "avx2", "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512F AVX512_SKX"}
    lesser = LocalEvaluator(target.detect("lesser", march="x86-64-v3", environment=environment))
    result = lesser(problem, toy.python("print(torch.backends.cpu.get_cpu_capability())\nreturn data[0] + data[1]"), ())
    assert "AVX512" not in result.evidence["log"]
    assert result.target.startswith("lesser-")
