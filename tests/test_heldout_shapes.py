"""Shapes that are held out: a leader is judged on them, people read how it did, and no model is shown any of it."""

import re
import shutil
from contextlib import closing
from pathlib import Path

import pytest
import torch
from kernels import get_local_kernel
from test_cli import ksflow

from ksflow.errors import ConfigError
from ksflow.kernels.problem.loader import load
from ksflow.lineage import Lineage

PROBLEM = """
title: Twice every element
languages: [python, cpp]
args:
  - {name: x, dtype: float32, role: in, shape: n}
  - {name: y, dtype: float32, role: out, shape: n}
dims: [n]
baselines: [00_torch.py]
cases:
  tests: [{n: 64, seed: 1}]
  cpu:
    tests: [{n: 64, seed: 1}]
    benchmarks: [{n: 16384, seed: 2}]
    heldout: [{n: 16385, seed: 3}, {n: 32768, seed: 4}]
"""
REFERENCE = """
import torch
from ksflow.evaluation.judge import bounds

def generate_input(n, seed):
    x = torch.randn(n, generator=torch.Generator().manual_seed(seed))
    return x, torch.zeros(n)

def ref_kernel(data):
    return torch.mul(data[0], 2, out=data[1])

def oracle(data):
    return bounds.elementwise(2 * data[0].double())
"""
BASELINE = """
def custom_kernel(data):
    x, y = data
    for _ in range(60):
        y.copy_(x * 2)
    return y
"""
LOOP = """#include <cstdint>
extern "C" void custom_kernel(const float *x, float *y, int64_t n, const int64_t *strides) {{
    for (int turn = 0; turn < {turns}; turn++)
        for (int64_t i = 0; i < {end}; i++) {{
            float twice = 2 * x[i];
            asm volatile("" : "+x"(twice));
            y[i] = twice;
        }}
}}
"""
FORGETS = """
def custom_kernel(data):
    x, y = data
    even = len(x) // 2 * 2
    y[:even] = x[:even] * 2
    return y
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A problem with a kernel that forgets the rest of odd sizes, and a slower one that is right."""
    place = tmp_path / "twice"
    (place / "seeds/cpu").mkdir(parents=True)
    (place / "problem.yaml").write_text(PROBLEM)
    (place / "reference.py").write_text(REFERENCE)
    (place / "statement.md").write_text("Twice every element.\n")
    (place / "seeds/00_torch.py").write_text(BASELINE)
    (place / "seeds/cpu/01_forgets.cpp").write_text(LOOP.format(turns=1, end="n / 2 * 2"))
    (place / "seeds/cpu/02_right.cpp").write_text(LOOP.format(turns=4, end="n"))
    return place


@pytest.mark.slow
def test_one_that_is_wrong_on_a_held_out_shape_does_not_win(folder: Path) -> None:
    for _ in range(3):  # so busy a machine that a kernel cannot be ranked is told as such
        done = ksflow(folder.parent, "problem=./twice", "loop.evaluations=0", "run=one")
        assert done.returncode == 0, done.stderr
        said = " ".join(done.stderr.split())
        if "winner 00003: x" in said and "right on 2 of 2 held-out shapes, there x" in said:
            break
        shutil.rmtree(folder.parent / "runs")
    assert "winner 00003: x" in said
    assert "right on 2 of 2 held-out shapes, there x" in said
    with closing(Lineage(folder.parent / "runs/lineage.git", "twice", "one", create=False)) as lineage:
        lineage.expect_as_recorded()
        fastest = lineage.last_population.ranked[0]  # 00002, or what the compiler's flags make of it or of 00003
        right = fastest.name.startswith("02_right")
        assert right or (fastest.held_out and list(fastest.held_out.wrong) == ["16385"])
    assert ("wrong on 1 of 2 held-out shapes: 16385" in said) is (fastest.id != "00003")
    shown = ksflow(folder.parent, "lineage", "show", "2", "problem=./twice", "run=one").stdout
    assert "held out 16385: reject-incorrect: " in shown
    assert "held out 32768: " in shown
    runs = ksflow(folder.parent, "runs").stdout
    assert "right on 2 of 2" in runs
    page = folder.parent / "page.html"
    ksflow(folder.parent, "report", "problem=./twice", "run=one", f"out={page}")
    assert "right on 2 of 2 held-out shapes" in page.read_text()

    # the winner as a kernel of the Hub's, at any size
    hub = folder.parent / "runs/best/twice/one/handover/hub"
    x = torch.randn(77)
    assert torch.equal(get_local_kernel(hub, backend="cpu").custom_kernel((x, torch.zeros(77))), 2 * x)
    assert "It is right on 2 of 2 held-out shapes" in (hub / "README.md").read_text()
    assert "| 32768 (held out) |" in (hub / "README.md").read_text()

    # what a model would be told now
    for stage in ("selector", "designer"):
        asked = ksflow(folder.parent, "prompt", stage, "problem=./twice", "run=one", "llm=dummy")
        assert asked.returncode == 0, asked.stderr
        assert "16384" in asked.stdout
        assert not re.search("16385|32768|held-out|heldout", asked.stdout)


@pytest.mark.slow
def test_one_that_wins_though_it_is_wrong_there_is_told_as_such(folder: Path) -> None:
    shutil.rmtree(folder / "seeds/cpu")
    (folder / "seeds/01_forgets.py").write_text(FORGETS)  # in C++ the compiler's flags would make a second one of it
    done = ksflow(folder.parent, "problem=./twice", "loop.evaluations=0", "run=one")
    said = " ".join(done.stderr.split())
    assert re.search(r"winner \d+: x\S+ \[.*\] over PyTorch.* wrong on 1 of 2 held-out shapes: 16385", said)


def test_a_shape_is_shown_or_held_out(folder: Path) -> None:
    (folder / "problem.yaml").write_text(PROBLEM.replace("n: 32768", "n: 64"))
    with pytest.raises(ConfigError, match="64 is held out and shown"):
        load(str(folder))
    (folder / "problem.yaml").write_text(PROBLEM)
    known = load(str(folder)).digest
    (folder / "problem.yaml").write_text(PROBLEM.replace("n: 32768", "n: 100"))
    assert load(str(folder)).digest == known, "what was judged stays judged when other shapes are held out"
    for name in ("softmax", "depthwise_conv3d"):
        assert all(load(name, cases).heldout for cases in ("cpu", "leaderboard"))
