"""KernelBench's format: problems of our own, imported, answered and judged."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from ksflow.errors import ConfigError
from ksflow.evaluation.sandbox.runners.cpu import WrongResult
from ksflow.evaluation.sandbox.runners.foreign import bound
from ksflow.evaluation.sandbox.runners.pytree import Flat
from ksflow.formats import sizes
from ksflow.formats.kernelbench import importer
from ksflow.formats.kernelbench import runtime as judged
from ksflow.formats.runtime import ImportedReference, SourceFiles
from ksflow.kernels.hardware.target import detect, from_data_sheet
from ksflow.records import Kernel, Problem, Verdict
from ksflow.stages.evaluator.local import LocalEvaluator

_HEAD = "import torch\nimport torch.nn as nn\n\n\n"
SCALE = f'''{_HEAD}class Model(nn.Module):
    """Scales what is positive."""

    def __init__(self, by):
        super().__init__()
        self.by = by

    def forward(self, values):
        return torch.relu(values) * self.by


rows = 32 * 2  # a size
cols = rows * 2
steps = (4, 96)


def get_inputs():
    return [torch.rand(rows, cols)]


def get_init_inputs():
    return [0.5]
'''
LINEAR = f"""{_HEAD}class Model(nn.Module):
    def __init__(self, wide, out):
        super().__init__()
        self.first = nn.Linear(wide, out)
        self.scale = nn.Parameter(torch.randn(out))

    def forward(self, x):
        return self.first(x) * self.scale


wide = 48


def get_inputs():
    return [torch.rand(16, wide)]


def get_init_inputs():
    return [wide, 24]
"""
CONV = f"""{_HEAD}class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, 4, (3, 5), padding=1, bias=True)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x):
        return self.norm(self.conv(x))


def get_inputs():
    return [torch.rand(2, 3, 16, 16)]


def get_init_inputs():
    return [3]
"""
LOSS = f"""{_HEAD}class Model(nn.Module):
    def forward(self, predictions, targets):
        return nn.functional.cross_entropy(predictions, targets)


rows = 4096


def get_inputs():
    return [torch.rand(rows, 8), torch.randint(0, 8, (rows,))]


def get_init_inputs():
    return []
"""
TINY = f"""{_HEAD}class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)


def get_inputs():
    return [torch.rand(2, 100_000)]


def get_init_inputs():
    return []
"""
NORM = f"""{_HEAD}class Model(nn.Module):
    def __init__(self, wide):
        super().__init__()
        self.norm = nn.LayerNorm(wide)
        self.gamma = nn.Parameter(1e-6 * torch.ones(wide))
        self.dropout = nn.Dropout(0.5).eval()
        self.batch = nn.BatchNorm1d(wide).eval()

    def forward(self, x):
        return x + self.gamma * self.dropout(self.batch(self.norm(x)))


def get_inputs():
    return [torch.rand(32, 48)]


def get_init_inputs():
    return [48]
"""
NEW = "\n\nModelNew = Model\n"


def foreign(text: str, precision: str = "fp32") -> ImportedReference:
    """What the judge has of a file."""
    return ImportedReference(judged.create(SourceFiles({"model.py": text}), _spec(text, precision)))


def _spec(text: str, precision: str) -> dict[str, Any]:
    """What the importer tells the judge."""
    tolerance, found = importer.TOLERANCES[precision], sizes.edits(text)
    return {"file": "model.py", "precision": precision, "tolerance": tolerance, "training": True, "sizes": found}


def answer(source: str, data: Flat) -> list[torch.Tensor]:
    """What a candidate leaves in the outputs."""
    module = ModuleType("kernel")
    exec(source, module.__dict__)
    tensors = [tensor.clone() for tensor in data]
    with torch.no_grad():
        bound(module, dict(data.binding), "cpu")(tensors)()
    return [tensors[place] for place in data.binding["outputs"]]


def room(row: Mapping[str, Any]) -> torch.Tensor:
    """How far an output may be off, as the judge counts it for `accumulate: bfloat16`."""
    return 8 * torch.finfo(torch.bfloat16).eps * row["magnitude"]


@pytest.mark.slow
def test_a_checkout_may_be_moved_and_what_holds_for_a_problem_still_holds(tmp_path: Path) -> None:
    here, there = tmp_path / "here" / "level1" / "7_Scale.py", tmp_path / "elsewhere" / "level1" / "7_Scale.py"
    for file in (here, there):
        file.parent.mkdir(parents=True)
        file.write_text(SCALE)
    first, second = (importer.load(path=str(file), cap=16) for file in (here, there))
    assert first.digest == second.digest
    assert str(tmp_path) not in first.reference
    there.write_text(SCALE.replace("* 2", "* 3"))
    assert importer.load(path=str(there), cap=16).digest != first.digest


@pytest.mark.slow
@pytest.mark.parametrize("precision", [*importer.PRECISIONS])
def test_prompt_and_judge_name_the_same_tolerance(tmp_path: Path, precision: str) -> None:
    """`TINY`: every row of a softmax over 100,000 columns is about 1e-5, whatever goes in."""
    (tmp_path / "mine.py").write_text(TINY)
    said = importer.load(path=str(tmp_path / "mine.py"), precision=precision, cap=None).statement
    figures = [float(word) for word in re.findall(r"(?:within|plus|or|than) (\d[\d.e-]*\d)", said)]
    usual, least = importer.TOLERANCES[precision]
    assert figures == [usual, usual, usual, 8 * usual, least]
    for text, narrowed in ((TINY, True), (SCALE, False)):
        judge = foreign(text, precision=precision)
        (row,) = judge.oracle(judge.generate_input(1, cap=0))
        assert least <= row["relative"] <= usual
        assert narrowed or row["relative"] == usual


def test_numbers_are_capped_and_what_follows_from_them_follows() -> None:
    small = sizes.resize_source(SCALE, sizes.edits(SCALE), 16)[0]
    assert "rows = 8  # a size" in small
    assert "cols = rows * 2" in small
    assert "steps = (4, 16)" in small
    assert sizes.resize_source(SCALE, sizes.edits(SCALE), 0)[0] == SCALE
    umlaut = "# \u00e4\u00f6\u00fc\nn = 999  # \u00df\n"
    assert sizes.resize_source(umlaut, sizes.edits(umlaut), 8)[0] == "# \u00e4\u00f6\u00fc\nn = 7  # \u00df\n"


def test_sizes_in_a_row_and_with_a_type_are_sizes() -> None:
    text = "n: int = 64\nh, w = 32, 2 * 32\nk: int\na, b = pair\n"
    assert sizes.resize_source(text, sizes.edits(text), 16)[0] == "n: int = 16\nh, w = 8, 16\nk: int\na, b = pair\n"


@pytest.mark.slow
def test_a_cap_above_every_size_cuts_nothing(tmp_path: Path) -> None:
    file = tmp_path / "one.py"
    file.write_text(SCALE)
    found = importer.load(str(file), cap=4096)
    assert [case.name for case in found.benchmarks] == ["original"]
    assert found.origin["cap"] is None
    assert not any("cut" in line for line in found.origin["inferred"])


@pytest.mark.parametrize("text", [SCALE, LINEAR, CONV, LOSS, TINY, NORM])
def test_the_model_itself_is_right_and_zeros_are_not(text: str) -> None:
    side = foreign(text)
    data = side.generate_input(7, cap=0)
    (row,) = side.oracle(data)
    (out,) = answer(text + NEW, data)
    within = room(row)
    assert ((out.double() - row["expected"]).abs() <= within).all()
    assert (row["expected"].abs() > within).any()
    assert judged.upstream(side)(data, out) == ""
    off = row["expected"] + 1
    assert "elements off" in judged.upstream(side)(data, off.to(out.dtype))


NORMED = "nn.functional.layer_norm(x, (48,), self.norm.weight, self.norm.bias)"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("self.norm(x)", NORMED.replace("self.norm.weight, self.norm.bias", "")),
        ("self.norm(x)", NORMED.replace("self.norm.weight", "None")),
        ("self.norm(x)", NORMED.replace("self.norm.bias", "None")),
        ("self.gamma * ", "0 * "),
        ("self.gamma * ", "1e-6 * "),
        ("self.batch(self.norm(x))", "self.norm(x)"),
    ],
)
def test_a_kernel_that_ignores_parameters_that_are_the_same_everywhere_is_wrong(old: str, new: str) -> None:
    side = foreign(NORM)
    data = side.generate_input(5, cap=0)
    (row,) = side.oracle(data)
    (right,) = answer(NORM.replace("self.norm(x)", NORMED) + NEW, data)
    assert ((right.double() - row["expected"]).abs() <= room(row)).all()
    (wrong,) = answer(NORM.replace(old, new) + NEW, data)
    assert not ((wrong.double() - row["expected"]).abs() <= room(row)).all()


def test_a_part_that_its_author_put_into_eval_stays_there() -> None:
    side = foreign(NORM)
    data = side.generate_input(5, cap=0)
    first, again = (side.ref_kernel(data) for _ in range(2))
    assert torch.equal(first, again)
    (out,) = answer(NORM + NEW, data)
    torch.testing.assert_close(out, first)


def test_parameters_in_another_order_are_another_model() -> None:
    swapped = LINEAR.replace("        self.first = nn.Linear(wide, out)\n", "").replace(
        "        self.scale = nn.Parameter(torch.randn(out))\n",
        "        self.scale = nn.Parameter(torch.randn(out))\n        self.first = nn.Linear(wide, out)\n",
    )
    side = foreign(LINEAR)
    data = side.generate_input(3, cap=0)
    (out,) = answer(swapped + NEW, data)
    assert judged.upstream(side)(data, out) != ""


def test_what_is_returned_by_name_is_found_by_name() -> None:
    result = "torch.relu(values) * self.by"
    text = SCALE.replace(f"return {result}", f"return {{'out': {result}, 'least': values.amin()}}")
    data = foreign(text).generate_input(3, cap=0)
    right = foreign(text).ref_kernel(data)
    turned = text.replace("Model(", "ModelNew(").replace(
        f"{{'out': {result}, 'least': values.amin()}}", f"{{'least': values.amin(), 'out': {result}}}"
    )
    assert all(map(torch.equal, answer(turned, data), right))
    with pytest.raises(WrongResult, match="a dict with 'least', 'all', expected 'out', 'least'"):
        answer(turned.replace("'out'", "'all'"), data)


def test_only_floats_are_cast() -> None:
    predictions, targets, loss = foreign(LOSS, precision="bf16").generate_input(1, cap=0)
    assert (predictions.dtype, targets.dtype, loss.dtype) == (torch.bfloat16, torch.int64, torch.bfloat16)


def test_upstream_lets_zeros_pass_for_tiny_outputs_and_the_judge_does_not() -> None:
    side = foreign(TINY)
    data = side.generate_input(1, cap=0)
    zeros = torch.zeros_like(data[-1])
    assert judged.upstream(side)(data, zeros) == ""
    (row,) = side.oracle(data)
    assert (row["expected"] > room(row)).all()


def test_an_answer_that_hardly_varies_is_bounded_by_how_it_varies() -> None:
    side = foreign(LOSS.replace("torch.rand(rows, 8)", "torch.rand(rows, 8) * 0.01"))
    first, second = (side.oracle(side.generate_input(seed, cap=0))[0] for seed in (1, 2))
    assert abs(first["expected"] - second["expected"]) > room(first)
    assert abs(first["expected"] - second["expected"]) < 2e-4 * first["expected"]


def test_an_answer_that_is_zero_for_some_inputs_is_bounded_too() -> None:
    text = TINY.replace("torch.softmax(x, dim=1)", "torch.relu(0.5 - x[0])").replace(
        "torch.rand(2, 100_000)", "torch.randn(1, 1)"
    )
    side = foreign(text)
    zero, other = (side.oracle(side.generate_input(seed, cap=0))[0]["expected"] for seed in (1, 2))
    assert zero == 0
    assert other > 0


def level(folder: Path, **files: str) -> Path:
    """A checkout with a level 1."""
    place = folder / "KernelBench" / "level1"
    place.mkdir(parents=True)
    for name, text in files.items():
        (place / f"{name.removeprefix('_')}.py").write_text(text)
    return folder


@pytest.mark.slow
def test_a_problem_by_its_number(tmp_path: Path) -> None:
    root = level(tmp_path, _7_Scale=SCALE, _12_Linear=LINEAR)
    found = importer.load(root=str(root), level=1, id=7, cap=16)
    assert found.name == "kernelbench-1-7_Scale"
    assert [(arg.name, arg.dtype, arg.role) for arg in found.args] == [
        ("values", "float32", "in"),
        ("out0", "float32", "out"),
    ]
    assert "rows = 8  # a size" in found.listing
    assert found.benchmarks[0].name == "sizes up to 16"
    assert found.dims == ()
    assert "cpp" in found.languages
    assert found.origin["number"] == 7
    (eager,) = found.seeds
    assert eager.baseline
    assert "get_inputs" not in eager.kernel.main
    assert eager.kernel.main.endswith("ModelNew = Model\n")


@pytest.mark.slow
def test_the_model_through_torchs_compiler_is_a_second_baseline_if_wanted(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(SCALE)
    without, both = (importer.load(path=str(tmp_path / "mine.py"), cap=16, compile=told) for told in (None, True))
    assert any("problem.compile=true" in line for line in without.origin["dropped"])
    assert not any("problem.compile=true" in line for line in both.origin["dropped"])
    assert [seed.name for seed in both.seeds if seed.baseline] == ["00_eager.py", "01_compile.py"]
    assert both.seeds[:1] == without.seeds
    assert "get_inputs" not in both.seeds[1].kernel.main
    assert both.digest == without.digest


@pytest.mark.slow
def test_a_problem_for_a_gpu_that_is_elsewhere_keeps_its_sizes(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(SCALE)
    away = from_data_sheet("h200", "NVIDIA H200", "sm_90a", {})
    found = importer.load(path=str(tmp_path / "mine.py"), target=away)
    assert found.benchmarks[0].name == "original"
    assert [(arg.dtype, arg.role) for arg in found.args] == [("float32", "in"), ("float32", "out")]
    assert found.languages == ("python", "triton", "cuda")
    assert found.seeds[1].name == "01_compile.py"


@pytest.mark.slow
def test_a_file_of_ones_own_with_parameters_and_a_precision(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(LINEAR)
    found = importer.load(path=str(tmp_path / "mine.py"), precision="bf16")
    assert found.name == "kernelbench-mine-bf16"
    assert found.languages == ("python",)
    assert {arg.dtype for arg in found.args} == {"bfloat16"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"id": 8}, "no problem 8 in level 1 of .*; it has 7 to 12"),
        ({"id": 7, "precision": "fp8"}, "problem.precision=fp8; .*bf16, fp16, fp32"),
        ({"id": 9}, "9_Half.py defines no get_inputs and no get_init_inputs"),
        ({"id": 10}, "10_Not.py:1 is not Python"),
        ({}, "needs problem.path=FILE"),
        ({"id": 1, "level": 3}, "no level3 with numbered files"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, given: dict[str, Any], message: str) -> None:
    root = level(tmp_path, _7_Scale=SCALE, _9_Half="class Model:\n    pass\n", _10_Not="def (:\n", _12_Linear=LINEAR)
    with pytest.raises(ConfigError, match=message):
        importer.load(root=str(root), **{"level": 1, **given})


@pytest.mark.slow
def test_a_model_with_dropout_in_training_is_told_what_helps(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(NORM.replace("nn.Dropout(0.5).eval()", "nn.Dropout(0.5)").replace("1e-6", "1.0"))
    with pytest.raises(ConfigError, match=r"ref_kernel draws at random: .*; problem\.training=false"):
        importer.load(path=str(tmp_path / "mine.py"))
    assert importer.load(path=str(tmp_path / "mine.py"), training=False).benchmarks


@pytest.mark.slow
@pytest.mark.parametrize("text", [CONV, LOSS])
def test_the_judge_finds_the_problem_sound(tmp_path: Path, text: str, evaluator: LocalEvaluator) -> None:
    (tmp_path / "mine.py").write_text(text)
    rows = {name: (ok, detail) for name, ok, detail in evaluator.admit(importer.load(path=str(tmp_path / "mine.py")))}
    assert all(ok for ok, _ in rows.values()), rows
    assert "rejects zeros" in rows


@pytest.mark.slow
def test_the_judge_refuses_a_norm_without_its_weight(tmp_path: Path, evaluator: LocalEvaluator) -> None:
    (tmp_path / "mine.py").write_text(NORM)
    problem = replace(importer.load(path=str(tmp_path / "mine.py")), benchmarks=())
    (eager,) = problem.seeds
    assert evaluator.measure(problem, eager.kernel).verdict is Verdict.UNTIMED
    lazy = eager.kernel.main.replace("self.norm(x)", "nn.functional.layer_norm(x, (48,))")
    assert evaluator.measure(problem, Kernel("python", {"lazy.py": lazy})).verdict is Verdict.INCORRECT


@pytest.mark.slow
@pytest.mark.soak
def test_the_model_through_torchs_compiler_is_judged_in_a_box(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(LINEAR)
    problem = importer.load(path=str(tmp_path / "mine.py"), compile=True)
    _, compiled = problem.seeds
    evaluator = LocalEvaluator(detect())
    try:
        found = evaluator.measure(replace(problem, benchmarks=()), compiled.kernel)  # each box compiles for ten seconds
    finally:
        evaluator.close()
    assert found.verdict is Verdict.UNTIMED, found


@pytest.mark.slow
def test_reading_runs_nothing(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(f"raise SystemExit('ran')\n{SCALE}")
    with pytest.raises(ConfigError, match=": ran"):
        importer.load(path=str(tmp_path / "mine.py"))


@pytest.mark.slow
def test_the_name_of_a_problem_is_a_branch(tmp_path: Path) -> None:
    root = level(tmp_path, **{"_3_odd name (x)__": SCALE})
    found: Problem = importer.load(root=str(root), level=1, id=3, cap=16)
    assert found.name == "kernelbench-1-3_odd-name-x"
