"""Files in TritonBench's format, of the project's own: every call of the tests is a case, with contents of its own."""

from pathlib import Path
from typing import Any

import pytest
import torch

from ksflow.errors import ConfigError
from ksflow.evaluation.sandbox.runners.device_mapping import cuda_means
from ksflow.evaluation.sandbox.runners.foreign import bound
from ksflow.formats.runtime import ImportedReference, SourceFiles
from ksflow.formats.tritonbench.calls import classify_calls
from ksflow.formats.tritonbench.importer import load
from ksflow.formats.tritonbench.runtime import TritonBench
from ksflow.kernels.hardware.target import detect
from ksflow.records import Kernel, Verdict
from ksflow.stages.evaluator.local import LocalEvaluator

UPPER = '''import torch

def scaled(x, by=2.0, *, shift=0.0, noisy=False):
    """x times a number, and shifted."""
    found = x * by + shift
    return found + torch.randn_like(found) if noisy else found
'''
LOWER = """
import torch

def test_scaled():
    results = {}
    results["one"] = scaled(torch.randn(4, 4, device="cuda"))
    results["two"] = scaled(torch.tensor([[-1.0, 0.0], [0.0, 3.0]], device="cuda"), shift=1.0)
    results["three"] = scaled(torch.ones(3, device="cuda"), noisy=True)
    return results

test_results = test_scaled()
"""
LINE = "#" * 146


def written(folder: Path, upper: str = UPPER, lower: str = LOWER) -> Path:
    (folder / "scaled.py").write_text(f"{upper}\n{LINE}\n\n{lower}")
    return folder / "scaled.py"


@pytest.fixture
def task() -> TritonBench:
    files = SourceFiles({"golden.py": UPPER, "tests_of_task.txt": LOWER, "name.txt": "scaled"})
    return TritonBench(files, {"functions": ["scaled"], "rtol": 1e-3, "atol": 1e-3})


def test_calls_are_cases_with_contents_of_each_seed(task: TritonBench) -> None:
    foreign = ImportedReference(task)
    with cuda_means("cpu"):
        assert len(task.record_calls()) == 3
    one, other = (foreign.generate_input(call=0, seed=seed)[0] for seed in (1, 2))
    assert not torch.equal(one, other)
    written_out, changed = (foreign.generate_input(call=1, seed=seed)[0] for seed in (1, 2))
    assert not torch.equal(written_out, changed)
    assert torch.equal(changed.sign(), torch.tensor([[-1.0, 0.0], [0.0, 1.0]]))
    assert torch.equal(changed, changed.T)


def test_a_candidate_is_called_as_the_tests_call_it(task: TritonBench) -> None:
    data = ImportedReference(task).generate_input(call=1, seed=5)
    module: Any = type("Module", (), {"scaled": staticmethod(lambda x, by=2, *, shift: x * by + shift)})
    tensors = [tensor.clone() for tensor in data]
    bound(module, dict(data.binding), "cpu")(tensors)()
    assert torch.equal(tensors[-1], data[0] * 2 + 1)


WHOLE = """import torch

def picked(x, masks=None, out=None):
    if masks is not None:
        x = x & masks
    return x * 2 if out is None else (out.copy_(x), x * 2)
"""
WHOLE_CALLS = """
ones = torch.ones(3, dtype=torch.int64)
picked(torch.tensor([7, 1, 4, 2, 9, 5], device="cuda"))
picked(torch.tensor([6, 6, 1, 3, 300, 20, 8, 1]), torch.tensor([255, 255, 15, 7, 255, 255, 15, 1]))
picked(ones)
picked(torch.zeros(4, 4))
picked(torch.randn(4, 4), out=torch.zeros(4, 4))
picked(torch.randn(4, 4).to(torch.complex64))
"""


def order(upper: str, lower: str, function: str, **more: Any) -> dict[str, Any]:
    spec = {"functions": [function], "rtol": 1e-3, "atol": 1e-3, "accumulate": "bfloat16"}
    files = {"golden.py": upper, "tests_of_task.txt": lower, "name.txt": function}
    return {"files": files, "spec": spec, "device": "cpu", "generate_s": 5.0, "run_s": 5.0, **more}


def test_whole_numbers_vary_within_their_range_where_nothing_else_does() -> None:
    made = order(WHOLE, WHOLE_CALLS, "picked")
    foreign = ImportedReference(TritonBench(SourceFiles(made["files"]), made["spec"]))
    first = [foreign.generate_input(call=0, seed=seed)[0].tolist() for seed in (1, 2)]
    assert first[0] != first[1]
    assert sorted(first[0]) == sorted(first[1]) == [1, 2, 4, 5, 7, 9]
    often = [foreign.generate_input(call=1, seed=seed)[0] for seed in (1, 2)]
    assert not torch.equal(*often)
    assert all(1 <= int(value) <= 300 for value in torch.cat(often))
    again = foreign.generate_input(call=1, seed=1)[0]
    assert torch.equal(again, often[0])


def test_calls_that_the_judge_cannot_use_are_left_out_with_the_reason() -> None:
    rows = classify_calls(order(WHOLE, WHOLE_CALLS, "picked"))
    assert [row["why"] for row in rows[:2]] == ["", ""]
    for row in rows[2:4]:
        assert row["why"].startswith("generate_input returns the same contents for seeds 0 and 1")
    assert rows[4]["why"] == "it has 2 outputs, where most calls have 1"
    assert rows[5]["why"] == "complex numbers"


def test_only_calls_with_a_module_among_their_arguments_are_left_out() -> None:
    upper = "def through(x, f):\n    return f(x) * 2 if f else x * 2\n"
    calls = "import torch\nthrough(torch.randn(9), None)\nthrough(torch.randn(9), torch.nn.ReLU())\n"
    rows = classify_calls(order(upper, calls, "through"))
    assert [row["why"] for row in rows] == ["", "an argument is code"]


def test_a_call_that_takes_too_long_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    monkeypatch.setattr("time.sleep", lambda seconds: now.append(now.pop() + seconds))
    slow = "import time\n\ndef slow(x, s):\n    time.sleep(s)\n    return x * 2\n"
    calls = "import torch\nslow(torch.randn(9), 0.0)\nslow(torch.randn(9), 400.0)\nslow(torch.randn(9), 0.0)\n"
    rows = classify_calls(order(slow, calls, "slow", run_s=50.0, generate_s=300.0))
    assert [row["why"] for row in rows] == ["", "it takes 400.0 s here", "the calls before it take 400.0 s here"]


@pytest.mark.parametrize(
    ("upper", "lower", "said"),
    [
        (UPPER + LINE + "\n", LOWER, "2 lines of 146"),
        (UPPER, "x = 3\n", "its tests call no function that it defines"),
        ("def", LOWER, "is not Python"),
    ],
)
def test_mistakes_are_answered_in_one_line(tmp_path: Path, upper: str, lower: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        load(path=str(written(tmp_path, upper, lower)))
    assert "\n" not in str(caught.value)


def test_a_mistyped_name_is_answered_with_one_that_is_there(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "TritonBench_T_v1"
    folder.mkdir(parents=True)
    written(folder)
    with pytest.raises(ConfigError, match=r"did you mean scaled\.py"):
        load(root=str(tmp_path), file="scaled_")
    with pytest.raises(ConfigError, match="channel=X"):
        load(root=str(tmp_path), file="scaled", channel="X")


@pytest.mark.slow
def test_a_file_is_judged_on_the_calls_of_its_tests(tmp_path: Path, evaluator: LocalEvaluator) -> None:
    problem = load(path=str(written(tmp_path)), target=detect())
    assert [case.name for case in problem.benchmarks] == ["call=0", "call=1"]
    assert problem.origin["dropped"] == ["call 2 of scaled: its answer is drawn at random"]
    assert problem.statement == "x times a number, and shifted."
    found = evaluator(problem, problem.seeds[0].kernel, ())
    assert found.accepted, found.reason
    wrong = Kernel("python", {"scaled.py": UPPER.replace("+ shift", "")})
    assert evaluator(problem, wrong, ()).verdict is Verdict.INCORRECT


@pytest.mark.slow
def test_tests_that_do_not_run_are_explained(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="its tests do not run here: ModuleNotFoundError"):
        load(path=str(written(tmp_path, "import no_such_module\n" + UPPER)))


TRITON = """import torch
import triton
import triton.language as tl

@triton.jit
def _doubled(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)

def doubled(x):
    out = torch.empty_like(x)
    _doubled[(triton.cdiv(x.numel(), 16),)](x, out, x.numel(), BLOCK=16)
    return out
"""


@pytest.mark.slow
def test_triton_code_answers_by_its_interpreter_on_a_cpu(tmp_path: Path, evaluator: LocalEvaluator) -> None:
    pytest.importorskip("triton")
    file = written(tmp_path, TRITON, 'doubled(torch.randn(40, device="cuda"))\n')
    problem = load(path=str(file), target=detect())
    assert [case.name for case in problem.benchmarks] == ["call=0"]
    assert not problem.seeds
    rows = {name: (ok, detail) for name, ok, detail in evaluator.admit(problem)}
    assert all(ok for ok, _ in rows.values()), rows
    assert rows["good scaled.py"] == (True, "skipped: needs a GPU")
    right = Kernel("python", {"doubled.py": "def doubled(x):\n    return x + x\n"})
    assert evaluator(problem, right, ()).accepted


@pytest.mark.slow
def test_triton_code_that_its_interpreter_does_not_run_needs_a_gpu(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    upper = TRITON.replace("    out = torch", "    triton.runtime.driver.active.get_current_device()\n    out = torch")
    with pytest.raises(ConfigError, match="use a machine with a GPU") as caught:
        load(path=str(written(tmp_path, upper, "doubled(torch.randn(40))\n")))
    assert "\n" not in str(caught.value)
