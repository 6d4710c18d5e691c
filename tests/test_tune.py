"""`ksflow tune`: the winner's table gets rows for more shapes, from runs of their own, without a model."""

import importlib.util
import json
import re
from pathlib import Path

import pytest
import torch
from test_cli import ksflow

from ksflow.integrate.handover.table import why_none
from ksflow.records import Kernel

PROBLEM = """title: Twice
args:
  - {name: x, dtype: float32, role: in, shape: n}
  - {name: y, dtype: float32, role: out, shape: n}
dims: [n]
cases:
  tests: [{n: 5, seed: 1}]
  leaderboard: [{n: 20000, seed: 2}]
"""
REFERENCE = """import torch

def generate_input(n, seed, device="cpu"):
    generator = torch.Generator(device=device).manual_seed(seed)
    return torch.randn(n, generator=generator), torch.zeros(n)

def ref_kernel(data):
    return torch.mul(data[0], 2, out=data[1])

def oracle(data):
    exact = data[0].double() * 2
    return {"expected": exact, "magnitude": exact.abs(), "terms": 1}
"""
KERNEL = """#include <cstdint>
constexpr int TURNS = 16;  // tune: 1 16
extern "C" void custom_kernel(const float *x, float *y, int64_t n, const int64_t *) {
  for (int turn = 0; turn < TURNS; turn++)
    for (int64_t i = 0; i < n; i++) {
      float twice = x[i] * 2;
      asm volatile("" : "+x"(twice));
      y[i] = twice;
    }
}
"""


def asked(folder: Path, *words: str) -> str:
    done = ksflow(folder, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_more_shapes_extend_the_table_and_the_module(tmp_path: Path) -> None:
    folder = tmp_path / "twice"
    (folder / "seeds").mkdir(parents=True)
    texts = {"problem.yaml": PROBLEM, "reference.py": REFERENCE, "statement.md": "# Twice\n"}
    for name, text in {**texts, "seeds/01_loop.cpp": KERNEL}.items():
        (folder / name).write_text(text)
    asked(tmp_path, "problem=./twice", "loop.evaluations=0", "loop.confirm=false")
    said = asked(tmp_path, "tune", "twice", "cases=[{n: 50000}]", "loop.evaluations=1", "loop.confirm=false")
    (chosen,) = re.findall(
        r"^50000: TURNS=(\d+): [\d.]+ µs, .* \(twice/main-50000/0000[12], 1 judged\)", said, re.MULTILINE
    )
    best = tmp_path / "runs" / "best" / "twice" / "main"
    rows = json.loads((best / "table.json").read_text())["rows"]
    assert [(row["case"], row["values"]) for row in rows] == [("20000", {"TURNS": "16"}), ("50000", {"TURNS": chosen})]
    spec = importlib.util.spec_from_file_location("tuned", best / "best.py")
    assert spec
    assert spec.loader
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    if chosen == "1":  # so it is, unless others used the machine so much that nothing could be ranked
        assert [made._nearest(n) for n in (5, 20000, 49000, 1 << 20)] == [0, 0, 1, 1]
    for n in (7, 60000):
        x = torch.randn(n)
        assert torch.equal(made.custom_kernel((x, torch.zeros(n))), x * 2)
    assert "(50000,)" in (best / "handover" / "module.py").read_text()
    assert "the judge finds that it answers as the reference does" in said


@pytest.mark.slow
def test_each_shape_is_a_run_of_its_own_and_what_cannot_be_tuned_is_said(tmp_path: Path) -> None:
    dry = ("problem=softmax", "evaluator=fake", "loop.confirm=false")
    asked(tmp_path, *dry, "loop.evaluations=0", "problem.seeds=[02_rows.cpp]")
    words = ("tune", "softmax", "evaluator=fake", "loop.confirm=false")
    said = asked(tmp_path, *words, "cases=[{rows: 100}, {rows: 8, cols: 64}]", "loop.evaluations=2")
    shapes = ["100x1024", "8x64"]
    for shape in shapes:
        assert f"{shape}: FORM=" in said
        assert f"(softmax/main-{shape}/" in said
    table = json.loads((tmp_path / "runs/best/softmax/main/table.json").read_text())
    assert [row["case"] for row in table["rows"]][-2:] == shapes
    for cases, why in (
        ("", "the command is: tune [NAME] cases="),
        ("cases=rows=8", "cases=rows=8 is not a list of cases such as [{m: 128, n: 256}]"),
        ("cases=[{depth: 8}]", "cases: no parameter depth; a case of softmax has rows, cols"),
        ("cases=[{rows: many}]", "a size is a whole number, not rows='many'"),
    ):
        refused = ksflow(tmp_path, *words, *filter(None, [cases]))
        assert refused.returncode == 2
        assert why in refused.stderr


def test_a_kernel_without_other_configurations_has_no_table() -> None:
    assert why_none(Kernel("cpp", {"k.cpp": KERNEL})) == ""
    assert "declares no tunables" in why_none(Kernel("cpp", {"k.cpp": "int x;\n"}))
    assert "without launch lines" in why_none(Kernel("triton", {"k.py": "BLOCK = 8  # tune: 8 16\n"}))
