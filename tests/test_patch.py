"""The kernel of a function of a repository as a patch of that repository."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from test_model_profile import ksflow

from ksflow.integrate.model.timed import time_beside

pytestmark = pytest.mark.slow
PACKAGE = {
    "shop/__init__.py": "",
    "shop/filters.py": '''"""Filters."""

import numpy as np


def smooth(x, total, *, times=1.0, mode="same"):
    """The sum of both neighbours."""
    y = x.copy()
    for i in range(1, x.shape[0] - 1):
        y[i] = times * (x[i - 1] + x[i + 1])
    total += y
    return {"smooth": y, "total": total, "largest": float(y.max())}
''',
    "shop/nets.py": """import torch


@torch.no_grad()
def gate(x, state, k=2.0):
    state["total"].add_(x)
    y = x * k
    for _ in range(100):  # slower than the call of an operator
        y = y * 1.0
    return torch.sigmoid(y + state["bias"]), None
""",
    "tests/test_shop.py": """import numpy as np
import pytest
import torch

from shop.filters import smooth
from shop.nets import gate


@pytest.mark.parametrize("rows", [4, 40, 50])
def test_smooth(rows):
    x = np.random.default_rng(0).standard_normal((rows, 30))
    total = np.ones_like(x)
    found = smooth(x, total)
    assert found["total"] is total
    np.testing.assert_allclose(total, 1 + found["smooth"])
    assert (found["smooth"][0] == x[0]).all()
    np.testing.assert_allclose(found["smooth"][1:-1], x[:-2] + x[2:])
    assert type(found["largest"]) is float
    assert smooth(x, total, times=0.0)["smooth"][1:-1].max() == 0.0


@pytest.mark.parametrize("rows", [4, 8])
def test_gate(rows):
    x, bias, total = torch.randn(rows, 16), torch.randn(16), torch.ones(rows, 16)
    found, nothing = gate(x, {"bias": bias, "total": total})
    assert nothing is None
    torch.testing.assert_close(total, 1 + x)
    torch.testing.assert_close(found, torch.sigmoid(2 * x + bias))
""",
    "run.py": """import numpy as np
import torch

from shop.filters import smooth
from shop.nets import gate

for rows in (3,) * 99 + (20, 40, 40, 40, 50, 50, 50):
    smooth(np.random.default_rng(0).standard_normal((rows, 30)), np.zeros((rows, 30)))
for rows in (4, 4, 5, 5):
    gate(torch.randn(rows, 16), {"bias": torch.randn(16), "total": torch.zeros(rows, 16)})
""",
}
SMOOTH = """#include <algorithm>
#include <cstdint>
extern "C" void custom_kernel(const double *x, double *total, double *y, double *most,
                              int64_t m, int64_t, const int64_t *) {
  for (volatile int wasted = 0; m == 3 && wasted < 300000;) wasted = wasted + 1;
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < 30; j++)
      total[i * 30 + j] += y[i * 30 + j] =
          i == 0 || i == m - 1 ? x[i * 30 + j] : x[(i - 1) * 30 + j] + x[(i + 1) * 30 + j];
  *most = *std::max_element(y, y + m * 30);
}
"""
GATE = """#include <cmath>
#include <cstdint>
extern "C" void custom_kernel(const float *x, const float *bias, float *total, float *y,
                              int64_t m, int64_t, const int64_t *) {
  for (int64_t i = 0; i < m * 16; i++) y[i] = 1 / (1 + std::exp(-(2 * x[i] + bias[i % 16])));
  for (int64_t i = 0; i < m * 16; i++) total[i] += x[i];
}
"""


def python(repository: Path, *words: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *words], cwd=repository, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(repository), "XDG_CACHE_HOME": str(repository.parent), **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def git(repository: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=repository, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A person's own, in git."""
    folder = tmp_path / "repository"
    for name, text in PACKAGE.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git(folder, "init", "-q")
    git(folder, "add", ".")
    return folder


def patched(repository: Path, function: str, kernel: str, seed: int) -> tuple[Path, Path]:
    """The patch of a function with this kernel, and the folder that holds the run."""
    place, name = repository.parent, function.rpartition(":")[2]
    done = ksflow(repository, "isolate", function, f"run={sys.executable} run.py", f"out={place}")
    assert done.returncode == 0, done.stderr
    (place / "kernel.cpp").write_text(kernel)
    words = (f"problem=./{name}", "seed_kernels=kernel.cpp", "loop.evaluations=0", "evaluator=fake")
    done = ksflow(place, *words, f"evaluator.seed={seed}")  # made-up times, in which the kernel is ahead
    assert done.returncode == 0, done.stderr
    written = ksflow(place, "apply", name, "--patch", f"out={name}.patch")
    assert written.returncode == 0, written.stderr
    assert "the judge finds that it answers as the reference does" in written.stdout
    assert re.search(r"- \w+: [\d.]+ µs original, [\d.]+ µs patched, x[\d.]+$", written.stdout, re.MULTILINE)
    return place / f"{name}.patch", place


def test_a_function_of_arrays_has_its_kernel_and_its_own_tests_pass(repository: Path) -> None:
    patch, place = patched(repository, "shop.filters:smooth", SMOOTH, 1)
    assert git(repository, "status", "--short", "-uno").count("M") == 0
    git(repository, "apply", "--check", str(patch))
    git(repository, "apply", str(patch))
    assert "passed" in python(repository, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    counts = """import inspect, sys
import numpy as np
from shop import _ksflow_smooth, filters
x = np.random.default_rng(1).standard_normal((40, 30))
calls = [(x, {}), (x[1:39], {}), (x.T.copy().T, {}), (x.astype("f4"), {}), (x, {"times": 2.0}), (x, {}), (x[:3], {})]
for one, named in calls:
    totals = [np.ones_like(one), np.ones_like(one)]
    found = filters.smooth(one, totals[0], **named)
    known = filters._smooth_reference(one, totals[1], **{"times": 1.0, **named}, mode="same")
    assert found["largest"] == known["largest"] and (found["smooth"] == known["smooth"]).all()
    assert found["total"] is totals[0] and (totals[0] == totals[1]).all()
filters.smooth(x, x)
smooth = filters.smooth
print(dict(_ksflow_smooth.kernel_calls), inspect.signature(smooth), smooth.__doc__, "torch" in sys.modules)
"""
    said = python(repository, "-W", "error", "-c", counts)
    assert len([*(place / "ksflow" / "patches").iterdir()]) == 1
    assert "{'kernel': 2, 'shape, type or strides': 4, 'arguments': 1, 'changed memory': 1}" in said
    assert "(x, total, *, times=1.0, mode='same') The sum of both neighbours. False" in said
    (place / "g++").write_text("#!/bin/sh\nexit 1\n")
    (place / "g++").chmod(0o700)
    said = python(repository, "-c", counts, PATH=str(place), XDG_CACHE_HOME=str(place / "other"))
    assert "{'compiler': 2, 'shape, type or strides': 4, 'arguments': 1, 'changed memory': 1}" in said
    assert ksflow(place, "report", "format=pr", "out=pr.md").returncode == 0
    text = (place / "pr.md").read_text()
    assert re.search(r"^winner \d+: x2\.\d+ \\\[.* over your reference, cases weighted, on ", text, re.MULTILINE), text
    assert re.search(r"^\| 40x30 \| [\d.]+ \| [\d.]+, x2\.\d+ \|$", text, re.MULTILINE), text
    assert "change in place: `total`." in text
    assert re.search(r"^\| 40x30 \| [\d.]+ \| [\d.]+ \| x[\d.]+ \|$", text, re.MULTILINE), text
    assert re.search(r"^\| 3x30 \| [\d.]+ \| [\d.]+ \| x0[\d.]+, so the original code takes it \|$", text, re.MULTILINE)
    assert "Fixed: times=1.0, mode='same', x of float64, total of float64 in all 106 calls." in text
    assert "ksflow isolate shop.filters:smooth --run" in text
    for title in ("Shapes", "Fallbacks", "Accuracy", "Assumptions", "How to reproduce", "Licence"):
        assert f"### {title}\n" in text
    again = ksflow(place, "apply", "--patch")
    assert again.returncode == 2
    assert "has changed since shop.filters:smooth was isolated" in again.stderr


def test_a_function_of_tensors_is_compiled_and_exported_with_its_kernel(repository: Path) -> None:
    patch, _ = patched(repository, "shop.nets:gate", GATE, 0)
    git(repository, "apply", str(patch))
    assert "passed" in python(repository, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    counts = """import torch
from shop import _ksflow_gate, nets
x, bias, total = torch.randn(4, 16), torch.randn(16), torch.zeros(4, 16)
state = {"bias": bias, "total": total}
known = nets._gate_reference(x, state, 2.0)[0]
class Net(torch.nn.Module):
    def forward(self, x, bias, total):
        return nets.gate(x, {"bias": bias, "total": total})[0] + 1
torch.testing.assert_close(nets.gate(x, state)[0], known)
compiled = torch.compile(Net(), backend="aot_eager", fullgraph=True)
torch.testing.assert_close(compiled(x, bias, total), known + 1)
exported = torch.export.export(Net(), (x, bias, total))
assert "torch.ops.ksflow_" in exported.graph_module.print_readable(print_output=False)
torch.testing.assert_close(exported.module()(x, bias, total), known + 1)
torch.testing.assert_close(total, 4 * x)
nets.gate(x[:3], state | {"total": total[:3]}), nets.gate(x, state, k=3.0)
print(dict(_ksflow_gate.kernel_calls))
"""
    assert "{'kernel': 3, 'shape': 1, 'arguments': 1}" in python(repository, "-c", counts)


def test_what_cannot_be_timed_is_said(tmp_path: Path) -> None:
    (tmp_path / "reference.py").write_text("")
    rows, why = time_beside({"path": [], "root": str(tmp_path), "module": "nowhere.filters"})
    assert rows == []
    assert why.startswith("ModuleNotFoundError: No module named 'nowhere'")
