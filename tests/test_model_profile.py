"""A model's regions: which modules take its time, and those as problems that need the model no longer."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch.utils import flop_counter

from ksflow.evaluation.judge import bounds, contents
from ksflow.evaluation.judge.tolerance import expected
from ksflow.evaluation.sandbox.runners.torch_kernel import load_module
from ksflow.integrate.model import profile, user_file
from ksflow.kernels.problem.loader import load
from ksflow.records import Problem

MODEL = """import torch


class Norm(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(size))
        self.register_buffer("shift", torch.arange(float(size)) / size)
        self.register_buffer("unused", torch.zeros(3))

    def forward(self, x, times=1.0, mask=None):
        x = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * self.weight * times + self.shift
        return x if mask is None else x.masked_fill(mask, 0.0), x.transpose(0, 1)


class Block(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.norm, self.mix, self.cell = Norm(size), torch.nn.Linear(size, size), torch.nn.GRUCell(size, size)

    def forward(self, x):
        y, _ = self.norm(x.transpose(0, 1), times=2.0, mask=torch.rand(x.shape[1], x.shape[0], 1) < 0.25)
        return x + self.mix(y.transpose(0, 1))


class Unlike(torch.nn.Module):
    def forward(self, x, how):
        return how["by"] * x


class Whole(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block(48) for _ in range(3))
        self.unlike = Unlike()

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.unlike(x.relu(), {"by": 2})


def model():
    torch.manual_seed(1)
    return Whole().eval()


def inputs():
    return [torch.randn(20, 31, 48), {"x": torch.randn(64, 17, 48)}]


def heldout():
    return torch.randn(1234, 5, 48)
"""


def ksflow(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ksflow", *words]
    env = {**os.environ, "COLUMNS": "200"}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=580, check=False, env=env)


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A model's folder with one region as a problem, and what was said of the model."""
    folder = tmp_path_factory.mktemp("model")
    (folder / "my_model.py").write_text(MODEL)
    done = ksflow(folder, "model", "profile", "my_model.py", "regions=Norm", "out=regions", "mode=none")
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


@pytest.fixture(scope="module")
def problem(profiled: tuple[Path, str]) -> Problem:
    return load(str(profiled[0] / "regions" / "norm"))


@pytest.fixture(scope="module")
def reference(problem: Problem) -> ModuleType:
    return load_module("region", Path(problem.root, "reference.py"))


@pytest.mark.slow
def test_modules_that_compute_alike_are_one_region_with_what_the_whole_gains(profiled: tuple[Path, str]) -> None:
    said = profiled[1]
    for shown in ("Block x3: blocks.0", "Norm x3: blocks.0.norm", "Linear x3: blocks.0.mix", "x [31, 20, 48] float32"):
        assert shown in said
    assert "strides [48, 1488, 1]" in said
    row = next(line for line in said.splitlines() if "Block x3" in line)
    share = float(re.findall(r"([\d.]+) %", row)[0])
    half, nothing = map(float, re.findall(r" x([\d.]+)", row)[-2:])
    assert 50 < share < 100
    assert half == pytest.approx(1 / (1 - share / 200), rel=0.01)
    assert nothing > half


@pytest.mark.slow
def test_a_region_says_where_its_kernel_belongs(profiled: tuple[Path, str], problem: Problem) -> None:
    region = json.loads((Path(problem.root) / "region.json").read_text())
    assert (Path(problem.root) / region.pop("model")).resolve() == profiled[0] / "my_model.py"
    assert 0 < region.pop("share") < 1
    told = region.pop("profile")
    assert told["title"] in profiled[1]
    assert len(told["rows"]) > 3
    assert all(row[1].split("\n")[0] in profiled[1] for row in told["rows"])
    assert region == {
        "class": "my_model.Norm",
        "modules": ["blocks.0.norm", "blocks.1.norm", "blocks.2.norm"],
        "inputs": [
            {"name": "x", "shape": [31, 20, 48], "dtype": "float32", "stride": [48, 1488, 1]},
            {"name": "mask", "shape": [31, 20, 1], "dtype": "bool", "stride": [20, 1, 1]},
        ],
        "constants": {"times": 2.0},
        "returns": {"tuple": [{"tensor": ".0"}, {"tensor": ".1"}]},
        "changed": [],
        "parameters": ["weight", "shift"],
        "outputs": [{"shape": [31, 20, 48], "dtype": "float32"}, {"shape": [20, 31, 48], "dtype": "float32"}],
        "compiled_share": None,
        "device": "cpu",
    }


@pytest.mark.slow
def test_the_problem_is_the_modules_own_forward_on_contents_like_its_own(
    profiled: tuple[Path, str], problem: Problem, reference: ModuleType
) -> None:
    assert [case.name for case in problem.benchmarks] == ["31x20x48", "17x64x48"]
    assert sum(case.weight for case in problem.benchmarks) == pytest.approx(1, abs=0.01)
    assert {case.weight for case in problem.tests} == {1}
    assert [case.name for case in problem.tests] == ["31x20x48", "17x64x48", "31x20x48 real=1", "17x64x48 real=1"]
    theirs = load_module("theirs", profiled[0] / "my_model.py")
    norm = theirs.Norm(48)
    for case in (*problem.tests, *problem.heldout):
        data = reference.generate_input(**case.params, seed=case.seed)
        x, mask, weight, shift, *outputs = data
        again, other = (reference.generate_input(**case.params, seed=case.seed + one) for one in (0, 1))
        assert all(torch.equal(one, same) for one, same in zip(data, again, strict=True))
        assert not torch.equal(x, other[0])
        assert x.stride() == (48, 48 * x.shape[0], 1)
        assert 0.15 < mask.float().mean() < 0.35
        assert 0.5 < x.std() < 6
        norm.weight.data, norm.shift = weight, shift
        with torch.no_grad():
            theirs_made = norm(x, times=2.0, mask=mask)
            for one, out, right in zip(reference.ref_kernel(data), outputs, theirs_made, strict=True):
                torch.testing.assert_close(one, right)
                assert out.stride() == right.stride()
    drawn, real = (reference.generate_input(**case.params, seed=1)[2] for case in problem.tests[::2])
    assert torch.equal(real, torch.ones(48))
    assert 0.05 < drawn.std() < 0.2  # a weight that is the same everywhere need never be read


@pytest.mark.slow
def test_held_out_shapes_are_in_nothing_that_a_model_reads(problem: Problem) -> None:
    assert [case.name for case in problem.heldout] == ["5x1234x48"]
    read = [problem.reference_text, problem.statement, problem.description, *problem.seeds[0].kernel.files.values()]
    assert not any("1234" in text for text in read)


@pytest.mark.slow
def test_the_bound_takes_honest_arithmetic_and_nothing_less(problem: Problem, reference: ModuleType) -> None:
    case = problem.benchmarks[0]
    data = reference.generate_input(**case.params, seed=7)
    check = {"c1": problem.check.c1, "accumulate": problem.check.accumulate}
    rows = [expected(row, out, check) for row, out in zip(reference.oracle(data), data[4:], strict=True)]

    def fits(*answer: torch.Tensor) -> bool:
        return all(
            bool(((one.reshape(-1) >= row.low) & (one.reshape(-1) <= row.high)).all())
            for one, row in zip(answer, rows, strict=True)
        )

    x, mask, weight, shift, *_ = data
    total = torch.zeros(x.shape[:2])
    for index in range(48):
        total = total + x[..., index] * x[..., index]
    y = x / torch.sqrt(total[..., None] / 48 + 1e-5) * weight * 2 + shift
    assert fits(y.masked_fill(mask, 0.0), y.transpose(0, 1))
    right = reference.ref_kernel(data)
    assert fits(*right)
    assert not fits(*(one * 1.0001 for one in right))
    assert not fits(*reference.forward(x.bfloat16().float(), mask, weight, shift))


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_roundings_at_random_bound_sums_products_and_functions(kind: torch.dtype) -> None:
    made = torch.Generator().manual_seed(1)
    a, b = (torch.randn(size, generator=made).to(kind) for size in ((40, 300), (300, 70)))
    c1 = 4 if kind is torch.float32 else 1

    def fits(function: object, answer: torch.Tensor) -> bool:
        assert callable(function)
        row = bounds.perturbed(function, (a, b))[0]
        found = expected(row, answer, {"c1": c1, "accumulate": str(kind).removeprefix("torch.")})
        flat = answer.reshape(-1).float()
        return bool(((flat >= found.low) & (flat <= found.high)).all())

    for function in (
        lambda a, b: torch.nn.functional.gelu(a @ b),
        lambda a, b: torch.softmax(a @ b / 4, -1),
        lambda a, b: torch.nn.functional.layer_norm(a, (300,)) @ b,
        lambda a, b: a.sort(-1).values[:, :70] * torch.sigmoid(b[:40]),
    ):
        right = function(a, b)
        assert fits(function, right)
        assert not fits(function, right * 1.06)
        assert not fits(function, torch.where(torch.arange(70) == 3, 0 * right, right))


@pytest.mark.parametrize("value", [1.0, 0.0, 1e-6, -3.0])
def test_a_parameter_that_is_the_same_everywhere_is_drawn_with_its_sign(value: float) -> None:
    (drawn,) = contents.like([contents.describe_contents([torch.full((64,), value)])], [(64,)], seed=3)
    assert drawn.std() > 0.005
    assert value == 0 or bool((drawn * value > 0).all())


def test_contents_that_cannot_be_drawn_again_are_refused() -> None:
    with pytest.raises(ValueError, match="not finite"):
        contents.describe_contents([torch.tensor([1.0, float("-inf")])])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        ("def model(): ...", (), r"offers no inputs\(\)"),
        (MODEL.replace(".eval()", ""), (), "is in training mode"),
        (MODEL, ("regions=9",), "there are regions 1 to"),
        (MODEL, ("regions=Nrm",), "did you mean Norm"),
        (
            MODEL.replace("return how", "return sum(x.sin() for _ in range(99)) * how").replace('{"by": 2}', "Holds()")
            + "\n\nclass Holds:\n    __slots__ = ()\n\n    def __getitem__(self, key):\n        return 2\n",
            ("regions=Unlike",),
            "takes a Holds: no kernel can take its place",
        ),
        (
            MODEL.replace("return how", "return sum(x.sin() for _ in range(99)) * how").replace(
                '{"by": 2}', '{"by": 2, "deep": {"low": 1, 3: 2}}'
            ),
            ("regions=Unlike",),
            "takes a dict: no kernel can take its place",
        ),
        ("1 / 0", (), "ZeroDivisionError"),
    ],
)
def test_what_cannot_be_profiled_is_said_in_a_line(
    tmp_path: Path, text: str, words: tuple[str, ...], said: str
) -> None:
    (tmp_path / "theirs.py").write_text(text)
    done = ksflow(tmp_path, "model", "profile", "theirs.py", "mode=none", *words)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert re.search(said, done.stderr), done.stderr


@pytest.mark.slow
def test_a_region_is_searched_beside_the_module_eager_and_compiled(profiled: tuple[Path, str]) -> None:
    done = ksflow(profiled[0], "problem=./regions/norm", "loop.evaluations=0")
    assert done.returncode == 0, done.stderr
    assert re.search("no winner: none is ranked ahead of (PyTorch|torch.compile),", done.stderr), done.stderr


def test_what_torch_cannot_count_leaves_the_roofline_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def uncounted(*_: object, **__: object) -> int:
        raise AssertionError("shapes are incompatible")  # as torch 2.11 says of attention with grouped queries

    monkeypatch.setitem(flop_counter.flop_registry, torch.ops.aten.mm, uncounted)
    (tmp_path / "products.py").write_text(
        """import torch


class Product(torch.nn.Module):
    def forward(self, x):
        return x @ x


def model():
    return torch.nn.Sequential(Product()).eval()


def inputs():
    return torch.randn(64, 64)
"""
    )
    found = profile.profile(user_file.load(tmp_path / "products.py"), "none", lambda _: None)
    assert [(one.title, one.roofline_us) for one in found.regions] == [("Product", None)]
