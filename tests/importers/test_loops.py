"""Kernels that are generated from a reference: which loops and tunables they have, and that they are right."""

from dataclasses import replace
from pathlib import Path

import pytest

from ksflow.formats.kernel.importer import load
from ksflow.formats.loops import generate
from ksflow.kernels.hardware.target import detect
from ksflow.kernels.source.tunables import assign, tunables
from ksflow.records import Kernel, Verdict
from ksflow.stages.evaluator.local import LocalEvaluator

FUNCTIONS = {
    "rms_norm": ("x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-6) * w", "ACC LANES", 1),
    "layer_norm": ("(x - x.mean(-1, keepdims=True)) / np.std(x, -1, keepdims=True) * w + b", "ACC LANES", 1),
    "softmax": ("np.exp(x - x.max(-1, keepdims=True)) / np.exp(x - x.max(-1, keepdims=True)).sum(-1, keepdims=True)",
                "ACC METHOD LANES", 1),
    "gelu": ("0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3)))", "METHOD", 1),
    "stencil": ("five_points(x)", "", 2),
    "pairwise": ("np.sqrt(((x[:, None, :] - y[None, :, :]) ** 2).sum(axis=-1))", "ACC MR NR", 1),
    "linear": ("x @ y.T + b[None, : y.shape[0]]", "ACC MR NR", 1),
    "quantize": ("np.clip(np.round(x / (np.abs(x).max(axis=-1, keepdims=True) / 127)), -127, 127)", "LANES", 1),
    "columns": ("(x - x.mean(axis=0)) / (x.std(axis=0) + 1)", "ACC COLS", 4),
    "attention": ("(lambda e: e / e.sum(-1, keepdims=True))(np.exp(x @ y.T * 0.1)) @ y", "ACC METHOD LANES MR NR", 3),
    "views": ("changed(x)", "", 5),
}  # fmt: skip
"""Function of x [m, n], y [k, n], w [n] and b [n] -> its own tunables, and how many loops threads share."""
REFERENCE = """import numpy as np

CASES = [
    {"m": 9, "n": 70, "k": 21, "seed": 1},
    {"m": 24, "n": 35, "k": 10, "seed": 2},
    {"m": 1, "n": 50, "k": 7, "seed": 3},
]


def five_points(x):
    out = x.copy()
    out[1:-1, 1:-1] = 0.2 * (x[1:-1, 1:-1] + x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:])
    return out


def changed(x):
    before, out = x + 1, x.copy()
    beside = out * 2
    out[0] = 5
    out[1:] += before[:-1]
    return out + beside


def generate_input(m, n, k, seed):
    rng = np.random.default_rng(seed)
    return tuple(rng.standard_normal(s, np.float32) for s in ((m, n), (k, n), (n,), (n,)))


def ref_kernel(data):
    x, y, w, b = data
    return ANSWER
"""
SIGNATURE = (
    'extern "C" void custom_kernel(const float *x, const float *y, const float *w, const float *b, float *out, '
    "int64_t m, int64_t n, int64_t k, const int64_t *strides)"
)


@pytest.mark.parametrize(("answer", "own", "shared"), FUNCTIONS.values(), ids=FUNCTIONS)
def test_a_generated_kernel_has_the_tunables_of_its_loops(tmp_path: Path, answer: str, own: str, shared: int) -> None:
    (tmp_path / "mine.py").write_text(REFERENCE.replace("ANSWER", answer))
    roles = [[name, "float32", "in"] for name in "xywb"] + [["out", "float32", "out"]]
    cases = [{"m": m, "n": n, "k": k, "seed": 1} for m, n, k in ((9, 70, 21), (24, 35, 10), (1, 50, 7))]
    order = {"reference": str(tmp_path / "mine.py"), "args": roles, "dims": ["m", "n", "k"], "cases": cases}
    text, why = generate({**order, "signature": SIGNATURE})
    assert why == ""
    assert [tunable.name for tunable in tunables(text)] == [*own.split(), "THREADS", "WIDTH"]
    assert text.count("omp parallel") == shared
    assert "std::pow" not in text
    assert "strides[" not in text


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, {"ACC": "float", "METHOD": "library", "LANES": "8", "MR": "6", "NR": "16"}])
def test_generated_kernels_compute_what_the_functions_do(
    tmp_path: Path, evaluator: LocalEvaluator, changes: dict[str, str]
) -> None:
    answers = ",\n        ".join(answer for answer, *_ in FUNCTIONS.values())
    (tmp_path / "mine.py").write_text(REFERENCE.replace("ANSWER", f"(\n        {answers},\n    )"))
    problem = load(reference=str(tmp_path / "mine.py"), target=detect())
    (seed,) = [seed for seed in problem.seeds if seed.name == "01_loops.cpp"]
    kernel = Kernel("cpp", {"k.cpp": assign(seed.kernel.main, changes)})
    found = evaluator.measure(replace(problem, benchmarks=()), kernel)
    assert found.verdict is Verdict.UNTIMED, found.reason
