"""Times are sane: the same kernel ties with itself, a faster one wins, and the machine is shared fairly."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from evaluator import toy
from evaluator.conftest import Judge, in_the_end
from ksflow.evaluation.compilers.cpp import compile_loop
from ksflow.kernels.hardware import target
from ksflow.records import Case, Evaluation, Problem, Verdict
from ksflow.stages.evaluator.local import LocalEvaluator


def test_kernel_is_neither_faster_nor_slower_than_itself(judge: Judge) -> None:
    """However busy the machine is."""
    evidence = judge(toy.slow(4), toy.slow(4)).evidence
    (row,) = evidence.against
    assert row.id == "00000"
    assert row.low <= row.speedup <= row.high
    assert not evidence.claim.faster, evidence.claim
    assert not row.slower, row


@pytest.mark.slow
def test_kernel_ties_with_itself(judge: Judge) -> None:
    def ties(result: Evaluation) -> bool:
        return 0.7 < float(result.evidence.against[0].speedup) < 1.4

    in_the_end(lambda: judge(toy.slow(4), toy.slow(4)), ties)


def test_faster_kernel_wins(judge: Judge) -> None:
    def wins(result: Evaluation) -> bool:
        incumbent, baseline = result.evidence.against
        assert baseline.id == "00001"
        return bool(incumbent.low > 1)

    in_the_end(lambda: judge(toy.RIGHT_CPP, toy.slow(300), toy.RIGHT_PYTHON), wins)


def test_slower_kernel_is_given_up_early_with_honest_times(judge: Judge) -> None:
    def loses(result: Evaluation) -> bool:
        assert result.accepted
        return result.evidence.against[0].high < 1 and len(result.timings[0].samples_us) < 25

    in_the_end(lambda: judge(toy.slow(300), toy.RIGHT_CPP), loses)


def test_opponent_that_fails_is_skipped_with_a_note(judge: Judge) -> None:
    result = judge(toy.RIGHT_CPP, toy.cpp("abort();"), toy.cpp("nonsense"), toy.RIGHT_PYTHON)
    assert result.accepted
    assert [row.id for row in result.evidence.against] == ["00002"]
    assert "SIGABRT" in result.evidence.skipped["00000"]
    assert "nonsense" in result.evidence.skipped["00001"]
    assert {*result.evidence.failed_rivals} == {"00000", "00001"}


KING = """
#include <time.h>
static double now() { timespec at; clock_gettime(CLOCK_MONOTONIC, &at); return at.tv_sec + at.tv_nsec * 1e-9; }
static double last = now();
"""


def test_a_best_so_far_that_fails_when_it_is_a_rival_is_none(judge: Judge) -> None:
    """It aborts when it was stopped for long between two calls, as a rival is while others start. It does so beside
    itself, too: the challenger is not to blame, and is compared with the next one."""
    king = toy.cpp("if (now() - last > 0.02) abort(); " + toy.LOOP + " last = now();", KING)
    evidence = judge(toy.RIGHT_CPP, king, toy.slow(300)).evidence
    assert "SIGABRT" in evidence.failed_rivals["00000"]
    assert "00000" in evidence.skipped
    assert [row.id for row in evidence.against] == ["00001"]
    assert evidence.claim
    assert evidence.claim.id == "00001"


AFTER = """
#include <atomic>
#include <thread>
std::atomic<int> asked{0};
struct After { After() { std::thread([] {
    for (int seen = 0;;) {
        while (seen == asked) usleep(1);
        for (int64_t k = 0; k < 1000000; k++) asm volatile("");
        seen = asked;
    } }).detach(); } } after;
"""


def test_work_after_the_answer_is_charged(judge: Judge) -> None:
    """It is stopped before the next turn, so it goes on in that one: sooner or later it is in a call's time."""

    def charged(result: Evaluation) -> bool:
        rows = [timing.samples_us for timing in result.timings]
        return result.accepted and all(sum(samples) / len(samples) > 40 for samples in rows)

    (row, *_) = in_the_end(lambda: judge(toy.cpp(toy.LOOP + " asked++;", AFTER)), charged).evidence.timed
    assert row.clock.startswith(("wall", "cpu"))


BURN = """
#include <thread>
struct Burn { Burn() { for (int k = 0; k < 3; k++) std::thread([] { for (;;) asm volatile(""); }).detach(); } } burn;
"""


def test_threads_that_go_on_working_slow_no_rival(judge: Judge) -> None:
    """However much they do between turns."""
    burning = toy.cpp(toy.LOOP, BURN)
    assert not judge(burning, toy.RIGHT_CPP).evidence.claim.faster


def test_a_comparison_says_what_the_clock_was(judge: Judge) -> None:
    evidence = judge(toy.slow(4), toy.slow(4)).evidence
    for row in evidence.timed:
        assert row.clock.startswith(("wall", "cpu"))
        assert row.calls == 1
        assert 0 < row.null["off_wall_us"] <= row.null["wall_p90_us"]
    assert evidence.against[0].clocks


def test_output_that_comes_late_is_none(judge: Judge) -> None:
    late = """
#include <thread>
"""
    body = "std::thread([=] { usleep(20000); for (int64_t i = 0; i < n; i++) out[i] = a[i] + b[i]; }).detach();"
    result = judge(toy.cpp(body, late))
    assert result.verdict is Verdict.INCORRECT


def test_output_that_changes_later_is_rejected(evaluator: LocalEvaluator, problem: Problem) -> None:
    """All outputs are of one size: what comes late lies beyond the end of a smaller one, which is told as such."""
    body = toy.LOOP + " std::thread([=] { usleep(2000); out[n - 1] = 0; }).detach();"
    alike = replace(problem, tests=problem.tests[-1:], benchmarks=problem.benchmarks[-1:])
    result = evaluator(alike, toy.cpp(body, "#include <thread>"), ())
    assert result.verdict is Verdict.INCORRECT
    assert "changed after" in result.reason or "are off" in result.reason


@pytest.mark.parametrize("forged", [b"ok12345678", b"ready", b"accept", b"ok"])
def test_forged_answer_is_a_cheat(judge: Judge, forged: bytes) -> None:
    body = f"""
import os
for fd in range(3, 64):
    try: os.write(fd, {forged!r})
    except OSError: pass
"""
    result = judge(toy.python(f"{body}\nreturn data[0] + data[1]"))
    assert result.verdict is Verdict.CHEAT, result.reason


def test_shared_memory_cannot_be_cut(judge: Judge) -> None:
    """A judge that touches memory which is gone would die of it."""
    body = """
import os
for fd in range(3, 64):
    for move in (lambda: os.ftruncate(fd, 0), lambda: os.posix_fallocate(fd, 0, 1 << 30)):
        try: move()
        except OSError: pass
return data[0] + data[1]
"""
    assert judge(toy.python(body)).verdict is not Verdict.HARNESS


def test_claim_is_confirmed_beside_a_control(judge: Judge) -> None:
    def confirmed(result: Evaluation) -> bool:
        claim = result.evidence.claim
        assert claim.id == "00000"
        return claim.control and claim.speedup > 1.5

    claim = in_the_end(lambda: judge(toy.slow(10), toy.slow(30)), confirmed).evidence.claim
    assert claim.control
    assert claim.first.low > 1
    assert claim.faster or not claim.ranked


def test_no_claim_without_a_lead(judge: Judge) -> None:
    claim = judge(toy.slow(30), toy.slow(10)).evidence.claim
    assert not claim.faster
    assert claim.control is None


@pytest.mark.slow
def test_large_outputs_are_checked_at_a_sample(evaluator: LocalEvaluator, problem: Problem) -> None:
    large = replace(problem, tests=problem.tests[:1], benchmarks=(Case("large", {"n": 5_000_000}, 1),))
    result = evaluator(large, toy.RIGHT_CPP, ())
    (row,) = result.evidence.timed
    assert row.compared_whole < len(row.contents)
    wrong = toy.cpp("for (int64_t i = 0; i < n; i++) out[i] = a[i] + b[i] + (n > 1000 && i % 1000 == 0);")
    assert not evaluator(large, wrong, ()).accepted


def test_this_process_stays_light() -> None:
    code = (
        "import sys; from ksflow.kernels.hardware import target; "
        "from ksflow.stages.evaluator.local import LocalEvaluator;"
        "LocalEvaluator(target.detect()); sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, timeout=600, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.slow
def test_lesser_target_keeps_libraries_off_avx512(problem: Problem) -> None:
    environment = {"ATEN_CPU_CAPABILITY": "avx2", "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512F AVX512_SKX"}
    lesser = LocalEvaluator(target.detect("lesser", march="x86-64-v3", environment=environment))
    result = lesser(problem, toy.python("print(torch.backends.cpu.get_cpu_capability())\nreturn data[0] + data[1]"), ())
    assert "AVX512" not in result.evidence.log
    assert result.target.startswith("lesser-")


@pytest.mark.slow
def test_without_a_compiler_python_calls_the_kernels_and_the_evidence_says_so(
    problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    for made, said in (("", True), (compile_loop(), False)):
        monkeypatch.setattr("ksflow.evaluation.judge.client.compile_loop", lambda made=made: made)
        evaluator = LocalEvaluator(target.detect())
        result = evaluator(problem, toy.RIGHT_CPP, ())
        evaluator.close()
        assert result.accepted, result.reason
        assert ("harness" in result.evidence.more) == said


STARVE = """
struct Starve { Starve() { for (int k = 0; k < 50; k++) if (!fork()) for (;;) asm volatile(""); } } starve;
"""


@pytest.mark.slow
def test_processes_that_spin_from_the_import_on_cost_no_rival_its_start(
    evaluator: LocalEvaluator, tmp_path: Path
) -> None:
    """The rival has started, has warmed up and is frozen before they are there."""
    problem = toy.problem(tmp_path, replace(toy.PATIENT, check_s=6.0))
    result = evaluator(problem, toy.cpp(toy.LOOP, STARVE), (toy.trial(toy.RIGHT_CPP),))
    assert not result.evidence.skipped
    assert not result.accepted or result.evidence.claim is not None
