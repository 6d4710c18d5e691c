"""The roofline: the data sheet at its word, what bounds a shape, the share that a time reaches."""

import dataclasses

import pytest

from ksflow.config.compose import build, compose
from ksflow.kernels.hardware import roofline
from ksflow.kernels.problem.loader import load
from ksflow.records import Problem, Target, Timing, geomean


@pytest.fixture(scope="module")
def h200() -> Target:
    return build(compose(["target=h200"]).target)


@pytest.fixture(scope="module")
def gemm(h200: Target) -> Problem:
    return load("fp8_gemm", target=h200)


def test_the_limit_of_the_fp8_problem_is_that_of_the_data_sheet(gemm: Problem, h200: Target) -> None:
    rows = roofline.rows(gemm, h200, [Timing(case.name, 100.0) for case in gemm.benchmarks])
    assert geomean(row.bound_us for row in rows) == pytest.approx(17.9, abs=0.05)
    assert roofline.share(rows, {}) == pytest.approx(0.179, abs=0.0005)
    assert {row.bound for row in rows} == {"compute", "memory"}
    assert [row.case for row in rows] == [case.name for case in gemm.benchmarks]


def test_a_time_becomes_rates_and_a_share(gemm: Problem, h200: Target) -> None:
    case = next(case for case in gemm.benchmarks if case.params == {**case.params, "m": 1024, "n": 1536, "k": 7168})
    row = roofline.roofline(gemm, case, h200, 50.0)
    assert row is not None
    flops = 2 * 1024 * 1536 * 7168
    assert row.tflops == pytest.approx(flops / 50e-6 / 1e12, rel=1e-3)
    assert row.bound_us == pytest.approx(flops / 1979e12 * 1e6, rel=1e-3)
    assert row.share == pytest.approx(row.bound_us / 50, rel=1e-3)
    assert row.bound == "compute"
    assert row.intensity == pytest.approx(1e3 * row.tflops / row.gbs, rel=1e-2)


def test_traffic_alone_is_a_roof_too(h200: Target) -> None:
    problem = load("softmax", "leaderboard")
    bytes_only = dataclasses.replace(problem, work={"bytes": problem.work["bytes"]})
    row = roofline.roofline(bytes_only, problem.benchmarks[0], h200, 20.0)
    assert row is not None
    assert row.bound == "memory"
    assert row.tflops is None
    assert row.intensity is None


def test_where_nothing_is_known_there_is_no_roof(gemm: Problem, h200: Target) -> None:
    case = gemm.benchmarks[0]
    assert roofline.roofline(dataclasses.replace(gemm, work={}), case, h200, 1.0) is None
    assert roofline.roofline(gemm, case, Target("odd", "gpu", "chip"), 1.0) is None
    assert roofline.rows(gemm, h200, [Timing("another", 1.0)]) == ()
    assert roofline.share([], {}) is None
