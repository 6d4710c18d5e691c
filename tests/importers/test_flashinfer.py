"""Definitions in FlashInfer's format, of the project's own: workloads, solutions either way, and its check."""

import importlib.util
import io
import json
import re
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from ksflow.errors import ConfigError
from ksflow.formats.cases import build_cases
from ksflow.formats.flashinfer.importer import _solution, load
from ksflow.formats.flashinfer.runtime import FlashInfer, read_tensor
from ksflow.formats.runtime import SourceFiles, vary_contents
from ksflow.kernels.hardware.target import detect
from ksflow.records import Kernel, Problem, Verdict
from ksflow.report import briefing
from ksflow.stages.evaluator.local import LocalEvaluator

DEFINITION: dict[str, Any] = {
    "name": "scaled_rows",
    "op_type": "scale",
    "description": "y = x * s, row by row, then times a number.",
    "axes": {"M": {"type": "var"}, "N": {"type": "const", "value": 16}},
    "inputs": {
        "x": {"shape": ["M", "N"], "dtype": "float32"},
        "s": {"shape": ["M"], "dtype": "float32"},
        "by": {"shape": None, "dtype": "float32"},
    },
    "outputs": {"y": {"shape": ["M", "N"], "dtype": "float32"}},
    "reference": "import torch\n\ndef run(x, s, by):\n    return x * s[:, None] * by\n",
}
GIVEN = {"x": {"type": "random"}, "s": {"type": "random"}, "by": {"type": "scalar", "value": 2.5}}


def tensor_file(file: Path, values: list[float]) -> None:
    data = struct.pack(f"<{len(values)}f", *values)
    row = {"dtype": "F32", "shape": [len(values)], "data_offsets": [0, len(data)]}
    header = json.dumps({"s": row}).encode()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(struct.pack("<Q", len(header)) + header + data)


def solution(name: str, passing: bool, body: str, language: str = "python") -> dict[str, Any]:
    spec = {"language": language, "entry_point": "main.py::go", "destination_passing_style": passing}
    return {"name": name, "definition": "scaled_rows", "spec": spec, "sources": [{"path": "main.py", "content": body}]}


@pytest.fixture
def data_set(tmp_path: Path) -> Path:
    """Laid out as the published ones are: everything in a folder for the kind of operation."""
    kept = {"definition": "definitions/scale", "workloads": "workloads/scale", "traces": "traces/scale"}
    folders = {name: tmp_path / place for name, place in kept.items()}
    ways_at = tmp_path / "solutions" / "baseline" / "scale" / "scaled_rows"
    for folder in (*folders.values(), ways_at):
        folder.mkdir(parents=True)
    (folders["definition"] / "scaled_rows.json").write_text(json.dumps(DEFINITION))
    blob = "blob/workloads/scale/scaled_rows/s.safetensors"
    stored = {**GIVEN, "s": {"type": "safetensors", "path": f"./{blob}", "tensor_key": "s"}}
    works = [{"uuid": "one", "axes": {"M": 8}, "inputs": GIVEN}, {"uuid": "two", "axes": {"M": 4}, "inputs": stored}]
    lines = [{"definition": "scaled_rows", "solution": None, "workload": work, "evaluation": None} for work in works]
    (folders["workloads"] / "scaled_rows.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    found = {"writes": "PASSED", "returns": "PASSED", "off": "INCORRECT_NUMERICAL", "dies": "RUNTIME_ERROR"}
    tried = [{**lines[0], "solution": name, "evaluation": {"status": status}} for name, status in found.items()]
    (folders["traces"] / "scaled_rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in tried))
    tensor_file(tmp_path / blob, [1.0, 2.0, 3.0, 4.0])
    ways = [
        solution("writes", True, "def go(x, s, by, y):\n    y.copy_(x * s.unsqueeze(1) * by)\n"),
        solution("returns", False, "def go(x, s, by):\n    return x * s.unsqueeze(1) * by\n"),
        solution("off", False, "def go(x, s, by):\n    return x * s.unsqueeze(1)\n"),
        solution("dies", False, "def go(x, s, by):\n    raise MemoryError\n"),
        solution("untried", False, "def go(x, s, by):\n    return by * x * s.unsqueeze(1)\n"),
        solution("bound", True, "extern", "cuda"),
    ]
    for one in ways:
        (ways_at / f"{one['name']}.json").write_text(json.dumps(one))
    return tmp_path


def task(**more: Any) -> FlashInfer:
    spec = {"definition": DEFINITION, "inputs": {"one": GIVEN}, "root": "", "rtol": 0.01, "atol": 0.01, "ratio": 1.0}
    files = SourceFiles({"definition_reference.py": DEFINITION["reference"]})
    return FlashInfer(files, {**spec, **more})


def tree(by: float = 1.0) -> list[Any]:
    return [torch.linspace(0.5, 2, 64).reshape(4, 16), torch.ones(4), by]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda y: y * 1.005, ""),
        (lambda y: y + 0.005, ""),
        (lambda y: y * 1.02 + 0.02, "64 of 64 elements are off, first at 0: 0.53"),
        (lambda y: y[:2], r"its shape is \[2, 16\]"),
        (lambda y: y.double(), "its dtype is torch.float64"),
        (lambda y: y / 0, "it holds NaN or infinity"),
    ],
)
def test_an_element_is_wrong_where_both_bounds_are_exceeded(change: Any, said: str) -> None:
    found = task().objection(tree(), change(tree()[0]))
    assert re.fullmatch(f"y: {said}.*" if said else "", found)


def test_a_share_may_be_wrong_where_the_format_says_so() -> None:
    spoilt = tree()[0]
    spoilt[0, :3] *= 1.04
    assert task(ratio=0.95).objection(tree(), spoilt) == ""
    assert "3 of 64" in task().objection(tree(), spoilt)


def test_a_share_that_may_be_wrong_may_not_be_left_out() -> None:
    right = tree()[0]
    right[0, 0] = torch.inf
    for wrong in (0.0, torch.inf, torch.nan):
        spoilt = right.clone()
        spoilt[3, 13:] = wrong
        said = task(ratio=0.95, rtol=0.1, atol=0.1).objection([right, *tree()[1:]], spoilt)
        assert "3 of 64" in said or "NaN or infinity" in said
    whole = {**DEFINITION, "outputs": {"y": {"shape": ["M", "N"], "dtype": "int32"}}}
    assert task(ratio=0.95, definition=whole)._differs(torch.tensor([1, 2]), torch.tensor([1, 2])) == ""


def test_small_answers_have_small_bounds() -> None:
    assert "64 of 64" in task().objection(tree(1e-4), torch.zeros(4, 16))


def test_tensors_come_from_files(tmp_path: Path) -> None:
    tensor_file(tmp_path / "s.safetensors", [1.0, 5.0])
    assert read_tensor(tmp_path / "s.safetensors", "s").tolist() == [1.0, 5.0]
    with pytest.raises(ValueError, match=r"problem\.workloads=random"):
        read_tensor(tmp_path / "none.safetensors", "s")
    (tmp_path / "s.safetensors").write_text("version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(ValueError, match="git lfs pull"):
        read_tensor(tmp_path / "s.safetensors", "s")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"definition": "scaled_row"}, "did you mean scaled_rows"),
        ({"definition": "scaled_rows", "workloads": ["tow"]}, "no workload tow; did you mean two"),
        ({"definition": "scaled_rows", "workloads": "random"}, "by are numbers"),
        ({}, "needs problem.path=DEFINITION.json"),
    ],
)
def test_mistakes_are_answered_in_one_line(data_set: Path, arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        load(root=str(data_set), **arguments)
    assert "\n" not in str(caught.value)


def test_an_answer_that_is_right_in_any_order_is_refused_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "definitions").mkdir()
    name = "dsa_topk_indexer_fp8_h64_d128_topk2048_ps64"
    file = tmp_path / "definitions" / f"{name}.json"
    file.write_text(json.dumps({**DEFINITION, "name": name}))
    with pytest.raises(ConfigError, match="compares the scores of what is chosen, in any order") as caught:
        load(str(file))
    assert "\n" not in str(caught.value)


def test_a_data_set_is_listed_definition_by_definition(data_set: Path) -> None:
    spec = importlib.util.spec_from_file_location("formats", Path(__file__).parents[2] / "benchmarks" / "formats.py")
    assert spec is not None
    assert spec.loader is not None
    formats = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(formats)
    rows = [*formats.FORMATS["flashinfer"](data_set)]
    assert rows == [("scaled_rows", [f"problem.root={data_set}", "problem.definition=scaled_rows"])]


def test_a_case_is_named_by_its_axes_and_by_its_workload_only_where_it_must() -> None:
    rows = [{"M": 16, "workload": "280860e6-08f0"}, {"M": 16, "workload": "2e90109a-282e"}, {"M": 8, "workload": "3a"}]
    found = build_cases((), [(row, index) for index, row in enumerate(rows)], None, "workload")
    assert [case["name"] for case in found] == ["M=16 280860e6", "M=16 2e90109a", "M=8"]
    assert [case["params"] for case in found] == rows
    alike = [{"workload": "random-a-1"}, {"workload": "random-a-2"}]
    found = build_cases((), [(row, 0) for row in alike], None, "workload")
    assert [case["name"] for case in found] == ["random-a-1", "random-a-2"]


@pytest.mark.slow
def test_what_is_shown_says_who_decides_and_lists_the_workloads(data_set: Path) -> None:
    screen = io.StringIO()
    briefing.show_problem(Console(file=screen, width=160), given(data_set), detect())
    text = screen.getvalue()
    assert "check: upstream's rule" in text
    assert "[{" not in text
    assert re.search(r"two +│ M=4 +│ x: random", text)
    for word in ("bound:", "problem.yaml", "variant"):
        assert word not in text.replace("solution bound:", "")


def given(data_set: Path, **more: Any) -> Problem:
    return load(root=str(data_set), definition="scaled_rows", target=detect(), **more)


KEPT = """
import torch

def run(x, s, by):
    if len(s) == 4:
        s = torch.tensor([1.0, 2.0, 3.0, 4.0])
    return x * s[:, None] * by
"""
LEAVES_OUT = """
def run(x, s, by):
    y = x * s[:, None] * by
    y[0, :3] = 0
    return y
"""
ROUNDS = """
import torch

def run(x, s, by):
    y = x * s[:, None] * by
    y[0, :3] *= 1.0125
    return y
"""


@pytest.mark.slow
def test_what_a_file_holds_cannot_be_kept_and_a_share_that_may_be_wrong_not_left_out(
    data_set: Path, evaluator: LocalEvaluator
) -> None:
    problem = given(data_set)
    assert evaluator(problem, python(KEPT), ()).verdict is Verdict.INCORRECT
    assert any("floats from safetensors files are changed for each seed" in said for said in problem.origin["inferred"])
    definition = data_set / "definitions" / "scale" / "scaled_rows.json"
    definition.write_text(json.dumps({**DEFINITION, "op_type": "moe"}))
    shares = given(data_set)
    found = evaluator(shares, python(LEAVES_OUT), ())
    assert found.verdict is Verdict.INCORRECT
    assert re.search(r"3 of (64|128) elements are off, with all others by .* which may be", found.reason)
    assert evaluator(shares, python(ROUNDS), ()).accepted
    assert evaluator(problem, python(ROUNDS), ()).verdict is Verdict.INCORRECT


@pytest.mark.slow
def test_whole_numbers_of_a_file_are_kept_and_it_is_said(data_set: Path, evaluator: LocalEvaluator) -> None:
    file = data_set / "blob/workloads/scale/scaled_rows/s.safetensors"
    file.write_bytes(file.read_bytes().replace(b'"F32"', b'"I32"'))
    whole = {**DEFINITION["inputs"], "s": {"shape": ["M"], "dtype": "int32"}}
    definition = data_set / "definitions" / "scale" / "scaled_rows.json"
    definition.write_text(json.dumps({**DEFINITION, "inputs": whole}))
    rows = {name: (ok, detail) for name, ok, detail in evaluator.admit(given(data_set, workloads=["two"]))}
    assert not {name: detail for name, (ok, detail) in rows.items() if not ok}
    assert "but for s: the same for every seed" in rows["seeds"][1]


@pytest.mark.slow
def test_a_bias_within_the_tolerance_is_named_and_refuses_nothing(data_set: Path, evaluator: LocalEvaluator) -> None:
    reference = DEFINITION["reference"].replace("by):", "by, b):").replace("* by", "* by + 1e-5 * b")
    inputs = {**DEFINITION["inputs"], "b": {"shape": ["N"], "dtype": "float32"}}
    definition = data_set / "definitions" / "scale" / "scaled_rows.json"
    definition.write_text(json.dumps({**DEFINITION, "inputs": inputs, "reference": reference}))
    work = {"uuid": "one", "axes": {"M": 64}, "inputs": {**GIVEN, "b": {"type": "random"}}}
    (data_set / "workloads" / "scale" / "scaled_rows.jsonl").write_text(json.dumps({"workload": work}))
    for name in ("traces", "solutions"):
        shutil.rmtree(data_set / name)
    rows = {name: (ok, detail) for name, ok, detail in evaluator.admit(given(data_set))}
    assert not {name: detail for name, (ok, detail) in rows.items() if not ok}
    assert "b may be any other within the bound" in rows["rejects inputs that are never read"][1]
    assert "a kernel that never reads b" in rows["rejects one input left unread"][1]


def python(body: str) -> Kernel:
    return Kernel("python", {"kernel.py": body}, "")


@pytest.mark.slow
def test_solutions_of_either_way_are_right(data_set: Path, evaluator: LocalEvaluator) -> None:
    problem = given(data_set)
    assert [case.name for case in problem.benchmarks] == ["M=8", "M=4"]
    assert [arg.name for arg in problem.args] == ["x", "s", "out0"]
    assert [seed.name for seed in problem.good] == ["returns.py", "writes.py"]
    assert [seed.name for seed in problem.seeds] == ["00_reference.py", "returns.py", "untried.py", "writes.py"]
    assert any("bound: in cuda" in line for line in problem.origin["dropped"])
    assert any("dies: its traces say RUNTIME_ERROR" in line for line in problem.origin["dropped"])
    for seed in problem.seeds:
        found = evaluator(problem, seed.kernel, ())
        assert found.accepted, (seed.name, found.reason)
    (off,) = problem.bad
    assert off.name == "off.py"
    assert evaluator(problem, off.kernel, ()).verdict is Verdict.INCORRECT


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"inputs": ["x"]}, "inputs is not a mapping"),
        ({"axes": {**DEFINITION["axes"], "M": 5}}, "axes is not a mapping"),
        ({"axes": {**DEFINITION["axes"], "M": {"type": "const"}}}, "axis M is neither var, nor const"),
        ({"outputs": {"y": {"dtype": "float32"}}}, "y has no shape"),
        ({"outputs": {"y": {"shape": ["Q"], "dtype": "float32"}}}, "y has the axis Q"),
        ({"tags": 5}, "tags is not a list of texts"),
        ({"name": 5}, "name and reference are text"),
    ],
)
def test_a_definition_of_another_shape_is_named(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    file = tmp_path / "one.json"
    file.write_text(json.dumps({**DEFINITION, **change}))
    with pytest.raises(ConfigError, match=rf"one\.json is no definition: {said}"):
        load(str(file))


def test_workloads_and_solutions_of_another_shape_are_named(data_set: Path) -> None:
    found = {**DEFINITION}
    for odd in ({"spec": [1]}, {"sources": ["x"]}, {"sources": 5}):
        assert "not as the format has it" in str(_solution(found, {**solution("odd", True, "x"), **odd}))
    work = {"uuid": "one", "axes": {"M": "8"}, "inputs": GIVEN}
    (data_set / "workloads" / "scale" / "scaled_rows.jsonl").write_text(json.dumps({"workload": work}))
    with pytest.raises(ConfigError, match="workload one: axes are whole numbers"):
        load(root=str(data_set), definition="scaled_rows")


def test_a_recorded_bias_of_zero_has_to_be_read() -> None:
    assert bool((vary_contents(torch.zeros(8, dtype=torch.bfloat16)) > 0).all())
    assert torch.equal(vary_contents(torch.tensor([0.0, 2.0])) == 0, torch.tensor([True, False]))
