"""Definitions in the formats of FlashInfer and SOL-ExecBench, of the project's own: workloads, solutions, the check."""

import importlib.util
import io
import json
import os
import re
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from ksflow.errors import ConfigError
from ksflow.evaluation.sandbox.runners.device_mapping import cuda_means, seeded
from ksflow.formats.cases import build_cases
from ksflow.formats.flashinfer.importer import _solution, load
from ksflow.formats.flashinfer.runtime import FlashInfer, _differs, _file, draw_named, read_tensor
from ksflow.formats.flashinfer.solutions import adapt_solution, axis_sizes
from ksflow.formats.flashinfer.solutions import solution as exported
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
    found = task().objection(tree(), change(tree()[0]), {})
    assert re.fullmatch(f"y: {said}.*" if said else "", found)


def test_a_share_may_be_wrong_where_the_format_says_so() -> None:
    spoilt = tree()[0]
    spoilt[0, :3] *= 1.04
    assert task(ratio=0.95).objection(tree(), spoilt, {}) == ""
    assert "3 of 64" in task().objection(tree(), spoilt, {})


def test_a_share_that_may_be_wrong_may_not_be_left_out() -> None:
    right = tree()[0]
    right[0, 0] = torch.inf
    for wrong in (0.0, torch.inf, torch.nan):
        spoilt = right.clone()
        spoilt[3, 13:] = wrong
        said = task(ratio=0.95, rtol=0.1, atol=0.1).objection([right, *tree()[1:]], spoilt, {})
        assert "3 of 64" in said or "NaN or infinity" in said
    assert _differs(torch.tensor([1, 2]), torch.tensor([1, 2]), {"ratio": 0.95}) == ""


def test_small_answers_have_small_bounds() -> None:
    assert "64 of 64" in task().objection(tree(1e-4), torch.zeros(4, 16), {})


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


GATHER: dict[str, Any] = {
    "name": "gather_half",
    "description": None,
    "custom_inputs_entrypoint": "make",
    "axes": {
        "M": {"type": "var"},
        "N": {"type": "const", "value": 16},
        "half": {"type": "expr", "expression": "N // 2"},
        "wide": {"type": "expr", "expression": "half * M / M"},
    },
    "inputs": {
        "x": {"shape": ["M", "N"], "dtype": "float64"},
        "index": {"shape": ["half"], "dtype": "int64"},
        "by": {"shape": None, "dtype": "float32"},
    },
    "outputs": {"y": {"shape": ["M", "wide"], "dtype": "float64"}},
    "reference": f"""
import os
import torch

assert os.getpid() != {os.getpid()}

def make(axes, device):
    index = torch.randperm(axes["half"], device=device)
    return {{"x": torch.randn(axes["M"], axes["N"], dtype=torch.float64, device=device), "index": index, "by": 2.0}}

def run(x, index, by):
    return x[:, index] * by
""",
}
CUSTOM = {name: {"type": "custom"} for name in GATHER["inputs"]}
EXTENSION = """
#include <Python.h>
#include "scaled.h"
static PyObject *run(PyObject *, PyObject *args) {
  PyObject *x, *index, *by, *y;
  if (!PyArg_ParseTuple(args, "OOOO", &x, &index, &by, &y)) return nullptr;
  PyObject *picked = PyObject_CallMethod(x, "index_select", "iO", 1, index);
  PyObject *scaled = picked ? PyObject_CallMethod(picked, SCALED, "O", by) : nullptr;
  return scaled ? PyObject_CallMethod(y, "copy_", "O", scaled) : nullptr;
}
static PyMethodDef methods[] = {{"run", run, METH_VARARGS, ""}, {nullptr, nullptr, 0, nullptr}};
#define STRING(name) #name
#define NAMED(name) STRING(name)
#define JOIN(a, b) a##b
#define INIT(name) JOIN(PyInit_, name)
static PyModuleDef module = {PyModuleDef_HEAD_INIT, NAMED(TORCH_EXTENSION_NAME), "", -1, methods};
PyMODINIT_FUNC INIT(TORCH_EXTENSION_NAME)() { return PyModule_Create(&module); }
"""


def sol_folder(folder: Path, work: dict[str, Any] | None = None, **change: Any) -> Path:
    """A problem laid out as SOL-ExecBench's are: definition.json, workload.jsonl, solutions beside them."""
    folder.mkdir(exist_ok=True)
    (folder / "definition.json").write_text(json.dumps({**GATHER, **change}))
    given = {"uuid": "w", "axes": {"M": 8}, "inputs": CUSTOM, **(work or {})}
    (folder / "workload.jsonl").write_text(json.dumps(given) + "\n")
    return folder


def sol_solution(languages: list[str], files: dict[str, str], **more: Any) -> dict[str, Any]:
    spec = {"languages": languages, "entry_point": f"{next(iter(files))}::run", **more}
    sources = [{"path": path, "content": body} for path, body in files.items()]
    return {"name": "-".join(languages), "definition": "gather_half", "spec": spec, "sources": sources}


@pytest.mark.parametrize(
    ("work", "change", "said"),
    [
        ({"axes": {}}, {}, "workload w: it has no size for the axis M"),
        ({"inputs": {**CUSTOM, "by": {"type": "generated"}}}, {}, "input by is generated; it can be random, scalar"),
        ({"inputs": {**CUSTOM, "by": {"type": "random"}}}, {}, "workload w: by are numbers; name workloads"),
        ({"tolerance": [1]}, {}, "tolerance maps names to numbers"),
        ({}, {"custom_inputs_entrypoint": None}, "w has custom inputs, and custom_inputs_entrypoint names"),
        ({}, {"custom_inputs_entrypoint": "made"}, "defines no made; its reference has to"),
        ({}, {"outputs": {"y": {"shape": ["M"], "dtype": "float4_e2m1fn_x2"}}}, "float4_e2m1fn_x2 cannot be judged"),
        ({}, {"axes": {**GATHER["axes"], "half": {"type": "expr"}}}, "axis half is neither var, nor const"),
        *(
            ({}, {"axes": {**GATHER["axes"], "half": {"type": "expr", "expression": text}}}, said)
            for text, said in (
                ("N / 3", "axis half: N / 3 is 5.33333, which is no size"),
                ("N - 17", "N - 17 is -1, which is no size"),
                ("Q + 1", "'Q' is not known; known are M, N"),
                ("9 ** 9 ** 9", "has an exponent that is not within"),
                ("N // (M - M)", "cannot be computed"),
                ("open('x')", "is not allowed"),
            )
        ),
    ],
)
def test_what_of_a_sol_problem_cannot_be_taken_is_named(
    tmp_path: Path, work: dict[str, Any], change: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)) as caught:
        load(str(sol_folder(tmp_path, work, **change)))
    assert "\n" not in str(caught.value)


def test_axes_are_computed_from_those_before_them() -> None:
    axes = {**GATHER["axes"], "padded": {"type": "expr", "expression": "-(-wide * M // 3) ** 1"}}
    assert axis_sizes(axes, {"M": 5}) == {"M": 5, "N": 16, "half": 8, "wide": 8, "padded": 14}


@pytest.mark.parametrize(
    ("solution", "said"),
    [
        (sol_solution(["mojo"], {"a.py": ""}), "in mojo, which cannot be run here"),
        (sol_solution(["cuda_cpp"], {"a.cu": ""}, binding="tvm-ffi"), "in cuda_cpp, with bindings of its own"),
        (sol_solution(["cutlass"], {"a.cu": ""}, compile_options={"cflags": "-O3"}), "compile_options are not lists"),
        (sol_solution(["cuda_cpp"], {"src/a.cu": ""}), "not a kernel's file name: 'src/a.cu'"),
    ],
)
def test_a_solution_that_cannot_be_run_is_named(solution: dict[str, Any], said: str) -> None:
    assert said in str(_solution(GATHER, solution, sol=True))


def test_an_exported_solution_has_the_words_of_its_format() -> None:
    kernel = Kernel("python", {"run.py": "x"}, "")
    ours, sol = (exported("gather_half", "one", kernel, "run", chip)["spec"] for chip in ("H200", ""))
    assert (ours["language"], ours["target_hardware"]) == ("python", ["H200"])
    assert (sol["languages"], sol["target_hardware"]) == (["pytorch"], ["LOCAL"])


def test_solutions_for_gpus_are_seeds_on_a_gpu_and_named_elsewhere(tmp_path: Path) -> None:
    cute = sol_solution(["cute_dsl"], {"a.py": "import cutlass.cute as cute\n"})
    tile = sol_solution(["cutile"], {"a.py": "import cuda.tile as ct\n"})
    triton = sol_solution(["triton"], {"a.py": "import torch as th, triton\n"}, destination_passing_style=False)
    cuda = sol_solution(
        ["cuda_cpp", "cutlass"], {"b.cu": "", "a.h": "", "a.cpp": ""}, compile_options={"cflags": ["-g"]}
    )
    seeds = [_solution(GATHER, one, sol=True) for one in (cute, tile, triton, cuda)]
    kernels = [seed.kernel for seed in seeds if not isinstance(seed, str)]
    assert [kernel.language for kernel in kernels] == ["python", "python", "triton", "python"]
    assert "y = torch.zeros((x.shape[0], int(index.shape[0] * x.shape[0] / x.shape[0]), )" in kernels[0].main
    for line in ("for name in ['a.cpp', 'b.cu']]", "extra_cflags=['-g']", "['-O3', '--use_fast_math']", "['-lcuda']"):
        assert line in kernels[3].main


@pytest.mark.parametrize(
    ("own", "change", "said"),
    [
        ({"rtol": 0.02, "atol": 0.02}, lambda y: y * 1.019 + 0.019, ""),
        ({}, lambda y: y * 1.019 + 0.019, "64 of 64 elements are off"),
        ({"rtol": 1e-3}, lambda y: y * 1.012 + 0.005, "64 of 64"),
        ({"most": 0.02}, lambda y: y + 0.015, ""),
        ({"most": 0.01}, lambda y: y + 0.015, "with one by more than 0.01"),
    ],
)
def test_a_workload_has_a_tolerance_of_its_own_and_the_bounds_are_added(own: Any, change: Any, said: str) -> None:
    found = task(sol=True, own={"one": own}).objection(tree(), change(tree()[0]), {"workload": "one"})
    assert bool(found) == bool(said)
    assert said in found


def test_contents_are_in_the_range_that_a_name_tells() -> None:
    def drawn(name: str) -> torch.Tensor:
        return draw_named(name, [4, 32, 32], torch.bfloat16)

    with cuda_means("cpu"):
        seeded(0)
        assert 0 < float((drawn("input_layernorm_weight") - 1).abs().max()) < 1
        assert float(drawn("rstd").min()) > 0
        assert float(drawn("A_log").max()) <= -1
        assert {*drawn("drop_mask").unique().tolist()} == {0, 1}
        assert torch.allclose(drawn("attn_weights").float().sum(-1), torch.ones(4, 32), atol=0.02)
        mask = drawn("attention_mask")
        assert bool((mask.triu(1) < -1e38).sum() == 4 * 31 * 16)
        assert mask.isfinite().all()
        assert not mask.tril().any()
        assert float(drawn("o_proj_weight").std()) < 0.3 < float(drawn("x").std())


def test_packed_numbers_are_bytes_for_the_judge_and_their_own_type_for_the_functions() -> None:
    body = "import torch\n\ndef run(w):\n    assert 'float4' in str(w.dtype)\n    return w.view(torch.uint8) % 9\n"
    packed = {**DEFINITION, "inputs": {"w": {"shape": ["M", "N"], "dtype": "float4_e2m1"}}, "reference": body}
    spec = {"definition": packed, "inputs": {}, "root": "", "rtol": 0.01, "atol": 0.01, "ratio": 1.0}
    one = FlashInfer(SourceFiles({"definition_reference.py": body}), spec)
    with cuda_means("cpu"):
        (drawn,) = one.inputs({"M": 4}, 0)
        assert (drawn.dtype, [*drawn.shape]) == (torch.uint8, [4, 8])
        assert torch.equal(one.answer([drawn], {}), drawn % 9)
    made: dict[str, Any] = {}
    exec(adapt_solution(packed, body.replace("run", "_run"), destination=False), made)
    assert torch.equal(made["run"](drawn), drawn % 9)


def test_a_tensors_file_is_found_around_the_problem_and_by_the_end_of_its_path(tmp_path: Path) -> None:
    tensor_file(tmp_path / "data" / "s.safetensors", [1.0])
    for root in (tmp_path / "data" / "benchmark" / "L1", tmp_path / "data"):
        assert _file(root, "data/s.safetensors") == tmp_path / "data" / "s.safetensors"
    assert _file(tmp_path, "none/s.safetensors") == tmp_path / "none" / "s.safetensors"


@pytest.mark.slow
def test_a_sol_problem_is_judged_with_made_inputs_and_a_compiled_solution(
    tmp_path: Path, evaluator: LocalEvaluator
) -> None:
    folder = sol_folder(tmp_path / "gather", {"tolerance": {"max_atol": 1e-5, "max_rtol": 1e-5, "odd": 1}})
    files = {"main.cpp": EXTENSION, "scaled.h": '#define SCALED "mul_"\n'}
    (folder / "solution.json").write_text(json.dumps(sol_solution(["cuda_cpp"], files)))
    (folder / "solution_tile.json").write_text(json.dumps(sol_solution(["cutile"], {"a.py": "import cuda.tile\n"})))
    wrong = sol_solution(["pytorch"], {"kernel.py": "def run(x, index, by):\n    return x[:, :8] * by\n"})
    given = tmp_path / "wrong.json"
    wrong["spec"]["destination_passing_style"] = False
    given.write_text(json.dumps(wrong))
    problem = load(root=str(tmp_path), definition="gather", solutions=str(given), target=detect())
    assert problem.title == "gather_half (SOL-ExecBench)"
    assert any("cutile needs a GPU" in line for line in problem.origin["dropped"])
    assert any("tolerance: odd" in line for line in problem.origin["dropped"])
    _, compiled, off = problem.seeds
    assert evaluator(problem, compiled.kernel, ()).accepted
    assert evaluator(problem, off.kernel, ()).verdict is Verdict.INCORRECT
