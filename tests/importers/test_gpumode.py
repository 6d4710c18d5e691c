"""Tasks in GPU MODE's format, of the project's own: what they mean, and that right and wrong kernels are told apart."""

import os
import signal
import subprocess
import sys
import tempfile
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import accepted, rejected, until

from ksflow.config.compose import build, compose
from ksflow.errors import ConfigError
from ksflow.evaluation.judge.client import check_solutions
from ksflow.evaluation.sandbox.runners.cpu import WrongResult
from ksflow.evaluation.sandbox.runners.foreign import bound
from ksflow.formats import assembly, cases, checkout
from ksflow.formats.gpumode import importer
from ksflow.formats.runtime import install
from ksflow.kernels.hardware.target import detect
from ksflow.records import Evaluation, Kernel, Problem, Seed, Verdict
from ksflow.stages.evaluator.local import LocalEvaluator

TASK = "input_t = output_t = object\n"
SCALE = """import torch
from task import input_t, output_t
from utils import same


def generate_input(size: int, seed: int) -> input_t:
    gen = torch.Generator(device="cuda")
    gen.manual_seed(seed)
    one = torch.randn(size, size, device="cuda", generator=gen)
    return one, torch.zeros_like(one)


def ref_kernel(data: input_t) -> output_t:
    one, out = data
    out[...] = one * 3
    return out


def check_implementation(data, output):
    return same(output, ref_kernel(data))
"""
UTILS = """import torch


def same(one, other):
    return "" if torch.allclose(one, other, rtol=1e-4, atol=1e-4) else f"off by {(one - other).abs().max():.3g}"
"""
GOOD = """from task import input_t
from utils import same


def custom_kernel(data):
    one, out = data
    out[...] = one + one + one
    return out
"""
BAD = "def custom_kernel(data):\n    return data[1]\n"
CASES = [{"size": 8, "seed": 1}, {"size": 16, "seed": 2}]


def write(root: Path, reference: str = SCALE, **changes: Any) -> Path:
    """A folder `set/task` with a shared `utils.py` above it."""
    folder = root / "set" / "task"
    folder.mkdir(parents=True)
    (folder / "reference.py").write_text(reference)
    (folder / "task.py").write_text(TASK)
    (folder.parent / "utils.py").write_text(UTILS)
    files = [
        {"name": "submission.py", "source": "@SUBMISSION@"},
        {"name": "task.py", "source": "task.py"},
        {"name": "utils.py", "source": "../utils.py"},
        {"name": "reference.py", "source": "reference.py"},
        {"name": "eval.py", "source": "../eval.py"},
    ]
    task = {"files": files, "lang": "py", "description": "Three times.", "config": {"main": "eval.py"}}
    task |= {"tests": CASES, "benchmarks": [{"size": 32, "seed": 3}, {"size": 64, "seed": 4}], **changes}
    (folder / "task.yml").write_text(yaml.safe_dump(task, sort_keys=False))
    return folder


# -- what a task means ---------------------------------------------------------------------------


@pytest.mark.slow
def test_a_task_as_it_is_read(tmp_path: Path) -> None:
    folder = write(tmp_path, templates={"Python": "submission.py", "CUDA": "template.cu"}, gpus=["H100"], odd=1)
    for kind, text in (("correct", GOOD), ("wrong", BAD)):
        (folder / "solutions" / kind).mkdir(parents=True)
        (folder / "solutions" / kind / f"{kind}.py").write_text(text)
    (tmp_path / "LICENSE").write_text("A licence\n\nand more\n")
    (tmp_path / ".git").mkdir()
    before = sorted(tmp_path.rglob("*"))
    found = importer.load(str(folder))
    assert sorted(tmp_path.rglob("*")) == before
    assert (found.name, found.score) == ("set-task", "last")
    assert [dict(case.params) for case in found.benchmarks] == [{"size": 64}]
    assert [case.seed for case in found.tests] == [1, 2]
    assert [(arg.dtype, arg.role) for arg in found.args] == [("float32", "in"), ("float32", "out")]
    assert set(found.files) == {"task.py", "utils.py"}
    assert found.listing == SCALE
    assert ([seed.name for seed in found.good], [seed.name for seed in found.bad]) == (["correct.py"], ["wrong.py"])
    assert "Only the last of 2 benchmarks counts." in found.statement
    origin = found.origin
    assert origin["licence"] == "A licence"
    assert "ranking_by is not given, which means last" in origin["inferred"]
    assert any("cuda" in line for line in origin["inferred"])
    assert {"unknown key odd"} < set(origin["dropped"])


@pytest.mark.slow
def test_a_cap_can_be_given_on_the_command_line(tmp_path: Path) -> None:
    folder = write(tmp_path, ranking_by="geom", benchmarks=[{"size": 8, "seed": 5}, {"size": 48, "seed": 6}])
    cfg = compose(["problem=gpumode", f"problem.path={folder}", "target=cpu", "problem.cap=16"])
    found: Problem = build(cfg.problem)
    assert [dict(case.params) for case in found.benchmarks] == [{"size": 8}, {"size": 16}]
    assert found.score == "geomean"
    assert found.origin["cap"] == 16


def test_a_leaderboard_is_found_by_its_name(tmp_path: Path) -> None:
    folder = write(tmp_path / "problems")
    listed = {"problems": [{"directory": "set/task", "name": "three-times", "gpus": ["H100"]}]}
    (tmp_path / "problems" / "set.yaml").write_text(yaml.safe_dump(listed))
    assert importer._folder(None, str(tmp_path), "three-times") == folder
    assert importer._folder(None, str(tmp_path), "set/task") == folder
    with pytest.raises(ConfigError, match=r"no leaderboard 'three-time' .*did you mean three-times\?"):
        importer.load(root=str(tmp_path), name="three-time")
    for broken in ("problems: [a", "problems: 5", "problems: [a]"):
        (tmp_path / "problems" / "set.yaml").write_text(broken)
        with pytest.raises(ConfigError, match=r"set\.yaml is not YAML|no leaderboard 'three-times'"):
            importer.load(root=str(tmp_path), name="three-times")


def test_a_licence_may_be_a_folder_and_git_a_file(tmp_path: Path) -> None:
    """As where licences are many, and in a submodule."""
    (tmp_path / "LICENSES").mkdir()
    git = tmp_path / "elsewhere" / "modules" / "x"
    git.mkdir(parents=True)
    (git / "HEAD").write_text("abc123\n")
    (tmp_path / ".git").write_text("gitdir: elsewhere/modules/x\n")
    assert checkout.provenance(tmp_path) == {"commit": "abc123"}


SPYING = f"""import json, os, time
assert "GEMINI_API_KEY" not in os.environ, "sees the key"
open("{{told}}", "w").write(str(os.getpid()))
time.sleep(60)
{SCALE}"""
LOADS = "import sys; from ksflow.formats.gpumode import importer; importer.load(sys.argv[1])"


@pytest.mark.slow
def test_a_tasks_files_see_no_key_and_end_with_the_program(tmp_path: Path) -> None:
    told = tmp_path / "told"
    folder = write(tmp_path, SPYING.format(told=told))
    environment = {**os.environ, "GEMINI_API_KEY": "secret", "KSFLOW_CACHE": str(tmp_path / "cache")}
    with subprocess.Popen([sys.executable, "-c", LOADS, str(folder)], env=environment) as program:
        until(lambda: told.exists() and told.read_text() != "", seconds=30)
        program.kill()
    until(lambda: not Path("/proc", told.read_text()).exists(), seconds=30)  # by itself it ends in 60


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ranking_by": ["last"]}, r"ranking_by \['last'\] is not last"),
        ({"tests": 5}, "tests is not a list of mappings"),
        ({"files": ["reference.py"]}, "files is not a list of mappings"),
        ({"test_timeout": "soon"}, "test_timeout 'soon' is no number of seconds"),
        ({"tests": [{"size": 8, "seed": "abc"}]}, "seed 'abc' is no whole number"),
        ({"ranking_by": "best"}, "ranking_by 'best' is not last, mean or geom"),
        ({"multi_gpu": True}, "several GPUs"),
        ({"files": "none"}, "no list `files`"),
        ({"tests": [], "benchmarks": []}, "neither tests nor benchmarks"),
        ({"tests": [3]}, "tests is not a list of mappings"),
        ({"files": [{"name": "task.py", "source": "task.py"}]}, "none of its files defines generate_input"),
        ({"files": [{"name": "task.py", "source": "lost.py"}]}, "cannot read .*lost.py"),
    ],
)
def test_a_task_that_cannot_be_used_says_why(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    folder = write(tmp_path, **changes)
    with pytest.raises(ConfigError, match=message) as caught:
        importer.load(str(folder / "task.yml"))
    assert "\n" not in str(caught.value)


def test_a_task_that_asks_for_something_else_is_refused_at_once(tmp_path: Path) -> None:
    folder = write(tmp_path, "def generate_inputs(batch, seed):\n    return batch\n")
    with pytest.raises(ConfigError, match=r"defines generate_input .*; a task whose own eval\.py asks for"):
        importer.load(str(folder))


@pytest.mark.slow
def test_where_size_is_not_the_cause_no_other_size_is_offered(tmp_path: Path) -> None:
    module = SCALE.replace("return one, torch.zeros_like(one)", "return torch.nn.Linear(size, size), one")
    with pytest.raises(ConfigError, match=r"Linear is a torch\.nn\.Module; only tensors and plain values") as caught:
        importer.load(str(write(tmp_path, module)))
    assert "cap" not in str(caught.value)
    assert "largest" not in str(caught.value)


def test_what_only_another_machine_can_do_says_which() -> None:
    read = assembly.ParsedProblem("t", "t", "", "gpumode", {}, {}, (), (), "", "", {"format": "gpumode"})
    tried = [[0, "n=1: RuntimeError: shape", "error"], [1, "n=9: ValueError: Invalid scaling configuration.", "error"]]
    said = assembly._why(read, tried, "auto")
    assert "NVFP4 only on GPUs that have it" in said
    assert "shape" not in said
    assert "cap" not in said
    triton = [[0, "n=1: RuntimeError: 0 active drivers ([]). There should only be one.", "error"]]
    assert assembly._why(read, triton, "auto").endswith("it is Triton code: read and judge it on a machine with a GPU")
    slow = [[0, "n=1: the reference runs for 9.0 s, and may for 1", "limit"]]
    assert "problem.cap=N" in assembly._why(read, slow, "auto")
    other = [[0, "n=1: ValueError: no", "error"], [1, "n=2: ValueError: yes", "error"]]
    assert "cap" not in assembly._why(read, other, "auto")
    assert assembly._why(read, other[:1], 16).endswith("another cap, or problem.cap=auto, may do")


def test_words_are_what_the_tasks_own_harness_makes_of_them(tmp_path: Path) -> None:
    cases_of_task = [{"size": 8, "masked": "false", "seed": 1}]
    folder = write(tmp_path, FLAGGED, tests=cases_of_task, benchmarks=cases_of_task)
    task = yaml.safe_load((folder / "task.yml").read_text())
    for text, value in (("", "false"), ("if val == 'true':\n    val = True\n", False)):
        source = importer.TaskSource("t", "t", {}, eval_text=text)
        read = importer.parse(task, {"reference.py": FLAGGED}, source)
        assert [params["masked"] for params, _ in read.tests[:1]] == [value]


def test_what_is_missing_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"problem\.path=FOLDER"):
        importer.load()
    with pytest.raises(ConfigError, match=r"no task\.yml in"):
        importer.load(str(tmp_path))


FLAGGED = """import torch
from task import input_t, output_t


def generate_input(size: int, masked: bool, seed: int):
    gen = torch.Generator("cuda").manual_seed(seed)
    return {"one": torch.randn(size, generator=gen, device="cuda"), "masked": masked}


def ref_kernel(data):
    return data["one"].relu() if data["masked"] else data["one"] * 2


def check_implementation(data, output):
    return bool(torch.equal(output, ref_kernel(data))), "not the same"
"""


def test_booleans_are_words_upstream(tmp_path: Path) -> None:
    values = ["True", "False", True, False]
    tests = [{"size": 8, "masked": True, "seed": 1}, {"size": 8, "masked": False, "seed": 2}]
    folder = write(tmp_path, FLAGGED, tests=tests, benchmarks=tests[:1])
    task = yaml.safe_load((folder / "task.yml").read_text())
    read = importer.parse(task, {"reference.py": FLAGGED}, importer.TaskSource("t", "t", {}))
    assert [params["masked"] for params, _ in read.tests] == values
    assert [params["masked"] for params, _ in read.benchmarks] == values[:1]
    assert any("masked" in line for line in read.origin["inferred"])
    checked = [case for case in cases.build_cases(read.tests, read.benchmarks, None) if case["test"]]
    assert [case["params"]["masked"] for case in checked] == values
    assert len({case["name"] for case in checked}) == len(values)


@pytest.mark.parametrize("cap", ["abc", "1.5", 0, -3, True])
def test_a_cap_is_a_whole_number(cap: Any) -> None:
    with pytest.raises(ConfigError, match=f"problem.cap={cap}; it is auto, null"):
        cases.parse_cap(cap)


def test_cases_of_one_size_are_told_apart_by_their_seeds() -> None:
    """Each counts; those that only a cap makes alike do not."""
    chosen = [({"n": 8}, 1), ({"n": 9}, 1), ({"n": 8}, 1), ({"n": 8}, 5)]
    assert [case["name"] for case in cases.build_cases([], chosen, None)] == ["n=8", "n=9", "n=8 seed=5"]
    assert [case["name"] for case in cases.build_cases([], chosen, 4)] == ["n=4"]


# -- right and wrong kernels, in each style of data ----------------------------------------------


@pytest.fixture
def imports() -> Iterator[None]:
    """ImportedReference files are imported by names that anybody may have."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name in ("task", "utils", "reference"):
            del sys.modules[name]


def said(reference: str, kernel: str, params: dict[str, Any], calls: int = 2) -> str:
    """What the task's check says of a kernel, called as in a box."""
    functions: dict[str, Any] = {}
    files = {"reference.py": reference, "task.py": TASK, "utils.py": UTILS}
    install(functions, "gpumode", files, {"reference": "reference.py", "accumulate": "bfloat16"})
    data = functions["generate_input"](**params, seed=5, device="cpu")
    module = types.ModuleType("kernel")
    exec(kernel, module.__dict__)
    tensors = [tensor.clone() for tensor in data]
    call = bound(module, data.binding, "cpu")(tensors)
    for _ in range(calls):
        for source, place in data.binding["inout"]:  # as the judge does before every call
            tensors[place].copy_(tensors[source])
        call()
    outputs = tuple(tensors[place] for place in data.binding["outputs"])
    return str(functions["property_check"](data, outputs[0] if len(outputs) == 1 else outputs))


DATACLASS = """import dataclasses
import torch
from task import input_t


@dataclasses.dataclass
class Config:
    weight: torch.Tensor
    factor: float
    name: str


def generate_input(size, factor, seed):
    gen = torch.Generator(device="cuda").manual_seed(seed)
    weight = torch.randn(size, size, generator=gen, device="cuda")
    return Config(weight, factor / 2, "w"), torch.randn(size, generator=gen, device="cuda").to("cuda"), 3


def ref_kernel(data):
    config, x, times = data
    return config.weight @ x * config.factor * times, x.abs().sum()


def check_implementation(data, output):
    return all(torch.allclose(a, b) for a, b in zip(output, ref_kernel(data))) or "", "differs"
"""
DICT = """import torch


def generate_input(size, seed):
    gen = torch.Generator(device="cuda").manual_seed(seed)
    return {"x": [torch.randn(size, generator=gen, device="cuda") for _ in range(3)], "half": 0.5}


def ref_kernel(data):
    return {"sum": sum(data["x"]) * data["half"]}


def check_implementation(data, output):
    return "" if torch.allclose(output["sum"], ref_kernel(data)["sum"]) else "sums differ"
"""
IN_PLACE = """import torch


def generate_input(size, seed):
    torch.manual_seed(seed)
    return torch.randn(size).cuda(), torch.ones(size, device="cuda")


def ref_kernel(data):
    x, total = data
    total += x
    torch.cuda.synchronize()


def check_implementation(data, output):
    expected = data[1].clone() + data[0]
    return torch.equal(output, expected)
"""
NAMED = """import torch


def generate_input(size, seed):
    gen = torch.Generator(device="cuda").manual_seed(seed)
    return torch.randn(size, size, generator=gen, device=torch.device("cuda:0"))


def ref_kernel(data):
    return torch.max(data, dim=1)


def check_implementation(data, output):
    if not isinstance(output, tuple):
        return "no tuple"
    return "" if all(torch.equal(a, b) for a, b in zip(output, ref_kernel(data))) else "differs"
"""
NUMBER = """import torch


def generate_input(size, seed):
    return torch.rand(size, generator=torch.Generator("cuda").manual_seed(seed), device="cuda")


def ref_kernel(data):
    return data.sum()


def check_implementation(data, output):
    return torch.isclose(output, ref_kernel(data), rtol=1e-4).item()
"""
SPARE = """import torch


def generate_input(size, seed):
    one = torch.randn(size, generator=torch.Generator("cuda").manual_seed(seed), device="cuda")
    return one, torch.empty(size, device="cuda"), torch.zeros(size, device="cuda")


def ref_kernel(data):
    one, _, shift = data
    return one * 2 + shift


def check_implementation(data, output):
    return torch.equal(output, ref_kernel(data))
"""
K = "import torch\ndef custom_kernel(data):\n    "
STYLES = {
    "tuple": (SCALE, K + "return data[0] * 3", K + "return data[0] * 2", {"size": 8}),
    "preallocated": (SCALE, K + "data[1].copy_(data[0] * 3)\n    return data[1]", K + "return data[1]", {"size": 8}),
    "dataclass": (
        DATACLASS,
        K + "c, x, n = data\n    return c.weight @ x * (c.factor * n), x.abs().sum()",
        K + "c, x, n = data\n    return c.weight @ x * c.factor, x.abs().sum()",
        {"size": 8, "factor": 3},
    ),
    "dict": (DICT, K + "return {'sum': sum(data['x']) / 2}", K + "return {'sum': sum(data['x'])}", {"size": 8}),
    "in place": (IN_PLACE, K + "data[1].add_(data[0])", K + "data[1].copy_(data[0])", {"size": 8}),
    "torch's tuple": (
        NAMED,
        K + "return torch.max(data, 1)",
        K + "v, i = data.max(1)\n    return v, i * 0",
        {"size": 8},
    ),
    "spare": (
        SPARE,
        K + "data[1][...] = data[0] * 2 + data[2]\n    return data[1]",
        K + "return data[1] * 2",
        {"size": 8},
    ),
    "spare, not used": (SPARE, K + "return data[0] * 2 + data[2]", K + "return data[1]", {"size": 8}),
    "number": (NUMBER, K + "return float(data.double().sum())", K + "return data.sum() + 1", {"size": 8}),
    "words": (
        FLAGGED,
        K + "return data['one'].relu() if data['masked'] else data['one'] * 2",
        K + "return data['one'] * 2",
        {"size": 8, "masked": "False"},
    ),
}


@pytest.mark.usefixtures("imports")
@pytest.mark.parametrize("style", STYLES)
def test_right_passes_and_wrong_does_not(style: str) -> None:
    reference, right, wrong, params = STYLES[style]
    assert said(reference, right, params) == ""
    assert said(reference, wrong, params) != ""


@pytest.mark.usefixtures("imports")
def test_the_same_everywhere_is_never_an_answer() -> None:
    """A check with a tolerance wider than the answer would take zeros."""
    careless = SCALE.replace("return same(output, ref_kernel(data))", 'return ""')
    assert "the same everywhere" in said(careless, K + "return torch.zeros_like(data[0])", {"size": 8})


HALF = """import torch


def generate_input(size, seed):
    gen = torch.Generator(device="cuda").manual_seed(seed)
    return torch.randn(size, generator=gen, device="cuda").bfloat16(), torch.zeros(size, dtype=OUT, device="cuda")


def ref_kernel(data):
    one, out = data
    RESULT


def check_implementation(data, output):
    return "" if torch.allclose(output.float(), ref_kernel(data).float(), 1e-2, 1e-2) else "off"
"""


@pytest.mark.usefixtures("imports")
@pytest.mark.parametrize(
    ("out", "result", "kernel", "refused"),
    [
        ("torch.bfloat16", "return one * 3", "return data[0].float() * 3", True),
        ("torch.bfloat16", "out[...] = one * 3; return out", "return data[0].float() * 3", True),
        ("torch.bfloat16", "return one * 3", "return (data[0].float() * 3).bfloat16()", False),
        (
            "torch.bfloat16",
            "out[...] = one * 3; return out",
            "data[1].copy_(data[0].float() * 3); return data[1]",
            False,
        ),
        ("torch.bfloat16", "return one.float() * 3", "return data[0].float() * 3", False),
        ("torch.bfloat16", "return one.float() * 3", "data[1].copy_(data[0] * 3); return data[1]", False),
        ("torch.bfloat16", "return one.float() * 3", "return data[0].double() * 3", True),
        ("torch.float32", "return one.sum().item()", "return data[0].float().sum().item()", False),
    ],
)
def test_an_answer_of_another_type_is_refused(out: str, result: str, kernel: str, refused: bool) -> None:
    """Of the type that the output was made with, or of the one that the reference returns."""
    reference = HALF.replace("OUT", out).replace("RESULT", result)
    reference = reference.replace(
        "output.float(), ref_kernel(data).float()", "number(output), number(ref_kernel(data))"
    )
    reference += "\n\ndef number(value):\n    return torch.as_tensor(value).float()\n"
    if refused:
        with pytest.raises(WrongResult, match=r"the kernel returned torch\.float\d\d, expected torch\.bfloat16"):
            said(reference, K + kernel, {"size": 64})
    else:
        assert said(reference, K + kernel, {"size": 64}) == ""


LOOSE = """import torch


def generate_input(size, seed):
    gen = torch.Generator(device="cuda").manual_seed(seed)
    return tuple(torch.rand(size, size, generator=gen, device="cuda").bfloat16() for _ in range(2))


def ref_kernel(data):
    return data[0] @ data[1]


def check_implementation(data, output):
    return "" if torch.allclose(output, ref_kernel(data), rtol=RTOL, atol=1e-3) else "off"
"""


@pytest.mark.slow
@pytest.mark.parametrize("killed", [False, True])
def test_a_judge_leaves_no_folder_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: bool) -> None:
    place = tmp_path / "temporary"
    place.mkdir()
    place.chmod(0o1777)
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setattr(tempfile, "tempdir", None)
    problem = importer.load(str(write(tmp_path)))
    evaluator = LocalEvaluator(detect())
    assert evaluator(problem, Kernel("python", {"submission.py": GOOD}), ()).accepted
    assert list(place.glob("ksflow-foreign-*"))
    if killed:
        os.kill(evaluator._slots[0].judge.pid, signal.SIGKILL)
    evaluator.close()
    until(lambda: not list(place.iterdir()))  # the boxes' own supervisors remove their folders


@pytest.mark.slow
def test_a_loose_check_is_named_with_the_case(tmp_path: Path, evaluator: LocalEvaluator) -> None:
    cases: dict[str, Any] = {"tests": [{"size": 32, "seed": 1}], "benchmarks": [{"size": 256, "seed": 3}]}
    folder = write(tmp_path, LOOSE.replace("RTOL", "0.2"), **cases)
    found = {name: detail for name, ok, detail in evaluator.admit(importer.load(str(folder))) if not ok}
    words = "accepted on case size=256: a kernel that computes a matrix of rank 1 in place of the output would win"
    assert found["rejects a matrix of low rank"].startswith(f"{words}; the format's own tolerance"), found


@pytest.mark.slow
def test_a_module_among_the_arguments_is_refused(tmp_path: Path) -> None:
    stateful = SCALE.replace("return one, torch.zeros_like(one)", "return one, torch.nn.ReLU()")
    with pytest.raises(ConfigError, match=r"ReLU is a torch\.nn\.Module; only tensors"):
        importer.load(str(write(tmp_path, stateful, tests=[{"size": 8, "seed": 1}])), cap=8)


# -- solutions that came with it -----------------------------------------------------------------


def test_what_cannot_run_here_is_skipped_aloud() -> None:
    texts = {
        "triton.py": "import triton\n",
        "inline.py": "from torch.utils.cpp_extension import load_inline\nm = load_inline(name='m', cuda_sources=s)\n",
    }
    seeds = tuple(
        Seed(name, Kernel("triton" if "triton" in name else "python", {name: t})) for name, t in texts.items()
    )
    problem = Problem("p", "p", "", "", "", "", ("python",), (), (), (), (), (), good=seeds)

    def judge(_: Kernel) -> Any:
        raise AssertionError("it was judged")

    rows = check_solutions(problem, judge, gpu=False)
    assert [(ok, detail) for _, ok, detail in rows] == [(True, "skipped: needs a GPU")] * 2


def test_solutions_that_are_judged_wrong_fail_the_check() -> None:
    good, bad = (Seed(name, Kernel("python", {name: "x = 1\n"})) for name in ("good.py", "bad.py"))
    origin = {"cap": 32}
    problem = Problem(
        "p", "p", "", "", "", "", ("python",), (), (), (), (), (), good=(good,), bad=(bad,), origin=origin
    )
    rows = check_solutions(problem, lambda _: accepted(5.0), gpu=False)
    assert [ok for _, ok, _ in rows] == [True, False]
    assert "accepted, in 5.0 µs; sizes are cut to 32" in rows[1][2]
    assert [ok for _, ok, _ in check_solutions(problem, lambda _: rejected(), gpu=False)] == [False, True]
    broken = Evaluation(Verdict.HARNESS, "the judge died")
    assert [ok for _, ok, _ in check_solutions(problem, lambda _: broken, gpu=False)] == [False, False]


@pytest.mark.slow
@pytest.mark.parametrize("style", ["dataclass", "dict", "number"])
def test_each_style_holds_in_the_judge(tmp_path: Path, style: str, evaluator: LocalEvaluator) -> None:
    reference, right, wrong, params = STYLES[style]
    cases = [{**params, "seed": seed} for seed in (1, 2)]
    folder = write(tmp_path, reference, tests=cases, benchmarks=[{**params, "size": 96, "seed": 3}])
    for kind, text in (("correct", right), ("wrong", wrong)):
        (folder / "solutions" / kind).mkdir(parents=True)
        (folder / "solutions" / kind / "one.py").write_text(text)
    rows = list(evaluator.admit(importer.load(str(folder))))
    assert [(name, detail) for name, ok, detail in rows if not ok] == []
    said = {name: detail for name, _, detail in rows}
    assert said["good one.py"].endswith("µs")
    assert said["bad one.py"].startswith("reject-incorrect")
