"""Regions of a model that are hard to take out of it: what becomes a problem, and what is refused by name."""

import importlib
import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import yaml

from ksflow.errors import ConfigError
from ksflow.evaluation.judge.cases import Reference
from ksflow.integrate.model import graph, problem, profile, prove, user_file
from ksflow.kernels.problem.loader import load

HEAD = """import collections, functools, torch
from torch import nn


"""
MODEL = (
    HEAD
    + """{classes}


def model():
    torch.manual_seed(0)
    return nn.Sequential(collections.OrderedDict(part={part})).eval()


def inputs():
    return {inputs}
"""
)


@pytest.fixture
def untried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have references not tried in a process of their own, which takes seconds; other tests do."""
    monkeypatch.setattr("ksflow.integrate.model.folder.run_isolated", lambda *_: "")


def write(folder: Path, part: str, inputs: str = "torch.randn(16, 8)", classes: str = "", name: str = "part") -> Path:
    """The folder of one region of a model that is made of these texts."""
    file = folder / f"model_{abs(hash((part, inputs, classes)))}.py"
    file.write_text(MODEL.format(part=part, inputs=inputs, classes=classes))
    user = user_file.load(file)
    with torch.no_grad():
        regions = profile._grouped(user.model, profile.record_calls(user.model, user.inputs))
    region = next(region for region in regions if name in (region.title, region.modules[0]))
    return problem.write(user, region, folder / "regions", {})


def reference(folder: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("region", folder / "reference.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def traffic(folder: Path) -> int:
    """The least bytes of the first case that is timed."""
    spec = yaml.safe_load((folder / "problem.yaml").read_text())
    return int(eval(spec["work"]["bytes"], dict(spec["cases"]["leaderboard"][0])))


def copy_installed(package: Path) -> None:
    """Write the modules of a package as `model apply` does."""
    for name, own in (("__init__.py", "installed"), ("arguments.py", "arguments"), ("operators.py", "operators")):
        source = importlib.util.find_spec(f"ksflow.integrate.model.{own}")
        assert source
        assert source.origin
        (package / name).write_text(Path(source.origin).read_text())


WRITER = """class Writer(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(8))
        self.inner = nn.Dropout(0.5)

    def forward(self, x):
        {body}
"""


@pytest.mark.parametrize(
    ("part", "classes", "said"),
    [
        (
            "Writer()",
            WRITER.format(body="return x.view(-1).add_(1)"),
            "writes into its input x and returns a view of it",
        ),
        ("Writer()", WRITER.format(body="self.seen += x[0]; return x * self.seen"), "writes into its buffer seen"),
        ("Writer()", WRITER.format(body="self.seen = x[0] + 1; return x * self.seen"), "writes into its buffer seen"),
        ("Writer()", WRITER.format(body="x.data.mul_(2); return x + 1"), "part is no problem"),
        ("Writer()", WRITER.format(body="self.inner.train(); return self.inner(x)"), "is in training mode in inner"),
    ],
)
def test_a_module_that_does_more_than_return_is_refused(tmp_path: Path, part: str, classes: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        write(tmp_path, part, classes=classes)
    assert not (tmp_path / "regions").exists()


@pytest.mark.usefixtures("untried")
def test_a_module_that_writes_into_its_own_intermediates_is_a_problem(tmp_path: Path) -> None:
    classes = """class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.relu = nn.LayerNorm(8), nn.ReLU(inplace=True)

    def forward(self, x):
        return self.relu(self.norm(x)).add_(x)
"""
    folder = write(tmp_path, "Part()", classes=classes)
    data = reference(folder).generate_input(16, 8, seed=1)
    before = data[0].clone()
    right = torch.nn.functional.layer_norm(data[0], (8,), data[1], data[2]).relu() + data[0]
    torch.testing.assert_close(reference(folder).ref_kernel(data), right)
    assert torch.equal(data[0], before)
    assert traffic(folder) == 4 * (2 * 16 * 8 + 2 * 8)


def test_what_a_module_was_called_with_is_kept_as_it_was(tmp_path: Path) -> None:
    """A later module of the model may write into it."""
    classes = """class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.then = nn.Linear(8, 8), nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.first(x)
        return self.then(x) + y
"""
    (tmp_path / "later.py").write_text(MODEL.format(part="Part()", classes=classes, inputs="torch.randn(16, 8)"))
    user = user_file.load(tmp_path / "later.py")
    ((x,), _) = user.inputs[0]
    before = x.clone()
    with torch.no_grad():
        calls = profile.record_calls(user.model, user.inputs, keep=["part.then"])
    (call,) = (call for call in calls if call.module == "part.then")
    assert torch.equal(call.given["input"], before)
    assert not torch.equal(x, before)


@pytest.mark.usefixtures("untried")
def test_parameters_of_any_name_and_tied_ones_are_arguments(tmp_path: Path) -> None:
    classes = """class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.ModuleList([nn.Linear(8, 8, bias=False)])
        self.b = nn.Linear(8, 8, bias=False)
        self.b.weight = self.a[0].weight
        self.a_0_weight = nn.Parameter(torch.randn(8))
        self.x_0 = nn.Parameter(torch.randn(8))

    def forward(self, x):
        return self.b(self.a[0](x)) * self.a_0_weight + self.x_0
"""
    tied = write(tmp_path, "Part()", "[torch.randn(16, 8), torch.randn(5, 8)]", classes)
    loaded = load(str(tied))
    assert [arg.name for arg in loaded.args] == ["x", "a_0_weight", "x_0", "b_weight", "y"]
    assert not {*loaded.dims} & {arg.name for arg in loaded.args}
    assert graph.names_for(["new", "lambda", "new_", "device"]) == ["new_", "lambda_", "new__", "device_"]
    digits = write(tmp_path, "nn.Sequential(nn.Linear(8, 8), nn.SiLU())")
    assert [arg.name for arg in load(str(digits)).args] == ["input", "p_0_weight", "p_0_bias", "y"]
    data = reference(digits).generate_input(16, 8, seed=1)
    right = torch.nn.functional.silu(torch.nn.functional.linear(*data[:3]))
    torch.testing.assert_close(reference(digits).ref_kernel(data), right)


CUSTOM = """@torch.library.custom_op("{space}::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2

@twice.register_fake
def _(x):
    return torch.empty_like(x)

class Part(nn.Module):
    def forward(self, x):
        return twice(x)
"""


@pytest.mark.parametrize(
    ("part", "classes", "inputs", "said"),
    [
        (
            "Part()",
            CUSTOM.format(space="test_model_regions"),
            "torch.randn(4, 8)",
            r"part is no problem: calls torch\.ops\.test_model_regions\.twice, which the judge does not have",
        ),
        pytest.param(
            "Part()",
            "class Part(nn.Module):\n    def forward(self, x):\n        return x + (x.view(torch.int32) & 1)\n",
            "torch.randn(4, 8)",
            r"part is no problem: torch\.ops\.aten\.\w+ fails in the judge: RuntimeError",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_what_the_judge_could_not_run_is_refused_by_its_operator(
    tmp_path: Path, part: str, classes: str, inputs: str, said: str
) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        write(tmp_path, part, inputs, classes)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "regions").exists()


READS = """class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = {state}

    def forward(self, x):
        return {body}
"""


@pytest.mark.usefixtures("untried")
@pytest.mark.parametrize(
    ("body", "state", "x", "bytes_"),
    [
        ("self.w(x)", "nn.Conv2d(3, 4, 1, stride=2, bias=False)", (1, 3, 8, 8), 4 * 4 * 16),
        ("self.w(x)", "nn.Conv2d(3, 4, 3, dilation=2, bias=False)", (1, 3, 8, 8), 4 * 4 * 16),
        ("self.w(x)", "nn.Conv2d(3, 4, 3, bias=False)", (1, 3, 8, 8), 4 * (4 * 36 + 4 * 27 + 3 * 64)),
        ("self.w(x)", "nn.Conv2d(3, 4, 3, padding=1, bias=False)", (1, 3, 1, 1), 4 * (4 + 3)),
        ("x.diagonal().sum(0, keepdim=True)", "None", (8, 8), 4),
        ("x.tril()", "None", (8, 8), 4 * 64),
        ("x.unfold(0, 1, 2).sum(0)", "None", (8, 8), 4 * 8),
        ("x.gather(0, torch.zeros(1, 8, dtype=torch.int64))", "None", (8, 8), 4 * 8),
        ("x[:3].relu()", "None", (8, 8), 4 * 24),
        ("(x + self.w)[:, 1]", "nn.Parameter(torch.ones(8))", (8, 8), 4 * 8),
        ("x.relu().sum(-1)", "None", (8, 8), 4 * 72),
        ("torch.where(x[0] > 9, x, self.w)", "nn.Parameter(torch.randn(8, 8))", (8, 8), 4 * 64),
        ("torch.stack([part.relu() for part in self.w(x).chunk(2, -1)])", "nn.Linear(8, 8)", (8, 8), 4 * 200),
        ("self.w(x).chunk(2, -1)[0]", "nn.Linear(8, 8)", (8, 8), 4 * 32),
        (  # the formula has room for the largest tensors alone
            "self.w(x)",
            "nn.Sequential(*(nn.Linear(8 + n, 9 + n, bias=False) for n in range(30)))",
            (1, 8),
            4 * sum((8 + n) * (9 + n) for n in range(15, 30)),
        ),
        ("torch.einsum('ij,kj->ik', x, x)", "None", (8, 8), 4 * 128),
        ("torch.einsum('ii->i', x)", "None", (8, 8), 4 * 8),
        ("F.scaled_dot_product_attention(x, self.w, self.w)", "nn.Parameter(torch.randn(1, 4, 8))", (1, 8, 8), 4 * 160),
        (
            "F.scaled_dot_product_attention(x, self.w, self.w, is_causal=True)",
            "nn.Parameter(torch.randn(1, 16, 8))",
            (1, 8, 8),
            4 * 128,
        ),
    ],
)
def test_the_least_traffic_counts_what_is_surely_read(
    tmp_path: Path, body: str, state: str, x: tuple[int, ...], bytes_: int
) -> None:
    classes = "F = nn.functional\n\n\n" + READS.format(body=body, state=state)
    folder = write(tmp_path, "Part()", f"torch.randn({x})", classes)
    assert traffic(folder) == bytes_


@pytest.mark.usefixtures("untried")
def test_a_constant_that_is_no_number_is_equal_to_itself(tmp_path: Path) -> None:
    classes = """class Scale(nn.Module):
    def forward(self, x, by):
        return x.nan_to_num(by)

class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = Scale()

    def forward(self, x):
        return self.scale(x, float("nan"))
"""
    assert (write(tmp_path, "Part()", classes=classes, name="Scale") / "problem.yaml").is_file()


def test_an_installed_kernel_takes_the_same_constants(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = tmp_path / "some_kernels"
    package.mkdir()
    copy_installed(package)
    (package / "regions.json").write_text('{"regions": []}')
    monkeypatch.syspath_prepend(str(tmp_path))
    installed = importlib.import_module("some_kernels")
    nan = float("nan")
    assert installed._same([1, nan], (1, float("nan")))
    assert not installed._same(nan, 1.0)
    assert not installed._same((1, nan), (1, nan, 2))
    assert not installed._same(1, True)
    gappy = torch.arange(65.0)[1:].view(8, 8)[:, :5]
    copied = installed.operators._aligned(gappy)
    assert torch.equal(copied, gappy)
    assert copied.stride() == gappy.stride()
    assert copied.data_ptr() % 64 == 0


@pytest.mark.usefixtures("untried")
def test_a_forward_that_is_called_otherwise_than_it_says_is_one_region_less(tmp_path: Path) -> None:
    classes = """class Wrapped(nn.Module):
    def forward(self, x):
        return x + 1

class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.wrapped, self.plain = Wrapped(), nn.Linear(8, 8)
        inner = self.wrapped.forward
        self.wrapped.forward = functools.wraps(inner)(lambda *args, scale=1, **kwargs: inner(*args, **kwargs) * scale)

    def forward(self, x):
        return self.plain(self.wrapped(x, scale=2))
"""
    assert (write(tmp_path, "Part()", classes=classes, name="Linear") / "problem.yaml").is_file()
    with pytest.raises(ConfigError, match=r"part\.wrapped is called otherwise than its forward says"):
        write(tmp_path, "Part()", classes=classes, name="Wrapped")


@pytest.mark.filterwarnings("ignore")  # torch's own, of scripts
def test_a_scripted_part_is_no_region_and_the_others_are() -> None:
    model = torch.nn.Sequential(torch.jit.script(torch.nn.Linear(4, 4)), torch.nn.SiLU()).eval()
    with torch.no_grad():
        calls = profile.record_calls(model, [((torch.randn(2, 4),), {})])
    assert [(call.module, call.unfit) for call in calls] == [("1", "")]


def test_named_inputs_are_any_mapping(tmp_path: Path) -> None:
    file = tmp_path / "named.py"
    file.write_text(MODEL.format(part="nn.ReLU()", classes="", inputs="collections.UserDict(input=torch.ones(2))"))
    assert user_file.load(file).inputs[0][0] == ()
    assert list(user_file.load(file).inputs[0][1]) == ["input"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def model(): return 3\ndef inputs(): return 1", r"model\(\) returned int: return a torch.nn.Module"),
        ("import torch\ndef model(): return torch.nn.ReLU().eval()\ndef inputs(): return []", "an empty list"),
        ("import sys\nsys.exit(3)", r"SystemExit: 3 \(theirs.py, line 2\)"),
    ],
)
def test_a_file_that_offers_no_model_is_said_in_a_line(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "theirs.py").write_text(text)
    with pytest.raises(ConfigError, match=said) as refused:
        user_file.load(tmp_path / "theirs.py")
    assert "\n" not in str(refused.value)


def test_outputs_of_whole_numbers_are_compared_exactly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tokens.py").write_text(
        HEAD + "def model():\n    return nn.Threshold(0, 0).eval()\n\n\ndef inputs():\n    return torch.arange(8)\n"
    )
    package = tmp_path / "no_kernels"
    package.mkdir()
    (package / "__init__.py").write_text("REGIONS = []\ninstall = lambda model: model\nreport = lambda: {}\n")
    monkeypatch.setattr(prove, "_SECONDS", 0.0)
    order = {"model": str(tmp_path / "tokens.py"), "package": str(package), "mode": "default", "seed": 0}
    monkeypatch.setattr(torch, "compile", lambda model, **_: model)
    found = prove.replicate(order)
    assert (found["bound"], found["difference"]["eager"]) == (0.0, 0.0)
    assert prove.difference([torch.tensor([1])], [torch.tensor([2])]) == float("inf")
    near = torch.tensor([1 + 1j]), torch.tensor([1 + 1.0001j])
    assert 0 < prove.difference(*near) < 1e-3


HALVES = """class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(64, 64).{weight}())

    def forward(self, x):
        return {body}
"""


@pytest.mark.usefixtures("untried")
@pytest.mark.parametrize(
    ("body", "x", "weight", "check", "room"),
    [
        ("x @ self.w", "double", "double", (4, "float64"), 1e-13),
        ("x @ self.w", "float", "float", (4, "float32"), 1e-5),
        ("x @ self.w.float()", "float", "bfloat16", (4, "float32"), 1e-5),
        ("x.double() @ self.w", "float", "double", (4, "float64"), 1e-13),
        ("(x @ self.w).float()", "bfloat16", "bfloat16", (1, "bfloat16"), 0.1),
        ("(x.float() @ self.w.float()).half()", "half", "bfloat16", (1, "float16"), 0.1),
    ],
)
def test_a_region_is_bounded_by_the_arithmetic_it_has(
    tmp_path: Path, body: str, x: str, weight: str, check: tuple[int, str], room: float
) -> None:
    folder = write(tmp_path, "Part()", f"torch.randn(48, 64).{x}()", HALVES.format(weight=weight, body=body))
    spec = yaml.safe_load((folder / "problem.yaml").read_text())
    assert (spec["check"]["c1"], spec["check"]["accumulate"]) == check
    judged = Reference({"root": str(folder), "args": spec["args"], "check": spec["check"]})
    case = {key: value for key, value in spec["cases"]["tests"][0].items() if key != "seed"}
    data = judged.data({"params": case}, 3)
    (row,) = judged.expect(data)
    answer = judged.kernel(data).double().reshape(-1)
    assert bool(((answer >= row.low) & (answer <= row.high)).all())
    assert float((row.high.double() - row.low.double()).max() / answer.abs().max()) < room


NESTED = """class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Linear(8, 8)

    def forward(self, x, pair, *, named=None, mask=None):
        y = self.w(x) * pair[0]
        return y, None, {"low": [y - pair[1][0] * named["by"]]}

class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def forward(self, x):
        y, none, lows = self.inner(x, (x.cos(), [x.sin(), 3]), named={"by": x[:1]})
        return y + lows["low"][0]
"""
PACKAGED = {
    "name": "inner",
    "class": "m.Inner",
    "modules": ["part.inner"],
    "parameters": ["w.weight", "w.bias"],
    "device": "cpu",
}
KERNEL = """import torch
def custom_kernel(data):
    x, cos, sin, by, w, b, *_ = data
    y = torch.nn.functional.linear(x, w, b) * cos
    return y, y - sin * by
"""


def pack(folder: Path, package: Path, kernel: str, case: dict[str, Any]) -> None:
    """Write a package with one kernel for a region, as `model apply` does."""
    facts = json.loads((folder / "region.json").read_text())
    (package / "inner").mkdir(parents=True)
    copy_installed(package)
    (package / "inner" / "module.py").write_text(kernel)
    about = {key: facts[key] for key in ("constants", "returns")} | {"inputs": [row["name"] for row in facts["inputs"]]}
    about |= PACKAGED | {"namespace": package.name, "changed": facts["changed"], "parameters": facts["parameters"]}
    (package / "regions.json").write_text(json.dumps({"regions": [about | {"cases": [case]}]}))


@pytest.mark.slow
def test_tensors_in_tuples_lists_and_dicts_are_arguments_and_outputs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sets = "[torch.randn(16, 8), torch.randn(5, 8)]"
    folder = write(tmp_path, "Part()", sets, classes=NESTED, name="part.inner")
    found = load(str(folder))
    assert [arg.name for arg in found.args] == ["x", "pair_0", "pair_1_0", "named_by", "w_weight", "w_bias", "y0", "y1"]
    given = [[list(one), [one[1], 1] if len(one) > 1 else [1], "float32"] for one in
             ((16, 8), (16, 8), (16, 8), (1, 8), (8, 8), (8,))]  # fmt: skip
    pack(folder, tmp_path / "nested_kernels", KERNEL, {"given": given, "outputs": given[:2]})
    monkeypatch.syspath_prepend(str(tmp_path))
    installed = importlib.import_module("nested_kernels")
    user = user_file.load(next(tmp_path.glob("model_*.py")))
    x = torch.randn(16, 8)
    with torch.no_grad():
        right, inner = user.model(x), user.model.part.inner(x, (x, [x, 3]), named={"by": x[:1]})
        installed.install(user.model)
        torch.testing.assert_close(user.model(x), right)
        torch.testing.assert_close(user.model.part.inner(x, (x, [x, 3]), named={"by": x[:1]}), inner)
        torch.testing.assert_close(torch.compile(user.model, backend="eager", fullgraph=True)(x), right)
        assert installed.report() == {"inner": {"hits": 3, "fallbacks": {}}}
        user.model.part.inner(x, (x, [x, 4]), named={"by": x[:1]})
        user.model.part.inner(x, [x, [x, 3]], named={"by": x[:1]})
        user.model.part.inner(x, (x, [x, 3]), named={"by": x[:1]}, mask=x)
        assert installed.report() == {"inner": {"hits": 3, "fallbacks": {"arguments": 3}}}


OBJECTS = """import dataclasses

@dataclasses.dataclass(frozen=True)
class Pair:
    cos: torch.Tensor
    sin: torch.Tensor
    kind: torch.dtype = torch.float32

class Layer:
    def __init__(self, keys):
        self.keys, self.seen = keys, 0

class Cache:
    def __init__(self, keys):
        self.layers = [Layer(keys)]

    def grown(self, x):
        self.layers[0].keys = torch.cat([self.layers[0].keys, x])
        return self.layers[0].keys

    def counted(self, x):
        self.layers[0].seen += 1
        return self.layers[0].keys

    def filled(self, x):
        self.layers[0].keys[2:] = x[2:]
        return self.layers[0].keys

@dataclasses.dataclass
class Out(collections.OrderedDict):
    y: torch.Tensor
    none: None = None
    cache: Cache = None

    def __post_init__(self):
        self.update((key, part) for key, part in vars(self).items() if part is not None)

class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Linear(8, 8)

    def forward(self, x, *pairs, batch, cache=None, **more):
        y = self.w(x) * pairs[0].cos + batch["shift"]
        cache.{method}(y)
        return Out(y + cache.layers[0].keys.mean(0) * more["scale"], cache=cache)

class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def forward(self, x):
        batch = collections.UserDict(shift=x.exp())
        cache = Cache(x.tan())
        y = self.inner(x, Pair(x.cos(), x.sin()), batch=batch, cache=cache, scale=x.sin())["y"]
        return y + cache.layers[0].keys[: len(x)]
"""
FILLED = """import torch
def custom_kernel(data):
    x, cos, _, shift, keys, scale, w, b, *_ = data
    y = torch.nn.functional.linear(x, w, b) * cos + shift
    keys[2:] = y[2:]
    return y + keys.mean(0) * scale
"""


@pytest.mark.usefixtures("untried")
@pytest.mark.parametrize(
    ("method", "said"),
    [
        ("grown", "part.inner replaces its input cache.layers.0.keys: no kernel can take its place"),
        ("counted", "part.inner changes cache, a Cache, otherwise than by writing into its tensors"),
    ],
)
def test_a_cache_that_becomes_another_is_refused_by_its_name(tmp_path: Path, method: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        write(tmp_path, "Part()", classes=OBJECTS.replace("{method}", method), name="part.inner")


@pytest.mark.slow
@pytest.mark.usefixtures("untried")
def test_tensors_in_objects_are_arguments_and_those_that_are_written_are_changed_in_place(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sets = "[torch.randn(16, 8), torch.randn(5, 8)]"
    folder = write(tmp_path, "Part()", sets, classes=OBJECTS.replace("{method}", "filled"), name="part.inner")
    roles = {arg.name: arg.role for arg in load(str(folder)).args}
    names = ["x", "pairs_0_cos", "pairs_0_sin", "batch_data_shift", "cache_layers_0_keys", "scale"]
    assert roles == dict.fromkeys([*names, "w_weight", "w_bias"], "in") | {"cache_layers_0_keys": "inout", "y": "out"}
    given = [[[16, 8], [8, 1], "float32"]] * 6 + [[[8, 8], [8, 1], "float32"], [[8], [1], "float32"]]
    pack(folder, tmp_path / "object_kernels", FILLED, {"given": given, "outputs": given[:1]})
    monkeypatch.syspath_prepend(str(tmp_path))
    installed = importlib.import_module("object_kernels")
    file = next(tmp_path.glob("model_*.py"))
    user, theirs = user_file.load(file), importlib.import_module(file.stem)
    x = torch.randn(16, 8)

    def called(x: torch.Tensor, **changed: Any) -> tuple[Any, Any]:
        cache = theirs.Cache(x.tan())
        given = {"batch": {"shift": x.exp()}, "cache": cache, "scale": x.sin(), **changed}
        batch = __import__("collections").UserDict(given.pop("batch"))
        return user.model.part.inner(x, theirs.Pair(x.cos(), x.sin()), batch=batch, **given), cache

    with torch.no_grad():
        right, (out, cache) = user.model(x), called(x)
        installed.install(user.model)
        torch.testing.assert_close(user.model(x), right)
        mine, same = called(x)
        assert type(mine) is theirs.Out
        assert mine.cache is same
        torch.testing.assert_close(mine["y"], out["y"])
        torch.testing.assert_close(same.layers[0].keys, cache.layers[0].keys)
        assert installed.report() == {"inner": {"hits": 2, "fallbacks": {}}}
        called(x, more=1)
        assert installed.report() == {"inner": {"hits": 2, "fallbacks": {"arguments": 1}}}
        torch.testing.assert_close(torch.compile(user.model, backend="eager", fullgraph=True)(x), right)
        assert installed.report()["inner"]["hits"] == 3


@pytest.mark.slow
@pytest.mark.usefixtures("untried")
def test_a_module_that_works_in_place_is_one_that_changes_its_input(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = write(tmp_path, "nn.ReLU(inplace=True)")
    (arg,) = load(str(folder)).args
    assert (arg.name, arg.role) == ("input", "inout")
    assert traffic(folder) == 2 * 4 * 16 * 8
    spec = yaml.safe_load((folder / "problem.yaml").read_text())
    judged = Reference({"root": str(folder), "args": spec["args"], "check": spec["check"]})
    data = judged.data({"params": dict.fromkeys(spec["dims"], 0) | {"input_0": 16, "input_1": 8}}, 3)
    before = data[0].clone()
    (row,) = judged.expect(data)
    assert torch.equal(judged.answer(data)[0], before.relu())
    assert bool((row.low <= before.relu().double().reshape(-1)).all())
    given = [[[16, 8], [8, 1], "float32"]]
    pack(
        folder,
        tmp_path / "relu_kernels",
        "def custom_kernel(data):\n    data[0].clamp_(min=0)\n",
        {"given": given, "outputs": []},
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    installed = importlib.import_module("relu_kernels")
    installed.REGIONS[0].modules, installed.REGIONS[0].kind = ["part"], "m.ReLU"
    user = user_file.load(next(tmp_path.glob("model_*.py")))
    with torch.no_grad():
        installed.install(user.model)
        for call in (user.model, torch.compile(user.model, backend="aot_eager", fullgraph=True)):
            x = before.clone()
            assert call(x) is x
            assert torch.equal(x, before.relu())
        assert installed.report() == {"inner": {"hits": 2, "fallbacks": {}}}


FURTHER = """class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Linear(8, 8)

    def forward(self, x, options=None, times=1, **more):
        return self.w(x) * times + more["shift"] if options["low"] else x

class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def forward(self, x):
        return self.inner(x, {"low": 1, "high": None}, 2, shift=x.tan(), quiet=True)
"""
SHIFTED = """import torch
def custom_kernel(data):
    x, shift, w, b, *_ = data
    return torch.nn.functional.linear(x, w, b) * 2 + shift
"""


@pytest.mark.slow
def test_dicts_without_tensors_and_names_of_any_kind_are_arguments(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = write(tmp_path, "Part()", "torch.randn(16, 8)", classes=FURTHER, name="part.inner")
    assert [arg.name for arg in load(str(folder)).args] == ["x", "shift", "w_weight", "w_bias", "y"]
    given = [[[16, 8], [8, 1], "float32"]] * 2 + [[[8, 8], [8, 1], "float32"], [[8], [1], "float32"]]
    pack(folder, tmp_path / "further_kernels", SHIFTED, {"given": given, "outputs": given[:1]})
    monkeypatch.syspath_prepend(str(tmp_path))
    installed = importlib.import_module("further_kernels")
    user = user_file.load(next(tmp_path.glob("model_*.py")))
    x = torch.randn(16, 8)
    with torch.no_grad():
        right, inner = user.model(x), user.model.part.inner
        installed.install(user.model)
        torch.testing.assert_close(user.model(x), right)
        assert installed.report() == {"inner": {"hits": 1, "fallbacks": {}}}
        inner(x, {"low": 2, "high": None}, 2, shift=x, quiet=True)
        inner(x, {"low": 1, "high": None}, 2, shift=x)
        inner(x, {"low": 1, "high": None}, 2, shift=x, quiet=True, other=1)
        once = inner(x, {"low": 1, "high": None}, shift=x, quiet=True)
        torch.testing.assert_close(once, inner.w(x) + x)
        assert installed.report() == {"inner": {"hits": 1, "fallbacks": {"arguments": 4}}}


@pytest.mark.usefixtures("untried")
def test_an_installed_package_whose_operators_are_called_is_imported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    operator = CUSTOM.format(space="twice_of_test").partition("class Part")[0]
    (tmp_path / "twice_of_test.py").write_text(f"import torch\n\n{operator}")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("site.getsitepackages", lambda: [str(tmp_path)])
    forward = "def forward(self, x):\n        return twice_of_test.twice(x)"
    classes = f"import twice_of_test\n\nclass Part(nn.Module):\n    {forward}"
    folder = write(tmp_path, "Part()", classes=classes)
    for file in ("reference.py", "seeds/00_eager.py", "seeds/01_compile.py"):
        assert "import torch\nimport twice_of_test\n" in (folder / file).read_text()
