"""What a kernel changes in place: restored before every call, checked after it, and never what the next call finds."""

import re
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from test_handover import WORTHY, module, won

from evaluator import toy
from evaluator.test_admission import admit, failed
from ksflow.evaluation.judge.cases import InPlace, Reference
from ksflow.evaluation.judge.tolerance import expected, first_error
from ksflow.integrate.handover.package import write_best
from ksflow.integrate.handover.winner import hand_over
from ksflow.kernels.hardware.target import detect
from ksflow.kernels.problem.loader import load
from ksflow.kernels.source.contract import contract
from ksflow.records import Check, Evaluation, Kernel, Problem, Verdict
from ksflow.stages.evaluator.local import LocalEvaluator

CHECK = asdict(Check())
REFERENCE = object.__new__(Reference)
REFERENCE.in_place, REFERENCE.outputs = InPlace(["inout", "in"]), 1
Judged = Callable[[str, str], Evaluation]

ADD = """
title: add in place
args:
  - {name: y, dtype: float32, shape: "m, n", layout: "row-major, strides (2*n, 1)", role: inout}
  - {name: x, dtype: float32, shape: "m, n", layout: row-major, role: in}
  - {name: total, dtype: float32, shape: m, role: out}
dims: [m, n]
limits: {compile_s: 120, check_s: 60, time_s: 60, memory_mb: 1024}
cases:
  cpu: {tests: [{m: 1, n: 3, seed: 1}, {m: 40, n: 50, seed: 2}], benchmarks: [{m: 64, n: 64, seed: 3}]}
"""
ADDED = """
import torch
from ksflow.evaluation.judge import bounds

def generate_input(m, n, seed, device="cpu"):
    generator = torch.Generator(device=device).manual_seed(seed)
    wide, x = (torch.randn(m, n * width, generator=generator, device=device) for width in (2, 1))
    return wide[:, :n], x, torch.zeros(m, device=device)

def ref_kernel(data):
    y, x, total = data
    torch.sum(y, 1, out=total)
    return y.add_(x, alpha=0.5), total

def oracle(data):
    y, x, total = data
    sums = bounds.reduction(y, 1)
    y = y.double().add_(x.double(), alpha=0.5)
    return {"expected": y, "magnitude": data[0].double().abs() + x.double().abs(), "terms": 1}, sums
"""
APPEND = """
title: append a row to a cache
args:
  - {name: row, dtype: float32, shape: "heads, d", role: in}
  - {name: keys, dtype: float32, shape: "heads, length, d", role: inout}
dims: [heads, length, d, at]
limits: {compile_s: 120, check_s: 60, time_s: 60, memory_mb: 1024}
cases:
  cpu:
    tests: [{heads: 2, length: 5, d: 3, at: 4, seed: 1}, {heads: 3, length: 16, d: 8, at: 0, seed: 2}]
    benchmarks: [{heads: 4, length: 64, d: 16, at: 9, seed: 3}]
"""
APPENDED = """
import torch
from ksflow.evaluation.judge import bounds

def generate_input(heads, length, d, at, seed, device="cpu"):
    generator = torch.Generator(device=device).manual_seed(seed)
    shapes = ((heads, d), (heads, length, d))
    return tuple(torch.randn(shape, generator=generator, device=device) for shape in shapes)

def ref_kernel(data):
    row, keys = data
    keys[:, torch.arange(keys.shape[1]) == AT] = row[:, None]

def oracle(data):
    ref_kernel(data)
    return bounds.exact(data[1].double())
"""
APPENDED = APPENDED.replace("AT]", "{5: 4, 16: 0, 64: 9}[keys.shape[1]]]")
SIGNATURES = {
    "add": "float *y, const float *x, float *total, int64_t m, int64_t n, const int64_t *strides",
    "append": "const float *row, float *keys, int64_t heads, int64_t length, int64_t d, int64_t at, const int64_t *",
}


def write(folder: Path, name: str) -> Problem:
    """One of the two problems."""
    yaml, code = {"add": (ADD, ADDED), "append": (APPEND, APPENDED)}[name]
    (folder / "problem.yaml").write_text(yaml)
    (folder / "reference.py").write_text(code)
    (folder / "statement.md").write_text(f"{name} in place")
    return load(str(folder))


@pytest.fixture
def judged(evaluator: LocalEvaluator, tmp_path: Path) -> Judged:
    """Problem and body of a kernel in Python, or in C++ where it ends in a brace or semicolon -> what is checked."""

    def judge(name: str, body: str) -> Evaluation:
        problem = write(tmp_path, name)
        kernel = toy.python(body)
        if body.rstrip().endswith((";", "}")):
            head = f'#include <cstdint>\nextern "C" void custom_kernel({SIGNATURES[name]})'
            kernel = Kernel("cpp", {"kernel.cpp": f"{head} {{\n{body}\n}}\n"})
        tests = (*problem.tests, *(replace(case, name=f"{case.name} again") for case in problem.tests))
        return evaluator.measure(replace(problem, tests=tests, benchmarks=()), kernel)

    return judge


SUM = "total[i] = 0; for (int64_t j = 0; j < n; j++) total[i] += y[i * strides[0] + j];"
LOOP = "for (int64_t i = 0; i < m; i++) { BEFORE for (int64_t j = 0; j < n; j++) { CHANGE } AFTER }"
CHANGE = "y[i * strides[0] + j] += 0.5f * x[i * n + j];"


def loop(change: str = CHANGE, before: str = SUM, after: str = "") -> str:
    return LOOP.replace("BEFORE", before).replace("CHANGE", change).replace("AFTER", after)


STORE = "for (int64_t h = 0; h < heads; h++) for (int64_t k = 0; k < d; k++) keys[(h * length + at) * d + k] = "


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("add", loop()),
        ("add", "y, x, total = data\ntorch.sum(y, 1, out=total)\ny.add_(x, alpha=0.5)\nreturn total"),
        ("add", "y, x, total = data\nsums = y.sum(1)\nreturn y.add_(x, alpha=0.5), sums"),
        ("append", f"{STORE} row[h * d + k];"),
        ("append", "row, keys = data\nkeys[:, {5: 4, 16: 0, 64: 9}[keys.shape[1]]] = row"),
    ],
)
def test_kernels_that_change_arguments_in_place_are_right(judged: Judged, name: str, body: str) -> None:
    found = judged(name, body)
    assert found.verdict is Verdict.UNTIMED, found.reason


@pytest.mark.parametrize(
    ("name", "body", "words"),
    [
        ("add", loop(change=""), r"40 of 40|off"),
        ("append", ";", r"\d+ of 30 elements are off, .*; 30 of 30 were left as they were before the call"),
        ("append", "pass", "30 of 30 were left as they were before the call"),
        ("add", loop(change=CHANGE * 2), "elements are off"),
        ("add", loop(before="", after=SUM), "elements are off"),
        ("add", loop(before=f"{SUM} const_cast<float *>(x)[i] = 1;"), "wrote into its inputs"),
        ("add", loop(before=f"{SUM} if (i + 1 < m) y[i * strides[0] + n] = 1;"), "wrote between elements of output 0"),
        ("append", f"static float kept[24]; {STORE} kept[h * d + k]; kept[0] = row[0];", "elements are off"),
        (
            "append",
            "row, keys = data\nglobal old\nold = globals().get('old', {})\n"
            "keys.copy_(old.setdefault(keys.shape, keys.clone()))\n"
            "keys[:, {5: 4, 16: 0, 64: 9}[keys.shape[1]]] = row",
            "elements are off",
        ),
        ("append", "return data[1].clone()", "custom_kernel returned 1 values, expected 0"),
    ],
)
def test_kernels_that_do_it_wrong_fall(judged: Judged, name: str, body: str, words: str) -> None:
    found = judged(name, body)
    assert found.verdict is Verdict.INCORRECT, (found.verdict, found.reason)
    assert re.search(words, found.reason), found.reason


@pytest.mark.parametrize("name", ["add", "append"])
def test_problems_that_change_arguments_in_place_are_admitted(tmp_path: Path, name: str) -> None:
    write(tmp_path, name)
    rows = admit(str(tmp_path))
    assert not failed(rows)
    assert rows["rejects an argument left as it was"][1] == "on 3 of 3 cases"
    killed, kinds = map(int, re.findall(r"\d+", rows["mutation score"][1])[:2])
    assert not re.search("changed twice|left as it was", rows["mutation score"][1])
    assert killed >= kinds - 3, rows["mutation score"]


@pytest.mark.parametrize(
    ("old", "new", "row", "words"),
    [
        ("alpha=0.5", "alpha=0", "rejects an argument left as it was", "a kernel that leaves it alone would win"),
        ("return y.add_(x, alpha=0.5), total", "y.add_(x, alpha=0.5)", "", "returns 0 tensors beside what it changes"),
        (
            "torch.sum(y, 1, out=total)",
            "torch.sum(y, 1, out=total); x.zero_()",
            "inputs",
            "ref_kernel changes its input x",
        ),
        (
            "return wide[:, :n], x, torch",
            "return x, torch",
            "arguments",
            "generate_input returns 2 tensors, args declares 3",
        ),
    ],
)
def test_unsound_ones_are_refused(tmp_path: Path, old: str, new: str, row: str, words: str) -> None:
    write(tmp_path, "add")
    assert old in ADDED
    (tmp_path / "reference.py").write_text(ADDED.replace(old, new))
    if not row:
        with pytest.raises(ValueError, match=words):
            admit(str(tmp_path))
        return
    rows = admit(str(tmp_path))
    assert words in failed(rows).get(row, ""), failed(rows)


@pytest.mark.slow
def test_a_winner_that_is_taken_away_changes_what_it_is_given(evaluator: LocalEvaluator, tmp_path: Path) -> None:
    problem = write(tmp_path, "append")
    text = f'#include <cstdint>\nextern "C" void custom_kernel({SIGNATURES["append"]}) {{ {STORE} row[h * d + k]; }}\n'
    found = hand_over(tmp_path / "out", problem, detect(), won(text, language="cpp"), evaluator)
    assert found.said == (f"module.py: {WORTHY}",)
    row, keys = torch.ones(4, 16), torch.zeros(4 * 64 * 16 + 1)[1:].view(4, 64, 16)
    module(found.files[0]).custom_kernel((row, keys))
    assert keys.sum() == row.sum() == keys[:, 9].sum()


def test_models_are_told_what_is_changed_in_place(tmp_path: Path) -> None:
    problem = write(tmp_path, "append")
    said = contract(problem, "cpp")
    assert "const float *row, float *keys, int64_t heads" in said
    assert "Changed in place: keys. Before every call they are restored" in said
    assert "data = (row, keys), tensors, and returns nothing." in contract(problem, "python")
    assert "it returns total." in contract(write(tmp_path, "add"), "python")


def test_half_of_a_sample_is_what_a_kernel_has_to_change() -> None:
    before = torch.zeros(1 << 20)
    after = before.clone()
    after[777_777] = 1
    want = expected({"expected": after.double(), "magnitude": after, "terms": 1}, after, CHECK, 4096, before)
    assert first_error(want, before)["index"] == [777_777]
    assert not first_error(want, after)


@pytest.mark.parametrize("kind", [torch.float32, torch.complex64, torch.bool, torch.float8_e4m3fn])
def test_what_is_restored_is_every_element_and_nothing_else(kind: torch.dtype) -> None:
    layout = REFERENCE.layout(REFERENCE.in_place.apart((torch.zeros(3, 8, dtype=kind)[:, :5], torch.zeros(2))))
    packed = torch.randint(0, 2, (layout.input_bytes,), dtype=torch.uint8)
    outputs = torch.full((layout.output_bytes,), 0x77, dtype=torch.uint8)
    layout.restore(packed, outputs)
    source, target = (layout.pieces[place] for place in layout.inout[0])
    assert torch.equal(target.view(outputs).view(torch.uint8), source.view(packed).view(torch.uint8))
    assert int((outputs != 0x77).sum()) == 15 * kind.itemsize
    assert [piece.out for piece in layout.arguments] == [True, False]
    assert [piece.out for piece in layout.before()] == [False, False]


def test_the_winner_for_any_sizes_changes_what_it_is_given(tmp_path: Path) -> None:
    problem = write(tmp_path, "add")
    head = f'#include <cstdint>\nextern "C" void custom_kernel({SIGNATURES["add"]})'
    best = write_best(tmp_path / "best", problem, detect(), won(f"{head} {{ {loop()} }}\n", language="cpp"), "")
    y, x, total = torch.ones(8, 3).T[:2], torch.ones(2, 8), torch.zeros(2)  # not as it was judged: it is copied
    returned = module(best).custom_kernel((y, x, total))
    assert returned is total
    assert torch.equal(y, torch.full((2, 8), 1.5))
    assert torch.equal(total, torch.full((2,), 8.0))
