"""Problems in the form of kernelbench.com's decks: a small deck of our own, imported, answered and judged."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from importers.test_kernelbench import answer

from ksflow.errors import ConfigError
from ksflow.formats.kernelbench import deck, importer
from ksflow.formats.kernelbench import runtime as judged
from ksflow.formats.runtime import ImportedReference, SourceFiles
from ksflow.kernels.hardware import cost_model, roofline
from ksflow.kernels.hardware.target import from_data_sheet
from ksflow.kernels.problem.kernel_file import kernel_file
from ksflow.records import Kernel, Timing, Verdict
from ksflow.stages.evaluator.local import LocalEvaluator

SCALED = '''"""A product with weights of eight bits."""
import torch
import torch.nn as nn

GROUP = 4


class Model(nn.Module):
    """x @ (weight * scale)."""

    def __init__(self, rows, wide, out):
        super().__init__()
        torch.manual_seed(rows + wide)
        weight = torch.randn(wide, out)
        self.register_buffer("weight", (weight * 32).to(torch.int8))
        self.register_buffer("scale", weight.abs().amax(0) / 32)

    def forward(self, x):
        return (x.float() @ (self.weight.float() * self.scale)).to(torch.bfloat16)


ROWS = 1
wide = 1
out = 1


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(ROWS, wide, dtype=torch.bfloat16)]


def get_init_inputs():
    return [ROWS, wide, out]
'''
PICK = """import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, batch, n, k):
        super().__init__()
        self.k = k
        self.register_buffer("_dummy", torch.zeros(1))

    def forward(self, x):
        return torch.topk(x, self.k)


batch, n, k = 1, 1, 1


def get_inputs():
    return [torch.randn(batch, n)]


def get_init_inputs():
    return [batch, n, k]
"""
SHAPES = """WIDE = 48
SHAPES = [
    {"rows": 2, "wide": WIDE, "out": 24},
    {"rows": 5, "wide": WIDE, "out": 8},
]
"""
PICKED = 'SHAPES = [{"batch": 3, "n": 40, "k": 5}, {"batch": 2, "n": 33, "k": 1}]\n'
META = """name: 01_scaled
display_name: "Scaled GEMM"
regime: memory
flops_formula: "2 * rows * wide * out"
bytes_formula: "rows*wide*2 + wide*out + out*4 + rows*out*2"
hardware: [H100]
peak_tflops_key: bf16
tolerance:
  torch.bfloat16: "2e-1"
forbidden: ["torch.matmul", "F.linear"]
num_perf_trials: 30
"""
FOLDER = {"reference.py": SCALED, "shapes.py": SHAPES, "problem.yaml": META}
PICKS = {"reference.py": PICK, "shapes.py": PICKED, "problem.yaml": "forbidden: [torch.topk]\n"}
ANSWER = SCALED.replace(
    "(x.float() @ (self.weight.float() * self.scale))", "((x.float() @ self.weight.float()) * self.scale)"
)


def folder(place: Path, **files: str) -> Path:
    """A problem of a deck, the one with weights or with other files."""
    place.mkdir(parents=True, exist_ok=True)
    for name, text in {**FOLDER, **{name.replace("__", "."): text for name, text in files.items()}}.items():
        (place / name).write_text(text)
    return place


def picks(place: Path) -> Path:
    """The problem whose answer is values and their places."""
    return folder(place, **{name.replace(".", "__"): text for name, text in PICKS.items()})


def foreign(place: Path) -> ImportedReference:
    """What the judge has of a folder."""
    parsed, _ = deck.parse(place)
    return ImportedReference(judged.create(SourceFiles(parsed.files), dict(parsed.spec)))


def test_a_folder_is_read_whole_and_the_board_s_rules_are_recorded(tmp_path: Path) -> None:
    parsed, work = deck.parse(folder(tmp_path / "01_scaled"))
    assert parsed.name == "kernelbench-01_scaled"
    assert [params for params, _ in parsed.benchmarks] == [
        {"rows": 2, "wide": 48, "out": 24},
        {"rows": 5, "wide": 48, "out": 8},
    ]
    assert parsed.spec["constants"] == {"rows": "ROWS", "wide": "wide", "out": "out"}
    assert parsed.fixed == [4]
    assert parsed.spec["theirs"]["bfloat16"] == (0.2, 0.2)
    assert parsed.spec["theirs"]["float32"] == (1e-4, 1e-4)
    assert parsed.origin["the board forbids"] == "torch.matmul, F.linear"
    assert "text has one of: torch.matmul, F.linear" in parsed.statement
    assert parsed.statement.startswith("A product with weights of eight bits.")
    assert parsed.languages == ("python", "triton")  # its weights reach no bare pointer
    assert deck.parse(picks(tmp_path / "02_pick"))[0].languages == ("python", "triton", "cpp", "cuda", "hip")
    assert work == {
        "flops": "2 * rows * wide * out",
        "bytes": "rows*wide*2 + wide*out + out*4 + rows*out*2",
        "dtype": "bf16",
        "regime": "memory",
    }


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"shapes__py": ""}, "it needs SHAPES"),
        ({"shapes__py": "SHAPES = []\n"}, "SHAPES is empty"),
        ({"shapes__py": "SHAPES = make()\n"}, "it needs SHAPES, a list of mappings"),
        ({"shapes__py": "SHAPES = [{'rows': [1]}]\n"}, "it needs SHAPES, a list of mappings"),
        ({"shapes__py": "SHAPES = [{'depth': 3}]\n"}, "sets depth, and reference.py has no constant"),
        ({"reference__py": "class Model:\n    pass\n"}, "defines no get_inputs and no get_init_inputs"),
        ({"problem__yaml": "world_size: 4\n"}, "world_size 4: the judge has one GPU"),
        ({"problem__yaml": "tolerance: {bfloat16: much}\n"}, r"problem.yaml: tolerance\.bfloat16.*number"),
        ({"problem__yaml": "regime: latency\n"}, "problem.yaml: regime: Input should be 'compute' or 'memory'"),
        ({"problem__yaml": "a: [\n"}, "is not YAML"),
    ],
)
def test_what_cannot_be_taken_is_named(tmp_path: Path, files: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        importer.load(path=str(folder(tmp_path / "x", **files)))


def test_a_folder_without_one_of_the_files_or_with_another_precision_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a deck says its own"):
        importer.load(path=str(folder(tmp_path / "x")), precision="bf16")
    (tmp_path / "x" / "shapes.py").unlink()
    with pytest.raises(ConfigError, match=r"it has no shapes\.py"):
        importer.load(path=str(tmp_path / "x"))


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("2 * rows", "2 * tokens", "flops_formula: 'tokens' is not known"),
        ("wide*out + out", "open(out)", "bytes_formula: .*is not allowed"),
        ("bf16\n", "int4_bf16\n", "'int4_bf16' names no rate"),
    ],
)
def test_a_formula_that_cannot_be_computed_is_left_out_and_said(
    tmp_path: Path, old: str, new: str, reason: str
) -> None:
    parsed, work = deck.parse(folder(tmp_path / "x", problem__yaml=META.replace(old, new)))
    assert work == {}
    assert any(re.search(reason, line) for line in parsed.origin["dropped"])


def test_each_case_has_its_sizes_and_every_seed_its_inputs(tmp_path: Path) -> None:
    side = foreign(folder(tmp_path / "x"))
    x, out = side.generate_input(3, rows=5, wide=48, out=8)
    assert (x.shape, out.shape, out.dtype) == ((5, 48), (5, 8), torch.bfloat16)
    again, other = (side.generate_input(seed, rows=5, wide=48, out=8)[0] for seed in (3, 4))
    assert torch.equal(x, again)
    assert not torch.equal(x, other)  # though its get_inputs seeds itself
    assert side.generate_input(3, rows=2, wide=48, out=24)[1].shape == (2, 24)


@pytest.mark.parametrize("name", ["Model", "ModelNew"])
def test_a_published_answer_gets_the_reference_s_weights(tmp_path: Path, name: str) -> None:
    side = foreign(folder(tmp_path / "x"))
    data = side.generate_input(3, rows=2, wide=48, out=24)
    (row,) = side.oracle(data)
    other = ANSWER.replace("torch.manual_seed(rows + wide)", "torch.manual_seed(1)").replace(
        "class Model(", f"class {name}("
    )
    (got,) = answer(other, data)
    room = row["magnitude"] * 8 + row["relative"] * row["expected"].abs()
    assert ((got.double() - row["expected"]).abs() <= room).all()
    assert not (row["expected"].abs() <= room).all()
    with pytest.raises(RuntimeError, match="Missing key"):
        answer(other.replace('"scale"', '"scales"'), data)
    with pytest.raises(AttributeError, match="defines no ModelNew and no Model"):
        answer(other.replace(f"class {name}(", "class Mine("), data)


def test_the_board_s_own_rule_is_evidence(tmp_path: Path) -> None:
    """Its tolerance is wider here, and ours follows the answer's size."""
    side = foreign(folder(tmp_path / "x"))
    data = side.generate_input(3, rows=2, wide=48, out=24)
    (row,) = side.oracle(data)
    near = (row["expected"] * 1.1).to(torch.bfloat16)
    assert judged.upstream(side)(data, near) == ""
    assert not ((near.double() - row["expected"]).abs() <= row["magnitude"] * 8 + 0.01 * row["expected"].abs()).all()
    assert "elements off" in judged.upstream(side)(data, -near)


def moved(places: torch.Tensor) -> torch.Tensor:
    """The places of the first two values exchanged, in every row."""
    return places[:, [1, 0, *range(2, places.shape[1])]]


@pytest.mark.parametrize(
    ("change", "objection"),
    [
        (lambda places: places, ""),
        (moved, ""),  # the first two values are equal here
        (lambda places: (places + 1) % 40, "select another value"),
        (lambda places: places[:, [0, 0, 2, 3, 4]], "3 a place for the second time"),
        (lambda places: places - 41, "select another value"),
    ],
)
def test_places_count_by_what_they_select(
    tmp_path: Path, change: Callable[[torch.Tensor], torch.Tensor], objection: str
) -> None:
    side = foreign(picks(tmp_path / "x"))
    data = side.generate_input(3, batch=3, n=40, k=5)
    data[0][:, 7] = data[0][:, 20] = 9.0
    values, places = side.ref_kernel(data)
    assert len(side.oracle(data)) == 1  # of the values; the places are the property's
    found = side.property_check(data, (values, change(places)))
    assert objection in found
    assert bool(found) == bool(objection)
    if objection != "select another value":
        assert judged.upstream(side)(data, (values, change(places))) == ""


def test_its_formulas_set_no_floor_and_both_shares_are_recorded(tmp_path: Path) -> None:
    parsed, work = deck.parse(folder(tmp_path / "x"))
    target = from_data_sheet("toy", "NVIDIA toy", "sm_90a", {"flops.bf16": 1e9, "bytes": 1e9})
    cases = tuple(importer.Case(f"c{rows}", {"rows": rows, "wide": 48, "out": 8}, 1) for rows in (5, 2))
    problem = parsed.problem(root="", benchmarks=cases, work=work)
    assert cost_model.floor_us(problem, cases[0], target) == (0.0, "no floor: the work is its format's estimate")
    (near,) = roofline.rows(problem, target, [Timing("c5", 10.0, (), None)])
    assert near.share == pytest.approx(2 * 5 * 48 * 8 / 1e3 / 10)  # arithmetic takes longer
    assert near.theirs == pytest.approx((5 * 48 * 2 + 48 * 8 + 32 + 80) / 1e3 / 10, rel=1e-3)  # the board counts bytes


def test_a_published_source_with_files_under_banners_is_a_kernel_of_several_files(tmp_path: Path) -> None:
    line = "=" * 66
    banner = f"\n\n# {line}\n# ===== sidecar: fast.cu (9 bytes, loaded by solution.py) =====\n# {line}\n\n"
    file = tmp_path / "2026_x_solution.py.txt"
    file.write_text(f"import torch\n\nclass Model: ...{banner}// body\n")
    kernel = kernel_file(str(file), ("python",))
    assert kernel.files == {"2026_x_solution.py": "import torch\n\nclass Model: ...\n", "fast.cu": "// body\n"}
    lost = "# WARNING: solution loads sidecar 'fast.cu' but it was not found in the run archive."
    file.write_text(f"class Model: ...\n\n# {line}\n{lost}\n# {line}\n")
    with pytest.raises(ConfigError, match=r"the file fast\.cu, which it loads, was not published"):
        kernel_file(str(file), ("python",))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["01_scaled", "02_pick"])
def test_a_deck_is_judged(tmp_path: Path, name: str, evaluator: LocalEvaluator) -> None:
    place = folder(tmp_path / name) if name == "01_scaled" else picks(tmp_path / name)
    source = ANSWER if name == "01_scaled" else PICK
    (place / "solution.py").write_text(source)
    problem = importer.load(path=str(place))
    eager, published = problem.seeds
    assert (eager.baseline, published.name) == (True, "solution.py")
    assert all("cut" not in line for line in problem.origin["inferred"])
    problem = replace(problem, benchmarks=problem.benchmarks[: name == "01_scaled"])  # each takes as long again
    own = evaluator.measure(problem, Kernel("python", {"mine.py": f"# torch.topk, torch.matmul\n{source}"}))
    assert own.verdict is (Verdict.UNTIMED if name == "02_pick" else Verdict.ACCEPT), own.reason
    assert "which upstream forbids" in own.evidence.upstream
    assert len(own.evidence.roofline) == len(problem.benchmarks)
    wrong: dict[str, Any] = {
        "01_scaled": (".to(torch.bfloat16)", ".mul(1.05).to(torch.bfloat16)"),
        "02_pick": ("(x, self.k)", "(-x, self.k)"),
    }
    off = evaluator.measure(problem, Kernel("python", {"off.py": source.replace(*wrong[name])}))
    assert off.verdict is Verdict.INCORRECT
