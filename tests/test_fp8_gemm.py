"""The block-scaled product in both layouts: the same numbers, and kernels that are told which one they read."""

from types import ModuleType

import pytest
import torch

from ksflow.evaluation.sandbox.runners.torch_kernel import load_module
from ksflow.home import shipped_path
from ksflow.kernels.problem.kernel_file import kernel_file
from ksflow.kernels.problem.loader import load
from ksflow.records import Verdict
from ksflow.stages.evaluator.local import LocalEvaluator

SHAPE = {"m": 96, "n": 192, "k": 256}
KMAJOR = "e4m3fn_kmajor"


@pytest.fixture(scope="module")
def columns() -> ModuleType:
    return load_module("fp8_gemm_columns", shipped_path("problems", "fp8_gemm", "reference.py"))


@pytest.fixture(scope="module")
def rows() -> ModuleType:
    return load_module("fp8_gemm_rows", shipped_path("problems", "fp8_gemm", KMAJOR, "reference.py"))


def test_a_seed_has_the_same_numbers_in_both_layouts(columns: ModuleType, rows: ModuleType) -> None:
    given, turned = columns.generate_input(**SHAPE, seed=7), rows.generate_input(**SHAPE, seed=7)
    for one, other in zip(given, turned, strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(one.float(), other.float())
    assert [tensor.stride() for tensor in given] == [(1, 96), (1, 192), (1, 96), (1, 2), (192, 1)]
    assert [tensor.stride() for tensor in turned] == [(256, 1), (256, 1), (1, 96), (1, 2), (192, 1)]


def test_reference_and_oracle_agree_with_the_other_layouts(columns: ModuleType, rows: ModuleType) -> None:
    given, turned = columns.generate_input(**SHAPE, seed=8), rows.generate_input(**SHAPE, seed=8)
    want, got = columns.oracle(given), rows.oracle(turned)
    torch.testing.assert_close(got["expected"], want["expected"], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(got["magnitude"], want["magnitude"], rtol=1e-12, atol=1e-12)
    error = (rows.ref_kernel(turned).double() - got["expected"]).abs()
    assert (error <= 8 * 2**-23 * 16 * got["magnitude"] + 2**-8 * got["expected"].abs()).all()


def test_the_oracle_is_the_statements_formula(rows: ModuleType) -> None:
    a, b, a_scale, b_scale, c = data = rows.generate_input(32, 192, 256, seed=9)
    expected = torch.zeros(c.shape, dtype=torch.float64)
    for kb in range(2):
        part = a[:, kb * 128 :][:, :128].double() @ b[:, kb * 128 :][:, :128].double().T
        for j in range(192):
            expected[:, j] += a_scale[:, kb].double() * b_scale[j // 128, kb].double() * part[:, j]
    torch.testing.assert_close(rows.oracle(data)["expected"], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
def test_a_kernel_for_one_layout_is_no_kernel_for_the_other(evaluator: LocalEvaluator) -> None:
    naive = kernel_file(str(shipped_path("seeds", "fp8_gemm", KMAJOR, "cpu", "01_naive.cpp")))
    kmajor = load("fp8_gemm", variant=KMAJOR)
    assert evaluator(kmajor, naive, ()).verdict is Verdict.ACCEPT
    refused = evaluator(load("fp8_gemm"), naive, ())
    assert refused.verdict is Verdict.COMPILE
    assert "operands are read K-major: problem.variant=e4m3fn_kmajor" in refused.reason
    pairs = kernel_file(str(shipped_path("seeds", "fp8_gemm", "cpu", "01_numpy_pairs.py")))
    assert evaluator(kmajor, pairs, ()).verdict is not Verdict.ACCEPT
