"""Kernels that are generated from a reference: which loops and tunables they have, and that they are right."""

import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ksflow.formats.kernel.importer import load
from ksflow.formats.loops import generate, least_reads
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
TORCH = {
    "F.layer_norm": ("normalized(x, w, b)", "ACC LANES", 1),
    "F.layer_norm without weights": ("normalized(x)", "ACC LANES", 1),
}
REFERENCE = """import importlib

import numpy as np

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


def normalized(*given):
    torch, plain = importlib.import_module("torch"), isinstance(given[0], np.ndarray)
    x, *given = map(torch.as_tensor, given) if plain else given
    normal = torch.nn.functional.layer_norm(x, x.shape[-1:], *given)
    return normal.numpy() if plain else normal


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


@pytest.mark.parametrize(("answer", "own", "shared"), [*FUNCTIONS.values(), *TORCH.values()], ids=[*FUNCTIONS, *TORCH])
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


@pytest.mark.parametrize(
    ("body", "reads"),
    [
        (lambda x, y, w: np.exp(x - x.max(-1, keepdims=True)) @ y.T + w[0], "mn kn 1"),
        (lambda x, y, w: x[1:-1] * w, "((m+-1)-1)n - n"),
        (lambda x, y, w: np.where(w > 0, x, y[:1]), "- - -"),  # a kernel reads the elements that are chosen
        (lambda x, y, w: x.sum(-1)[1:] + w[0], "- - 1"),
        (lambda x, y, w: np.sort(x), ""),
    ],
)
def test_the_parts_that_every_kernel_reads_are_those_that_the_loops_show(body: Any, reads: str) -> None:
    sizes = [(9, 70, 21), (24, 35, 10)]
    order = {"args": "xywo", "dims": ["m", "n", "k"], "plain": [True] * 4}
    order["cases"] = [dict(zip("mnk", each, strict=True)) for each in sizes]
    arrays = [[np.ones(shape, np.float32) for shape in ((m, n), (k, n), (n,))] for m, n, k in sizes]
    shapes = [[one.shape for one in (*each, body(*each))] for each in arrays]
    found = least_reads(body, order, shapes, 3)
    assert " ".join("".join(each[0]).replace(" ", "") if each else "-" for each in found) == reads


@pytest.mark.parametrize(
    ("names", "sizes"),
    [(["a", "b", "v", "acc"], ["i", "n", "k"]), (["t0", "t0_", "exp_", "larger"], ["i0", "r0", "i1"])],
)
def test_arguments_may_have_the_names_of_a_generated_kernel(tmp_path: Path, names: list[str], sizes: list[str]) -> None:
    answer = "((x @ y.T) / x.max(-1, keepdims=True)) @ np.exp(y * w + b)"
    reference = re.sub(r"\b[mnk](?=[,)])", lambda found: sizes["mnk".index(found[0])], REFERENCE)
    (tmp_path / "mine.py").write_text(reference.replace("ANSWER", answer))
    roles = [[name, "float32", "in"] for name in names] + [["out", "float32", "out"]]
    cases = [dict(zip([*sizes, "seed"], values, strict=True)) for values in ((9, 70, 21, 1), (24, 35, 10, 2))]
    order = {"reference": str(tmp_path / "mine.py"), "args": roles, "dims": sizes, "cases": cases}
    given = ", ".join([*(f"const float *{one}" for one in names), "float *out", *(f"int64_t {one}" for one in sizes)])
    signature = f'extern "C" void custom_kernel({given}, const int64_t *strides)'
    text, why = generate({**order, "signature": signature})
    assert why == ""
    (tmp_path / "k.cpp").write_text(text)
    command = ["g++", "-std=c++20", "-fsyntax-only", "-fopenmp", "-DNUM_THREADS=1", str(tmp_path / "k.cpp")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("functions", "changes"),
    [
        (FUNCTIONS, {}),
        (FUNCTIONS, {"ACC": "float", "METHOD": "library", "LANES": "8", "MR": "6", "NR": "16"}),
        (TORCH, {}),
    ],
)
def test_generated_kernels_compute_what_the_functions_do(
    tmp_path: Path, evaluator: LocalEvaluator, functions: dict[str, tuple[str, str, int]], changes: dict[str, str]
) -> None:
    answers = ",\n        ".join(answer for answer, *_ in functions.values())
    (tmp_path / "mine.py").write_text(REFERENCE.replace("ANSWER", f"(\n        {answers},\n    )"))
    problem = load(reference=str(tmp_path / "mine.py"), target=detect())
    (seed,) = [seed for seed in problem.seeds if seed.name == "01_loops.cpp"]
    kernel = Kernel("cpp", {"k.cpp": assign(seed.kernel.main, changes)})
    found = evaluator.measure(replace(problem, benchmarks=()), kernel)
    assert found.verdict is Verdict.UNTIMED, found.reason
