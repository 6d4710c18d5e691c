"""Seeds with threads: right with several, and with one core the code of the same source without its threads."""

import ctypes
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from ksflow.evaluation.compilers.cpp import compile_kernel
from ksflow.home import PACKAGE
from ksflow.kernels.hardware.target import detect
from ksflow.kernels.problem.loader import load
from ksflow.kernels.source.tunables import assign
from ksflow.records import Kernel, Problem

CASES = {
    "softmax": {"rows": 37, "cols": 130},
    "fp8_gemm": {"m": 96, "n": 320, "k": 256},
    "depthwise_conv3d": {"n": 2, "c": 5, "d": 5, "h": 9, "w": 11, "kd": 3, "kh": 3, "kw": 3},
    str(PACKAGE.parent / "examples/quantised_matvec/q4_matvec"): {"rows": 67, "cols": 480},
}
VALUES = {
    ("softmax", "02_rows.cpp"): {"FORM": "vector", "MR": "2", "STORE": "stream", "CHUNK": "4"},
    ("fp8_gemm", "03_tiles.cpp"): {"FORM": "outer", "MR": "4", "SPLIT": "by_rows", "TURN": "32"},
    ("depthwise_conv3d", "02_rows.cpp"): {"CHUNK": "1"},
    ("q4_matvec", "02_blocks.cpp"): {"ROWS": "4", "CHUNK": "16"},
}
"""Seeds with values of their tunables."""
_THREADED = re.compile(r"#if NUM_THREADS > 1\n(.*?)(?:#else\n(.*?))?#endif\n", re.DOTALL)


def _seeds() -> Iterator[Any]:
    for path in CASES:
        problem = load(path)
        for seed in problem.seeds:
            if "NUM_THREADS" in seed.kernel.main:
                yield pytest.param(path, seed.name, {}, id=f"{problem.name}: {seed.name}", marks=pytest.mark.soak)
            if values := VALUES.get((problem.name, seed.name)):
                yield pytest.param(path, seed.name, values, id=f"{problem.name}: {seed.name}, tuned")


def _built(problem: Problem, text: str, cores: int) -> str:
    built = compile_kernel(problem, Kernel("cpp", {"k.cpp": text}), detect(cores=cores))
    assert not built.reason, built.log
    return built.artefact


@pytest.mark.slow
@pytest.mark.parametrize(("path", "seed", "config"), [*_seeds()])
def test_a_seed_with_threads(path: str, seed: str, config: dict[str, str]) -> None:
    problem = load(path)
    text = assign(next(one.kernel.main for one in problem.seeds if one.name == seed), config)
    plain = _THREADED.sub(lambda match: match[2] or "", text).replace("NUM_THREADS", "1")
    assert Path(_built(problem, text, 1)).read_bytes() == Path(_built(problem, plain, 1)).read_bytes()

    spec = importlib.util.spec_from_file_location("reference", Path(problem.root, "reference.py"))
    assert spec
    assert spec.loader
    reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reference)
    params = {**problem.benchmarks[0].params, **CASES[path]}
    data = reference.generate_input(**params, seed=7)
    want = reference.ref_kernel(tuple(tensor.clone() for tensor in data)).double()
    kernel = ctypes.CDLL(_built(problem, text, 3)).custom_kernel
    pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in data]
    sizes = [ctypes.c_int64(int(params[dim])) for dim in problem.dims]
    strides = [stride for tensor in data for stride in tensor.stride()]
    for _ in range(3):
        data[-1].fill_(9)
        kernel(*pointers, *sizes, (ctypes.c_int64 * len(strides))(*strides))
        assert torch.allclose(data[-1].double(), want, rtol=1e-2, atol=1e-4 * float(want.abs().max()))
