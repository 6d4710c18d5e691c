"""Triton kernels without a GPU: the shipped seeds are right, in every structure, by Triton's interpreter."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ksflow.evaluation.judge.bench import Emulator
from ksflow.home import shipped_path
from ksflow.records import Kernel, Verdict

from . import toy

pytest.importorskip("triton", reason="interprets Triton kernels: pip install triton")

SEEDS = shipped_path("seeds", "fp8_gemm") / "gpu"
KMAJOR = shipped_path("seeds", "fp8_gemm") / "e4m3fn_kmajor"
TUNABLE = SEEDS / "02_transposed_triton.py"


def errors(folder: Path, *jobs: tuple[Path, dict[str, str], tuple[int, int, int]]) -> list[Any]:
    """How far each job's kernel is from the oracle, as a share of what is allowed; or what it raised."""
    asked = [
        {
            "file": str(file),
            "variant": "e4m3fn_kmajor" if file.is_relative_to(KMAJOR) else "e4m3fn",
            "values": values,
            "shape": shape,
        }
        for file, values, shape in jobs
    ]
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("interpreting.py"))],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_the_shipped_seeds_are_right_and_wrong_kernels_are_seen(tmp_path: Path) -> None:
    text = TUNABLE.read_text()
    late, unwritten, absent = (tmp_path / name for name in ("late.py", "unwritten.py", "absent.py"))
    late.write_text(text.replace("begin + per_share, blocks)", "begin + per_share, blocks - 1)"))
    unwritten.write_text(text.replace("# launch: transpose", "# launches: transpose"))
    absent.write_text(text.replace("def add_shares(", "def sum_up("))
    dispatched = {"dispatch: if m <= 96": "TRANSPOSE=2 SPLIT=2 BM=128 WARPS=8", "SCALES": "1"}
    *right, short, stale, nameless = errors(
        tmp_path,
        (SEEDS / "01_naive_triton.py", {}, (64, 64, 256)),
        (SEEDS / "03_host_triton.py", {}, (96, 64, 256)),
        (TUNABLE, {}, (96, 192, 256)),
        (TUNABLE, {"TRANSPOSE": "1", "SCALES": "1"}, (64, 192, 128)),
        (TUNABLE, {"TRANSPOSE": "2", "PERSISTENT": "1", "BN": "256", "WARPS": "8", "GROUP": "4"}, (96, 320, 128)),
        (TUNABLE, dispatched, (96, 64, 384)),
        (KMAJOR / "gpu" / "02_triton.py", {}, (96, 192, 256)),
        (KMAJOR / "gpu" / "02_triton.py", {"BM": "32", "BN": "64"}, (64, 64, 384)),
        (late, {}, (64, 64, 256)),
        (unwritten, {"TRANSPOSE": "1"}, (64, 64, 128)),
        (absent, {"SPLIT": "2"}, (64, 64, 256)),
    )
    assert all(error < 1.0001 for error in right), right
    assert short > 100
    assert stale > 100
    assert "no function add_shares" in nameless


@pytest.mark.slow
@pytest.mark.parametrize("form", ["0", "1", "2"])
@pytest.mark.soak
def test_every_structure_of_the_tunable_seed_is_right(tmp_path: Path, form: str) -> None:
    shapes = [(32, 64, 128), (160, 576, 256)]
    jobs = [
        (TUNABLE, {"TRANSPOSE": form, "SPLIT": split, "PERSISTENT": stay, "SCALES": scales, "BM": bm, "BN": bn}, shape)
        for split, stay, scales, bm, bn in [
            ("1", "0", "1", "128", "64"),
            ("2", "1", "0", "64", "256"),
            ("8", "2", "1", "256", "32"),
            ("4", "0", "0", "64", "128"),
        ]
        for shape in shapes
    ]
    found = errors(
        tmp_path,
        *[
            (file, {**values, "WARPS": "8", "TK": "256", "TR": "64", "TWARPS": "8"}, shape)
            for file, values, shape in jobs
        ],
    )
    assert all(isinstance(error, float) and error < 1.0001 for error in found), found


NARROW = """
import torch
import triton
import triton.language as tl
from ksflow.evaluation.sandbox.runners import interpreted

interpreted._round_like_devices()
interpreted._compute_like_devices()

@triton.jit
def work(a, b, out, HOW: tl.constexpr):
    at = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    x, y = tl.load(a + at), tl.load(b + at)
    if HOW == "dot":
        z = tl.dot(x, y)
    elif HOW == "add":
        z = x + y * 0.5 - 1.0
    elif HOW == "where":
        z = tl.where(x > y, x, 1.5)
    elif HOW == "exp":
        z = tl.exp(x.to(tl.float32)).to(x.dtype) / y
    elif HOW == "whole":
        z = (x * 3).to(tl.int32).to(x.dtype) + tl.maximum(x, -y)
    else:
        z = tl.broadcast_to(tl.sum(x, axis=1)[:, None], 16, 16)
    tl.store(out + at, z.to(out.dtype.element_ty))

def right(x, y):
    half = x.bfloat16()
    return {
        "dot": x.float() @ y.float(), "add": x + y * 0.5 - 1, "where": torch.where(x > y, x, torch.full_like(x, 1.5)),
        "exp": x.float().exp().to(x.dtype) / y, "whole": (x * 3).int().to(x.dtype) + torch.maximum(x, -y),
        "sum": x.float().sum(1, keepdim=True).expand(16, 16),
    }

torch.manual_seed(1)
for kind in (torch.bfloat16, torch.float8_e4m3fn):
    print("\\n" if kind != torch.bfloat16 else "", end="")
    x, y = torch.randn(16, 16).to(kind), (torch.rand(16, 16) + 0.5).to(kind)
    for how, exact in right(x.bfloat16(), y.bfloat16()).items():
        out = torch.zeros(16, 16)
        try:
            work[(1,)](x, y, out, HOW=how)
            near = 2**-8 if kind == torch.bfloat16 else 2**-2
            print(how, bool(((out - exact.float()).abs() <= near * (0.1 + exact.float().abs())).all()))
        except Exception as error:
            print(how, "refused" if "NotImplementedError" in repr(error) + repr(error.__cause__) else repr(error))
"""


@pytest.mark.slow
def test_arithmetic_in_narrow_floats_is_right_or_refused(tmp_path: Path) -> None:
    (tmp_path / "narrow.py").write_text(NARROW)
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, "narrow.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    half, eight = done.stdout.split("\n\n")
    right = [f"{how} True" for how in ("dot", "add", "where", "exp", "whole")]
    assert half.split("\n") == [*right, "sum refused"], done.stderr
    assert "add refused" in eight
    assert "dot True" in eight
    assert "False" not in eight


SUMS = """import triton
import triton.language as tl

@triton.jit
def work(a, b, out, n):
    at = tl.program_id(0) * 1024 + tl.arange(0, 1024)
    x = tl.load(a + at, mask=at < n).to(tl.bfloat16)
    y = WHAT
    tl.store(out + at, tl.load(a + at, mask=at < n) + tl.load(b + at, mask=at < n) + 0 * y, mask=at < n)

def custom_kernel(data):
    a, b, out = data
    work[(1,)](a, b, out, a.numel())
    return out
"""


@pytest.mark.slow
def test_what_the_interpreter_cannot_compute_is_no_verdict(tmp_path: Path) -> None:
    problem = toy.problem(tmp_path)
    problem = replace(problem, small=problem.tests, benchmarks=(), languages=("triton",))
    emulator = Emulator()
    right, untold = (
        Kernel("triton", {"kernel.py": SUMS.replace("WHAT", f"({what}).to(tl.float32)")})
        for what in ("x + x * 2 - 1", "tl.sum(x)")
    )
    assert emulator(problem, right, "sm_90").verdict is Verdict.UNTIMED
    with pytest.raises(ValueError, match=r"Triton's interpreter gives no result: no way to reduce these floats .bf16"):
        emulator(problem, untold, "sm_90")
    emulator.close()
