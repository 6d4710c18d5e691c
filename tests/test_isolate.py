"""A function of a repository as a problem folder, from the calls that the person's own command makes of it."""

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

from ksflow.cli.init import init
from ksflow.cli.model import isolate
from ksflow.errors import ConfigError
from ksflow.evaluation.judge.contents import common_strides
from ksflow.evaluation.sandbox.runners.torch_kernel import load_module
from ksflow.integrate.model.capture import Seen, observe
from ksflow.integrate.model.package import region_of
from ksflow.kernels.hardware.cost_model import work
from ksflow.kernels.hardware.target import detect
from ksflow.kernels.problem.kernel_file import kernel_file
from ksflow.kernels.problem.loader import load
from ksflow.kernels.problem.texts import model_region, recorded_apart
from ksflow.records import Kernel, Problem, Verdict
from ksflow.stages.evaluator.local import LocalEvaluator

PACKAGE = {
    "shop/__init__.py": "",
    "shop/tools.py": """import dataclasses

HALF = 0.5


def blend(a, b):
    return HALF * (a + b)


@dataclasses.dataclass(frozen=True)
class Rule:
    bias: object
    times: float = 2.0

    def of(self, x):
        return blend(x, self.bias) * self.times
""",
    "shop/filters.py": """import threading
import time
from multiprocessing import get_context

import numpy as np

from . import tools
from .tools import blend as mix

TIMES = 0
WARM = []


def smooth(x, *, times=1.0):
    y = x.copy()
    for i in range(1, x.shape[0] - 1):
        y[i] = mix(x[i - 1], x[i + 1]) * times
    return y


def whole(x):
    return tools.blend(x, 1.0)


def add(x, y):
    return x + y


def scale(x, y):
    x *= 2.0
    y[1:] += x[:-1]
    return x, x.sum()


def ruled(x, rules):
    return rules[0].of(x)


def noise(x):
    return x + np.random.rand()


def items(x):
    yield from x


async def later(x):
    return x


def tree(depth, x):
    return x * 1.5 if depth < 1 else tree(depth - 1, x) + tree(depth - 1, x)


class Grid:
    def __init__(self, n):
        self.k, self.shift = np.linspace(0.0, 1.0, n), 3

    def step(self, u, eps=1e-5):
        if not WARM:  # as an import, a page fault or a compiler is at the first call
            WARM.append(time.sleep(0.1))
        return {"next": u * self.k + self.shift, "sum": float(u.sum())}


GRID = Grid(9)


def many(count):
    for _ in range(count):
        add(np.ones(3), np.ones(3))


def threads():
    gate = threading.Barrier(3)  # all are there before one ends: the number of a thread that has ended is given again
    work = [threading.Thread(target=lambda: [gate.wait(), *(tree(3, np.ones(9)) for _ in range(5))]) for _ in range(3)]
    for one in work:
        one.start()
    for one in work:
        one.join()


def processes():
    for how in ("fork", "spawn"):
        with get_context(how).Pool(2) as pool:
            pool.map(many, [10, 20, 30])
            pool.close()
            pool.join()
""",
    "shop/nets.py": """import torch


def gate(x, state, *, k):
    return torch.sigmoid(x * k + state["bias"]), None


def mix(x, *, out):
    torch.mul(x, 2.0, out=out)
    return x.add_(out)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = torch.nn.Linear(16, 8)

    def forward(self, x):
        return torch.relu(self.mix(x))

""",
    "use_nets.py": """import torch

from shop import nets

several = [nets.Net().eval(), nets.Net().eval()]
for rows in (3, 9, 20, 33):
    with torch.no_grad():
        for net in several:
            net(torch.randn(rows, 16))
        nets.mix(torch.randn(rows), out=torch.empty(rows))
        nets.gate(torch.randn(rows, 16), {"bias": torch.randn(16)}, k=2.0)
""",
    "tests/test_filters.py": """import numpy as np
import pytest

from shop.filters import smooth


@pytest.mark.parametrize("rows", [40, 50, 60, 70])
def test_ends_stay(rows):
    for number in range(rows // 10):
        x = np.random.default_rng(number).standard_normal((rows, 30))
        assert (smooth(x, times=2.0)[0] == x[0]).all()
    assert smooth(np.ones((5, 5), np.float32)).shape == (5, 5)
""",
    "calls.py": """import numpy as np

from shop import filters
from shop.tools import Rule


def own(x):
    return x - 1.0


if __name__ == "__main__":
    grid, draw = filters.Grid(12), np.random.default_rng(0)
    for rows in (3, 9, 20, 33):
        grid.step(draw.random((rows, 12)))
        filters.scale(draw.random(rows), draw.random(rows))
        for function in (filters.whole, filters.noise, own):
            function(draw.random(rows))
        list(filters.items(draw.random(rows)))
        filters.ruled(draw.random(rows), [Rule(draw.random(rows))])
""",
}
KERNEL = """#include <cstdint>
extern "C" void custom_kernel(const double *x, double *y, int64_t m, int64_t n, const int64_t *) {
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++)
      y[i * n + j] = i == 0 || i == LAST ? x[i * n + j] : x[(i - 1) * n + j] + x[(i + 1) * n + j];
}
"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A person's repository."""
    folder = tmp_path_factory.mktemp("shop")
    for name, text in PACKAGE.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture(autouse=True)
def inside(shop: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Commands are typed in the repository, whose modules no other test gets."""
    monkeypatch.chdir(shop)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    known = {*sys.modules}
    yield
    for name in {*sys.modules} - known:
        if name.partition(".")[0] in ("shop", "calls"):
            del sys.modules[name]


def contents(folder: Path) -> dict[str, str]:
    files = [file for file in folder.rglob("*") if file.is_file() and "__pycache__" not in file.parts]
    return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def written(target: str, command: str, out: Path) -> Problem:
    assert isolate([target], ["--run", command, f"out={out}"]) == 0
    (folder,) = out.iterdir()
    return load(str(folder), target=detect())


def reference(problem: Problem) -> ModuleType:
    return load_module("isolated", Path(problem.root, "reference.py"))


@pytest.mark.slow
def test_a_function_of_a_package_is_a_problem_that_needs_it_no_longer(
    shop: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], evaluator: LocalEvaluator
) -> None:
    before = contents(shop)
    problem = written("shop.filters:smooth", "python -m pytest -q -p no:cacheprovider", tmp_path)
    assert contents(shop) == before
    said = capsys.readouterr().out
    assert re.search(r"shop.filters:smooth: 26 calls, [\d.e-]+ % of the [\d.]+ s of `python -m pytest -q", said), said
    assert "not taken: 4 calls" in said
    assert "x [70, 30] float64" in said
    assert len(problem.benchmarks) == 3
    weights = [case.weight for case in problem.benchmarks]  # the groups that took most time come first
    assert weights == sorted(weights, reverse=True)
    assert sum(weights) == pytest.approx(1, abs=0.01)
    assert [case.params for case in problem.heldout] == [{"x_0": 40, "x_1": 30}]
    recorded = (model_region(problem) or {})["recorded_us"]
    times = {case.name: us / 2 for case, us in zip(problem.benchmarks, recorded, strict=True)}
    assert "µs in the recorded run, and takes" in recorded_apart(problem, times)
    assert not recorded_apart(problem, {case: 2.5 * us for case, us in times.items()})
    assert "shop" not in problem.reference
    assert "smooth(x, times=2.0)" in problem.statement
    assert [seed.name for seed in problem.seeds] == ["00_your_reference.py"]
    rows = evaluator.admit(problem)
    assert [row for row in rows if not row[1]] == []
    for last, verdict in (("m - 1", Verdict.ACCEPT), ("m - 2", Verdict.INCORRECT)):
        found = evaluator(problem, Kernel("cpp", {"k.cpp": KERNEL.replace("LAST", last)}), ())
        assert found.verdict is verdict, found.reason
    with pytest.raises(ConfigError, match=r"is the function shop.filters:smooth, no region of a model"):
        region_of(problem)


@pytest.mark.slow
def test_a_torch_function_takes_dictionaries_and_keyword_only_arguments(tmp_path: Path) -> None:
    problem = written("shop.nets:gate", "python use_nets.py", tmp_path)
    assert [arg.name for arg in problem.args] == ["x", "state_bias", "y"]
    module = reference(problem)
    x, bias, y = module.generate_input(7, 16, seed=1)
    assert torch.allclose(module.ref_kernel((x, bias, y)), torch.sigmoid(x * 2.0 + bias))
    assert {seed.name for seed in problem.seeds} == {"00_eager.py", "01_compile.py", "01_loops.cpp"}


def test_how_a_tensor_lies_is_told_from_the_dimensions_longer_than_1() -> None:
    one, many = (1, 8, 1, 32), (1, 8, 64, 32)
    heads = [((256, 32, 256, 1), one), ((16384, 32, 256, 1), many), ((256, 32, 32, 1), one)]
    assert common_strides(heads) == {"order": [0, 2, 1, 3]}
    with pytest.raises(ValueError, match="lie differently"):
        common_strides([*heads, ((16384, 2048, 32, 1), many)])


@pytest.mark.slow
def test_a_module_has_its_parameters_as_arguments(tmp_path: Path) -> None:
    problem = written("shop.nets:Net", "python use_nets.py", tmp_path)
    assert [arg.name for arg in problem.args] == ["x", "module_mix_weight", "module_mix_bias", "y"]
    module = reference(problem)
    x, weight, bias, y = module.generate_input(*({**problem.benchmarks[0].params}.values()), seed=1)
    assert torch.allclose(module.ref_kernel((x, weight, bias, y)), torch.relu(x @ weight.T + bias), atol=1e-6)


@pytest.mark.slow
def test_a_method_has_its_objects_arrays_as_arguments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    problem = written("shop.filters:Grid.step", "python calls.py", tmp_path)
    said = " ".join(capsys.readouterr().out.split())
    assert "fixed: self.shift=3, eps=1e-05, k of float64, u of float64 in all 4 calls" in said
    _, *rows = (model_region(problem) or {})["profile"]["rows"]
    assert [row[3].partition(" ")[2] for row in rows] == ["(called again)"] * 4
    assert max(case.weight for case in problem.benchmarks) < 0.9  # the first call took 0.1 s, the others some µs
    assert [arg.name for arg in problem.args] == ["k", "u", "y0", "y1"]
    module = reference(problem)
    k, u, *_ = data = module.generate_input(*problem.benchmarks[0].params.values(), seed=1)
    after, total = module.ref_kernel(data)
    assert torch.allclose(after, u * k + 3)
    assert torch.allclose(total, u.sum())


@pytest.mark.slow
def test_an_object_among_the_arguments_has_its_arrays_as_arguments(tmp_path: Path) -> None:
    problem = written("shop.filters:ruled", "python calls.py", tmp_path)
    assert [arg.name for arg in problem.args] == ["x", "rules_0_bias", "y"]
    assert "shop" not in problem.reference.partition("MET =")[2]
    x, bias, _ = data = reference(problem).generate_input(*problem.benchmarks[0].params.values(), seed=1)
    assert torch.allclose(reference(problem).ref_kernel(data), x + bias)


@pytest.mark.slow
def test_what_a_function_changes_in_place_is_so_in_the_problem(tmp_path: Path, evaluator: LocalEvaluator) -> None:
    problem = written("shop.filters:scale", "python calls.py", tmp_path)
    assert [(arg.name, arg.role) for arg in problem.args] == [("x", "inout"), ("y", "inout"), ("y_out", "out")]
    (seed,) = problem.seeds
    found = evaluator(problem, seed.kernel, ())
    assert found.accepted, found.reason
    head = "#include <cstdint>\n" + problem.signature
    body = "{ *y_out = 0; for (int64_t i = 0; i < x_0; i++) *y_out += x[i] *= 2;"
    for rest, verdict in (
        ("for (int64_t i = 1; i < x_0; i++) y[i] += x[i - 1]; }", Verdict.ACCEPT),
        ("}", Verdict.INCORRECT),
    ):
        found = evaluator(problem, Kernel("cpp", {"k.cpp": f"{head} {body} {rest}\n"}), ())
        assert found.verdict is verdict, found.reason


@pytest.mark.slow
def test_a_torch_function_changes_its_inputs_in_place(tmp_path: Path, evaluator: LocalEvaluator) -> None:
    problem = written("shop.nets:mix", "python use_nets.py", tmp_path)
    assert [(arg.name, arg.role) for arg in problem.args] == [("x", "inout"), ("out", "inout")]
    head = "#include <cstdint>\n" + problem.signature
    for body, verdict in (("x[i] += out[i] = 2 * x[i];", Verdict.ACCEPT), ("x[i] *= 3;", Verdict.INCORRECT)):
        source = f"{head} {{ for (int64_t i = 0; i < x_0; i++) {body} }}\n"
        found = evaluator(problem, Kernel("cpp", {"k.cpp": source}), ())
        assert found.verdict is verdict, found.reason


@pytest.mark.slow
def test_what_cannot_be_cut_out_is_imported_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    problem = written("shop.filters:whole", "python calls.py", tmp_path)
    said = " ".join(capsys.readouterr().out.split())
    assert "imports your package (it uses the module tools as a whole), which the sandbox does not have" in said
    assert "from shop.filters import whole" in problem.reference
    assert [seed.name for seed in problem.seeds] == ["01_loops.cpp"]


@pytest.mark.slow
def test_a_function_of_the_program_itself_is_watched(tmp_path: Path) -> None:
    for command, folder in (("python calls.py", tmp_path / "file"), ("python -m calls", tmp_path / "module")):
        problem = written("calls:own", command, folder)
        assert problem.benchmarks
        assert (model_region(problem) or {})["program"]


def seen(target: str, code: str, tmp_path: Path) -> Seen:
    command = f'python -c "from shop import filters; {code}"'
    return observe(target, command, tmp_path)


@pytest.mark.parametrize(
    ("target", "code", "calls", "remark"),
    [
        ("shop.filters:tree", "filters.threads()", 15, "threads called it"),
        ("shop.filters:add", "filters.processes()", 120, ""),
        ("shop.filters:add", "filters.many(50_000)", 50_000, "each of the first 20,000 calls was looked at"),
    ],
)
def test_calls_are_counted_right(target: str, code: str, calls: int, remark: str, tmp_path: Path) -> None:
    found = seen(target, code, tmp_path)
    assert found.calls == calls
    assert 0 < found.share <= 1
    assert remark in " ".join(found.remarks)
    assert len(found.families) == 1
    assert sum(row["calls"] for row in found.families[0].rows) == pytest.approx(calls, rel=0.01)


@pytest.mark.parametrize(
    ("target", "command", "said"),
    [
        ("shop.filters:add", "python -c 'print(3); 1 / 0'", "ended with 1 .ZeroDivisionError: division by zero"),
        ("shop.filters:add", "python -c 'import shop.filters'", "never called shop.filters:add"),
        ("shop.filters:add", "python -c pass", "did not import shop.filters"),
        ("shop.filters:add", "python -I -c pass", "ran no Python that looks into PYTHONPATH"),
        ("shop.filters:smoth", "python calls.py", "has no smoth; did you mean smooth"),
        ("shop.filters:items", "python calls.py", "is a generator"),
        ("shop.filters:later", "python calls.py", "is a coroutine"),
        ("shop.filters:TIMES", "python calls.py", "is a int, which is not called"),
        ("shop.filters:GRID.step", "python calls.py", "isolate its class, ksflow isolate shop.filters:Grid.step --run"),
        ("shop.filters:noise", "python calls.py", "answers otherwise than in the run"),
        ("shop.filters:many", "python -c 'from shop import filters; filters.many(3)'", "takes no array"),
        ("shop.filters", "python calls.py", "the command is: isolate MODULE:FUNCTION"),
        ("shop.filters:add", "", "run= has no value: isolate MODULE:FUNCTION"),
    ],
)
def test_what_cannot_be_taken_is_said_in_a_sentence(target: str, command: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        isolate([target], [f"run={command}", f"out={tmp_path}"])
    assert "\n" not in str(caught.value)
    assert not [*tmp_path.iterdir()]


def test_an_option_that_is_none_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="rum; valid: isolate MODULE:FUNCTION"):
        isolate(["shop.filters:add"], ["--rum", "x"])


def test_another_sitecustomize_runs_too(shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "sitecustomize.py").write_text("import os\nos.environ['THEIRS'] = '1'\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "theirs"))
    (tmp_path / "seen").mkdir()
    seen("shop.filters:add", "import os; assert os.environ['THEIRS']; filters.many(2)", tmp_path / "seen")
    assert json.loads(next((tmp_path / "seen").glob("*.json")).read_text())["calls"] == 2


FUNCTION = '''import numpy as np

START = 0.5


def smooth(x, k=START):
    """Three points.

    >>> smooth(np.arange(12.0))[0]
    0.0
    >>> y = smooth(np.arange(15.0))
    """
    y = x.copy()
    y[1:-1] = k * (x[:-2] + x[2:])
    return y


def order(x):
    return np.sort(x)


def lacking(x):
    return x
'''


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "cases", "start"),
    [
        ("smooth", "", ("seeds/cpu/01_loops.cpp", Verdict.ACCEPT)),
        (
            "order",
            "CASES = [{'x': np.random.rand(5)}, lambda: (np.random.rand(7),), (np.random.rand(9),)]",
            ("kernel.cpp", Verdict.INCORRECT),
        ),
    ],
)
def test_a_function_alone_is_a_problem(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    evaluator: LocalEvaluator,
    name: str,
    cases: str,
    start: tuple[str, Verdict],
) -> None:
    kernel, verdict = start
    (tmp_path / "own.py").write_text(f"{FUNCTION}\n\n{cases}\n")
    assert init(["problem", str(tmp_path / "Mine"), f"{tmp_path}/own.py:{name}"], []) == 0
    problem = load(str(tmp_path / "Mine"), target=detect())
    said = capsys.readouterr().out
    assert "no shapes are held out: all calls are optimised for" in said
    last = f"or have a model write the kernels:\n  ksflow problem={tmp_path}/Mine llm=NAME\n"
    assert said.endswith(last) == (kernel == "kernel.cpp")
    assert [case.weight for case in problem.benchmarks] == [1, 1] + [1] * bool(cases)
    calls = 15 if cases else 2  # each of CASES counts five times, of which the first is a cold one
    assert f"computes this. The calls in own.py called it {calls} times.\n" in problem.statement
    facts = model_region(problem) or {}
    assert not facts["recorded_us"]
    assert "calls" not in facts["fixed"]
    assert facts["profile"]["title"] == f"own:{name}: the calls in own.py"
    assert not problem.heldout
    assert "an element is off by at most 8 roundings of its number format" in problem.statement
    for case in problem.benchmarks:
        size = int(case.params["x_0"])  # nothing shows that a kernel for `order` reads all elements
        assert work(problem, case).bytes == 8 * (size + (size - 2 if name == "smooth" else 0))
    module = load_module("mine", str(tmp_path / "Mine" / "reference.py"))
    for case in problem.tests:  # where all recorded contents are the same, others are drawn beside them
        first, other = (module.generate_input(**case.params, seed=seed)[0] for seed in (1, 2))
        assert not torch.equal(first, other)
    found = evaluator(problem, kernel_file(str(tmp_path / "Mine" / kernel)), ())
    assert found.verdict is verdict, found.reason
    text = (tmp_path / "Mine" / kernel).read_text()
    assert ("it calls sort" in text) == (name == "order")
    assert ("strides[" not in text and "// tune:" in text) == (name == "smooth")


NETS = """class Plain:
    def step(self, x):
        return x


import torch


class Net(torch.nn.Module):
    def forward(self, x):
        return x * 2


NET = Net()


def applied(net, x):
    return net(x)


def call():
    NET(torch.ones(3)), applied(NET.eval(), torch.ones(3))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("NET", 'belongs to an object: isolate its class, ksflow isolate nets:Net --run "COMMAND"'),
        ("applied", 'takes a Net, an nn.Module: isolate that, ksflow isolate nets:Net --run "COMMAND"'),
        ("Net", "is called in training mode, .* have the program call eval"),
    ],
)
def test_a_module_of_torch_is_pointed_to_where_it_can_be_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, said: str
) -> None:
    (tmp_path / "nets.py").write_text(NETS.replace(".eval()", "") if name == "Net" else NETS)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=f"^nets:{name} {said}"):
        isolate([f"nets:{name}"], [f"run={sys.executable} -c 'import nets; nets.call()'", f"out={tmp_path}"])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("own.py:lacking", "^nothing says what x can be: write CASES"),
        ("own.py:nope", "^own.py has no nope; valid: "),
        ("own.py:smoth", r"^own.py has no smoth; did you mean smooth\? valid: "),
        (
            "listed.py:smooth",
            r"^CASES\[1\] of listed.py does not fit smooth\(.*\): missing a required argument: 'x'",
        ),
        ("other.py:nope", "no file .*/other.py$"),
        ("own:nope", "name a Python file and a function in it"),
        ("nets.py:Plain", "^Plain is a class: name a function"),
        ("nets.py:Plain.step", "^Plain.step is a method: .* ksflow isolate nets:Plain.step --run 'COMMAND'"),
        pytest.param("nets.py:Net", "^Net is an nn.Module, .* ksflow isolate nets:Net --run", marks=pytest.mark.slow),
        pytest.param("nets.py:NET", "^NET is an nn.Module, .* ksflow isolate nets:Net --run", marks=pytest.mark.slow),
    ],
)
def test_a_function_that_cannot_be_called_is_said(tmp_path: Path, given: str, said: str) -> None:
    (tmp_path / "own.py").write_text(FUNCTION)
    (tmp_path / "nets.py").write_text(NETS if ":Plain" not in given else NETS.partition("import torch")[0])
    (tmp_path / "listed.py").write_text(f"{FUNCTION}\n\nCASES = [(np.ones(7),), {{'y': 1}}]\n")
    with pytest.raises(ConfigError, match=said):
        init(["problem", str(tmp_path / "mine")], [f"from={tmp_path}/{given}"])
    assert not (tmp_path / "mine").exists()
