"""`evaluator=static`: what a user without a GPU is told of a kernel."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from ksflow.errors import ConfigError
from ksflow.records import Evidence, Problem, Target, Verdict
from ksflow.stages.evaluator.static import StaticEvaluator

from . import gpu_toy, toy


@pytest.fixture
def problem(tmp_path: Path) -> Problem:
    return gpu_toy.problem(tmp_path)


def test_hip_for_an_mi300x(problem: Problem) -> None:
    found = StaticEvaluator(gpu_toy.MI300X)(problem, gpu_toy.hip(), ())
    assert found.verdict is Verdict.UNTIMED
    assert found.reason.startswith("compiled for gfx942: ")
    assert " VGPRs, occupancy 8 of 8; nothing was timed" in found.reason
    assert found.evidence.made == "strong"
    assert found.evidence.compiler[0].kernel == "add"
    assert found.judge == "static-1"
    assert found.target.startswith("mi300x-")
    assert "triton" in found.target


@pytest.mark.slow
def test_triton_for_an_h200(problem: Problem) -> None:
    found = StaticEvaluator(gpu_toy.H200)(problem, gpu_toy.triton(), ())
    assert found.verdict is Verdict.UNTIMED
    assert found.reason.startswith("compiled for sm_90a: ")
    assert "registers, occupancy 64 of 64" in found.reason


def test_gluon_has_no_interpreter(problem: Problem) -> None:
    small = replace(problem, small=problem.tests)
    text = "from triton.experimental import gluon\n\n\ndef custom_kernel(data):\n    return data[-1]\n"
    found = StaticEvaluator(gpu_toy.H200)(small, gpu_toy.triton(text), ())
    assert found.verdict is Verdict.UNTIMED
    assert found.evidence.emulated == "not emulated: ksflow has no emulator or interpreter of gluon"


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("nvcc"), reason="needs nvcc")
def test_compile_error_has_its_log(problem: Problem) -> None:
    found = StaticEvaluator(gpu_toy.H200)(problem, gpu_toy.cuda(gpu_toy.CUDA.replace("int i =", "int j =")), ())
    assert found.verdict is Verdict.COMPILE
    assert 'identifier "i" is undefined' in found.reason
    assert "int j = " not in found.reason
    assert "^" in found.evidence.log


def test_what_cannot_be_compiled_here(problem: Problem) -> None:
    other = StaticEvaluator(gpu_toy.H200)(problem, gpu_toy.hip(), ())
    assert other.verdict is Verdict.MALFORMED
    assert other.reason == "language hip cannot be compiled for h200 (sm_90a)"
    python = StaticEvaluator(gpu_toy.H200)(problem, toy.RIGHT_PYTHON, ())
    assert python.verdict is Verdict.UNTIMED
    assert python.evidence == Evidence(made="host", emulated="not emulated: the problem has no small cases")


@pytest.mark.slow
def test_barrier_that_not_all_reach_is_the_reason(problem: Problem) -> None:
    small = replace(problem, small=problem.tests)
    two = "  if (threadIdx.x < 64)\n__syncthreads();\nelse\n__syncthreads();"
    torn = gpu_toy.HIP.replace("  __syncthreads();", two)
    found = StaticEvaluator(gpu_toy.MI300X)(small, gpu_toy.hip(torn), ())
    assert found.verdict is Verdict.CRASH
    assert ": not all threads arrive at one barrier: " in found.reason
    assert "SIGABRT" not in found.reason


def test_target_must_be_a_gpu() -> None:
    with pytest.raises(ConfigError, match="target=auto is a cpu, and evaluator=static compiles for GPUs"):
        StaticEvaluator(Target("auto", "cpu", "some"))
