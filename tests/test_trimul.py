"""The problem trimul: what its bound tells apart, and the script that measures published kernels on it."""

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.nn.functional import layer_norm, linear

from ksflow.evaluation.judge.tolerance import expected, first_error
from ksflow.home import shipped_path
from ksflow.kernels.problem.loader import load

ROOT = Path(__file__).resolve().parents[1]
Round = Callable[[torch.Tensor], torch.Tensor]

SUBMISSION = '''
import torch
from torch.nn.functional import layer_norm, linear
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    """Half precision; what was packed stays in the caller's dict."""
    x, mask, weights, config = data
    assert (x.shape[-1], weights["left_proj.weight"].shape[0]) == (config["dim"], config["hidden_dim"])
    names = ["left_proj", "left_gate", "right_proj", "right_gate", "out_gate"]
    if "_packed" not in weights:
        weights["_packed"] = torch.cat([weights[f"{name}.weight"] for name in names])
    z = layer_norm(x, x.shape[-1:], weights["norm.weight"], weights["norm.bias"])
    left, left_gate, right, right_gate, gate = linear(z, weights["_packed"]).chunk(5, -1)
    left, right = left * left_gate.sigmoid() * mask[..., None], right * right_gate.sigmoid() * mask[..., None]
    p = torch.einsum("bikd,bjkd->bijd", left, right)
    p = layer_norm(p, p.shape[-1:], weights["to_out_norm.weight"], weights["to_out_norm.bias"])
    y = torch.empty(x.shape, dtype=torch.float32, device=x.device)
    return torch.matmul(p * gate.sigmoid(), weights["to_out.weight"].T, out=y)
'''


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("trimul", shipped_path("problems", "trimul") / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["trimul"] = module
    spec.loader.exec_module(module)
    return module


def kept_in(dtype: torch.dtype) -> Round:
    return lambda wide: wide.to(dtype).float()


def in_fp8(wide: torch.Tensor) -> torch.Tensor:
    scale = wide.abs().max() / 200
    return kept_in(torch.float8_e4m3fn)(wide / scale) * scale


def kernel(reference: ModuleType, data: Any, keep: Round, sides: Round) -> torch.Tensor:
    """One that rounds wherever it may; `sides` is for what left and right are made of."""
    x, mask, *rest, _ = data
    w = reference.Weights(*rest)
    z = keep(layer_norm(x[0], w.norm_w.shape, w.norm_w, w.norm_b))

    def side(projection: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        value, logit = (keep(linear(sides(z), sides(weight))) for weight in (projection, gate))
        return sides(value * keep(logit.sigmoid()) * mask[0].unsqueeze(-1))

    p = keep(reference.product(side(w.left_w, w.left_gate), side(w.right_w, w.right_gate)))
    normed = keep(layer_norm(p, w.out_norm_w.shape, w.out_norm_w, w.out_norm_b))
    gated = keep(normed * keep(keep(linear(z, keep(w.out_gate))).sigmoid()))
    return keep(linear(gated, keep(w.out_w))).unsqueeze(0)


@pytest.mark.slow
@pytest.mark.parametrize("draw", ["normal", "cauchy", "centred"])
@pytest.mark.parametrize("masked", [0, 1])
def test_half_precision_is_right_and_less_is_not(reference: ModuleType, draw: str, masked: int) -> None:
    check = load("trimul").check
    data = reference.generate_input(bs=1, n=48, c=64, h=64, seed=3, masked=masked, draw=draw)
    want = expected(reference.oracle(data), data[-1], {"c1": check.c1, "accumulate": check.accumulate})
    half, bf16 = kept_in(torch.float16), kept_in(torch.bfloat16)
    assert not first_error(want, reference.ref_kernel(data))
    assert not first_error(want, kernel(reference, data, half, half))
    assert first_error(want, kernel(reference, data, bf16, bf16))
    if draw == "centred":  # elsewhere most of the product is the same for all pairs, and noise is averaged out
        assert first_error(want, kernel(reference, data, half, bf16))
        assert first_error(want, kernel(reference, data, half, in_fp8))


def test_static_weights_stay_while_x_changes(reference: ModuleType) -> None:
    sizes = {"bs": 1, "n": 4, "c": 8, "h": 8}
    for static, same in ((1, True), (0, False)):
        one, other = (reference.generate_input(**sizes, seed=seed, static=static) for seed in (1, 2))
        assert not torch.equal(one[0], other[0])
        assert [torch.equal(*pair) for pair in zip(one[2:-1], other[2:-1], strict=True)] == [same] * 10
    assert load("trimul", variant="static").defines == {"STATIC_WEIGHTS": 1}


@pytest.mark.slow
@pytest.mark.soak
def test_the_table_tells_who_keeps_weights_and_survives_who_fails(tmp_path: Path) -> None:
    (tmp_path / "keeps.py").write_text(SUBMISSION)
    (tmp_path / "dies.py").write_text("import os\ndef custom_kernel(data): os._exit(3)")
    own = shipped_path("seeds", "trimul", "00_torch.py")
    out = tmp_path / "found.json"
    words = ["dies.py", "keeps.py", "--own", str(own), "--no-judge", "--out", str(out)]
    command = [sys.executable, str(ROOT / "benchmarks" / "trimul.py"), *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    lines = {line.split(" |")[0]: line for line in done.stdout.splitlines() if line.startswith("| ")}
    assert lines["| keeps"].endswith("| yes | no, on 3 of 3 cases |")
    assert lines["| 00_torch"].endswith("| yes | yes |")
    assert lines["| dies"].endswith("| - | - |")
    assert "dies: measuring ended with status 3" in done.stdout
    found = json.loads(out.read_text())["found"]["keeps"]
    assert all(row["same_ms"] > 0 and row["fresh_ms"] > 0 for row in found.values())
