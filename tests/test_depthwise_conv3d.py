"""The problem depthwise_conv3d: its oracle is the convolution, its bound is float32's, its seeds compile."""

import importlib.util
import shutil
from types import ModuleType

import pytest
import torch
from torch.nn.functional import conv3d

from ksflow.evaluation.judge.tolerance import expected, first_error
from ksflow.home import shipped_path
from ksflow.kernels.problem.loader import load
from ksflow.records import Target
from ksflow.stages.evaluator.static import StaticEvaluator

H100 = Target("h100", "gpu", "NVIDIA H100", march="sm_90a")
SIZES = {"n": 2, "c": 3, "d": 6, "h": 9, "w": 17, "kd": 3, "kh": 5, "kw": 5}


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "depthwise", shipped_path("problems", "depthwise_conv3d") / "reference.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def convolved(x: torch.Tensor, f: torch.Tensor) -> torch.Tensor:
    return conv3d(x, f.unsqueeze(1), padding=(0, f.shape[2] // 2, f.shape[3] // 2), groups=len(f))


def in_tf32(wide: torch.Tensor) -> torch.Tensor:
    return (wide.view(torch.int32) + 0x1000 & ~0x1FFF).view(torch.float32)


def summed_in(kind: torch.dtype, x: torch.Tensor, f: torch.Tensor) -> torch.Tensor:
    total = torch.zeros_like(convolved(x.float(), f.float()), dtype=kind)
    for tap in range(f[0].numel()):
        one = torch.zeros_like(f).flatten(1)
        one[:, tap] = f.flatten(1)[:, tap]
        total += convolved(x.float(), one.view_as(f).float()).to(kind)
    return total


@pytest.mark.slow
def test_the_oracle_is_the_convolution_and_float32_sums_keep_to_the_bound(reference: ModuleType) -> None:
    check = load("depthwise_conv3d").check
    for dtype in ("bfloat16", "float16", "float32"):
        x, f, y = reference.generate_input(**SIZES, seed=4, dtype=dtype)
        row = reference.oracle((x, f, y))
        assert torch.allclose(row["expected"], convolved(x.double(), f.double()), rtol=1e-12, atol=1e-12)
        want = expected(row, y, {"c1": check.c1, "accumulate": check.accumulate})
        assert not first_error(want, convolved(x.float(), f.float()).to(y.dtype))
        assert not first_error(want, summed_in(torch.float32, x, f).to(y.dtype))
        wrong = summed_in(y.dtype, x, f) if y.itemsize == 2 else convolved(in_tf32(x), in_tf32(f))
        assert first_error(want, wrong)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("nvcc"), reason="needs nvcc")
@pytest.mark.parametrize("variant", ["bfloat16", "float32"])
def test_the_seeds_for_cuda_compile_for_all_shapes(variant: str) -> None:
    problem = load("depthwise_conv3d", variant=variant, target=H100)
    kernels = {seed.name: seed.kernel for seed in problem.seeds if seed.kernel.language == "cuda"}
    assert set(kernels) == {"01_naive.cu", "02_planes.cu", "03_toeplitz.cu"}
    for name, kernel in kernels.items():
        found = StaticEvaluator(H100)(problem, kernel, ())
        assert found.verdict.value == "untimed", (name, found.reason)
    assert ("toeplitz" in found.reason) == (variant == "bfloat16")
