"""The winner as the file that its problem's ecosystem takes: written, and asked by the judge."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import toy_driver

from ksflow.integrate.handover import hand_over, table
from ksflow.integrate.handover.loader import Facts, loader
from ksflow.integrate.handover.package import write_best
from ksflow.integrate.handover.winner import mark_modules
from ksflow.kernels.hardware.target import detect
from ksflow.records import Arg, Case, Evaluation, Json, Kernel, Origin, Problem, Target, Timing, Trial, Verdict
from ksflow.search.dispatch import effective
from ksflow.stages.evaluator.local import LocalEvaluator

REFERENCE = """import torch

def generate_input(n, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 2 * n, generator=generator), torch.zeros(2 * n, n)

def ref_kernel(data):
    return data[0].T * 3

def oracle(data):
    exact = data[0].double().T * 3
    return {"expected": exact, "magnitude": exact.abs(), "terms": 1}
"""
WORTHY = "the judge finds that it answers as the reference does"
CPP = """#include <cstdint>
// launch: none, it runs on the host
extern "C" void custom_kernel(const float *x, float *y, int64_t n, const int64_t *strides) {
  for (int64_t i = 0; i < n; i++) for (int64_t j = 0; j < 2 * n; j++) y[j * n + i] = FACTOR * x[i * 2 * n + j];
}
"""
H200 = Target("h200", "gpu", "NVIDIA H200", march="sm_90a")
MI300X = Target("mi300x", "gpu", "AMD Instinct MI300X", march="gfx942")
CUDA = """constexpr int BLOCK = 8;  // tune: 8 16
// workspace: half float32 2 * n * n
// dispatch: if n > 4: BLOCK=16
// launch: turn [cdiv(2 * n * n, BLOCK)] [BLOCK] shared 40000 * n (x, half, n, -1)
// launch: triple [2 * n, n] [1] (half, y, n, BLOCK)
extern "C" __global__ void turn(const float *x, float *half, int n, long long sign) {
  int i = blockIdx.x * BLOCK + threadIdx.x, wide = 2 * n;
  if (i < n * wide) half[i % wide * n + i / wide] = sign * x[i];
}
__global__ void triple(const float *half, float *y, int n, int block) {
  int i = blockIdx.x * n + blockIdx.y;
  y[i] = -3 * half[i] * (block == BLOCK);
}
"""
HOST_CUDA = """#include <cstdint>
__global__ void turn(const float *x, float *y, int64_t n) {
  int64_t i = blockIdx.x;
  if (i < 2 * n * n) y[i % (2 * n) * n + i / (2 * n)] = 3 * x[i];
}
extern "C" void custom_kernel(const float *x, float *y, int64_t n, const int64_t *, void *stream) {
  turn<<<2 * n * n, 1, 0, (cudaStream_t)stream>>>(x, y, n);
}
"""
TRITON = """import triton
import triton.language as tl
WIDE = 4  # tune: 4 16
# workspace: half float32 2 * n * n
# dispatch: if n > 4: WIDE=16
# launch: turn [n] warps 4 stages 1 (x, half, n, WIDE=4 * WIDE)
# launch: triple [2 * n] warps 1 stages 1 (half, y, n, WIDE=WIDE)


@triton.jit
def turn(x, half, n, WIDE: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, WIDE)
    tl.store(half + at * n + row, tl.load(x + row * 2 * n + at, mask=at < 2 * n), mask=at < 2 * n)


@triton.jit
def triple(half, y, n, WIDE: tl.constexpr):
    at = tl.program_id(0) * n + tl.arange(0, WIDE)
    tl.store(y + at, 3 * tl.load(half + at, mask=tl.arange(0, WIDE) < n), mask=tl.arange(0, WIDE) < n)
"""
LOADED = """
import importlib.util
import torch

spec = importlib.util.spec_from_file_location("handed", {file!r})
made = importlib.util.module_from_spec(spec)
spec.loader.exec_module(made)

def right(n):
    x = torch.randn(n, 2 * n)
    return torch.equal(made.custom_kernel((x, torch.zeros(2 * n, n))), x.T * 3)

"""
DEFINITION = """from ksflow.formats.runtime import install

FILES = {"definition_reference.py": "def run(x):\\n    return x.T * 3\\n"}
AXES = {"n": {"type": "var"}, "m": {"type": "const", "value": 4}}
DEFINED = {"axes": AXES, "inputs": {"x": {"shape": ["n", "m"], "dtype": "float32"}},
           "outputs": {"y": {"shape": ["m", "n"], "dtype": "float32"}}}
SPEC = {"definition": DEFINED, "inputs": {}, "root": "", "rtol": 0.01, "atol": 0.01, "ratio": 1.0,
        "accumulate": "bfloat16"}
install(globals(), "flashinfer", FILES, SPEC)
"""


def given(folder: Path, reference: str = REFERENCE, **origin: Any) -> Problem:
    (folder / "reference.py").write_text(reference)
    case = Case("n=3", {"n": 3}, 1)
    args = (Arg("x", "float32", "in"), Arg("y", "float32", "out"))
    return Problem("turn", "Turn", "", "", str(folder), reference, ("python", "cpp"), args, ("n",), (case,),
                   (case, Case("n=5", {"n": 5}, 2)), (), origin=origin)  # fmt: skip


def won(*files: str, language: str = "python", us: float = 2.0) -> Trial:
    names = {
        "python": "kernel.py",
        "cpp": "kernel.cpp",
        "cuda": "kernel.cu",
        "hip": "kernel.hip",
        "triton": "kernel.py",
    }
    texts = {names[language]: files[0], **{f"beside{index}.py": text for index, text in enumerate(files[1:])}}
    timings = (Timing("n=3", us), Timing("n=5", us))
    evaluation = Evaluation(Verdict.ACCEPT, "", us, timings)
    return Trial("00007", Origin.SEED, kernel=Kernel(language, texts), evaluation=evaluation)


@pytest.fixture
def judge(evaluator: LocalEvaluator) -> LocalEvaluator:
    return evaluator


def module(file: Path) -> Any:
    spec = importlib.util.spec_from_file_location("handed", file)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.mark.slow
def test_a_submission_has_its_header_and_is_looked_through(judge: LocalEvaluator, tmp_path: Path) -> None:
    first = "from __future__ import (\n    annotations,\n)\nfrom beside0 import by\n\n"
    body = f"{first}def custom_kernel(data):\n    return data[0].T * by  # no Stream\n"
    problem = given(tmp_path, format="gpumode", leaderboard="turn_v2")
    found = hand_over(tmp_path / "out", problem, detect(), won(body, "by = 3\n"), judge)
    assert [file.name for file in found.files] == ["submission.py"]
    text = found.files[0].read_text()
    assert text.startswith("#!POPCORN leaderboard turn_v2\n# turn: kernel 00007")
    assert found.said[0] == f"submission.py: {WORTHY}"
    line = next(number for number, one in enumerate(text.splitlines(), 1) if "Stream" in one)
    assert found.said[1].startswith(f"warning: the word `stream` (lines {line})")


@pytest.mark.slow
def test_a_wrong_answer_and_one_that_does_not_load_are_told(judge: LocalEvaluator, tmp_path: Path) -> None:
    problem = given(tmp_path)
    wrong = hand_over(
        tmp_path / "wrong", problem, detect(), won("def custom_kernel(data):\n    return data[1]\n"), judge
    )
    assert wrong.said[0].startswith("module.py does not do what the kernel did: reject-incorrect: ")
    lost = hand_over(tmp_path / "lost", problem, detect(), won("import no_such_module\n"), judge)
    assert "No module named 'no_such_module'" in lost.said[0]


@pytest.mark.slow
def test_cpp_is_a_module_that_compiles_itself(judge: LocalEvaluator, tmp_path: Path) -> None:
    found = hand_over(
        tmp_path / "out", given(tmp_path), detect(), won(CPP.replace("FACTOR", "3"), language="cpp"), judge
    )
    assert found.said == (f"module.py: {WORTHY}",)
    made, x = module(found.files[0]), torch.randn(5, 10)
    assert torch.equal(made.custom_kernel((x, torch.zeros(10, 5))), x.T * 3)
    with pytest.raises(ValueError, match="no case with tensors of"):
        made.custom_kernel((torch.zeros(4, 8), torch.zeros(8, 4)))


ALIGNED = CPP.replace("{\n", "{\n  if ((uintptr_t)x % 64 || (uintptr_t)y % 64) __builtin_trap();\n", 1).replace(
    "FACTOR", "3"
)
"""As with aligned vector loads, which end the process elsewhere."""
VIEWS = """
def view(rows, columns, offset):
    return torch.randn(rows * columns + offset)[offset:].view(rows, columns)

for offset in (0, 1, 4):
    x, y = view(3, 6, offset), view(6, 3, offset)
    out = made.custom_kernel((x, y))
    assert out is y or out.data_ptr() == y.data_ptr()
    print(torch.equal(y, x.T * 3), end=" ")
for wrong in ((x.double(), y), (x.to("meta"), y.to("meta")), (x, y.to("meta"))):
    try:
        made.custom_kernel(wrong)
    except ValueError as error:
        print(str(error).partition(" of ")[0].partition(" with ")[0])
"""


@pytest.mark.slow
def test_a_tensor_that_lies_otherwise_than_where_the_kernel_was_judged_ends_no_process(tmp_path: Path) -> None:
    problem, trial = given(tmp_path), won(ALIGNED, language="cpp")
    found = hand_over(tmp_path / "out", problem, detect(), trial)
    once = "the kernel takes tensors\n"
    assert ran(found.files[0], VIEWS, dict(os.environ)) == "True True True no case\n" + 2 * once
    named = (replace(problem.args[0], shape="n, m"), problem.args[1])
    problem = replace(problem, args=(replace(named[0], layout="row-major, strides (m, 1)"), named[1]))
    best = write_best(tmp_path / "best", problem, detect(), trial, "")
    gaps = "wide = torch.randn(3, 9)\nx, y = wide[:, 1:7], torch.zeros(6, 3)\n"
    gaps += "print(torch.equal(made.custom_kernel((x, y)), x.T * 3))\nx = torch.randn(6, 3).T\n"
    gaps += "print(torch.equal(made.custom_kernel((x, y)), x.T * 3))\n"
    said = ran(best, VIEWS + gaps, dict(os.environ))
    assert said == "True True True " + 3 * once + "True\nTrue\n"


@pytest.mark.slow
def test_a_call_takes_the_configuration_of_the_nearest_sizes(tmp_path: Path) -> None:
    """Each configuration multiplies by another factor. Rows of this device count, or else those of the first."""
    cpp = CPP.replace("FACTOR", "F").replace("// launch", "constexpr int F = 3;  // tune: 3 4 5\n// launch")
    problem, trial = given(tmp_path), won(cpp, language="cpp")
    problem = replace(problem, args=(replace(problem.args[0], shape="n, m"), problem.args[1]))

    def tuned(n: int, factor: str, device: str = detect().chip) -> Json:
        return table.row(Case(f"n={n}", {"n": n}, 1), device, {"F": factor}, 1.0, "")

    rows = table.update(tmp_path, problem, detect(), trial, [tuned(9, "5", "another"), tuned(100, "4")])
    assert [row["values"]["F"] for row in rows] == ["3", "3", "5", "4"]
    assert table.update(tmp_path, problem, detect(), trial, [tuned(100, "4")]) == rows
    best = write_best(tmp_path / "best", problem, detect(), trial, "", tuned=rows)
    factors = "print(*(round(float((made.custom_kernel((torch.ones(n, 2 * n), torch.zeros(2 * n, n)))).mean())) "
    sizes = "for n in (1, 9, 16, 30, 400)))\n"
    assert ran(best, factors + sizes, dict(os.environ)) == "3 3 3 4 4\n"
    other = best.read_text().replace(repr(detect().chip), "'a third'").replace("'another'", repr(detect().chip))
    (tmp_path / "other.py").write_text(other)
    assert ran(tmp_path / "other.py", factors + sizes, dict(os.environ)) == "5 5 5 5 5\n"
    done = hand_over(tmp_path / "out", problem, detect(), trial, tuned=rows)
    assert ran(done.files[0], factors + "for n in (3, 5, 100)))\n", dict(os.environ)) == "3 3 4\n"
    assert table.update(tmp_path, problem, detect(), won(CPP, language="cpp")) == []
    assert not (tmp_path / "table.json").exists()


def test_device_code_gets_a_dispatch_line_for_each_tuned_shape(tmp_path: Path) -> None:
    problem, trial = given(tmp_path), won(CUDA, language="cuda")
    own = [table.row(case, "NVIDIA H200", effective(CUDA, case.params), 2.0, "") for case in problem.benchmarks]
    new = [table.row(Case(f"n={n}", {"n": n}, 7), "NVIDIA H200", {"BLOCK": "8"}, 1.0, "") for n in (4, 6)]
    elsewhere = table.row(Case("n=7", {"n": 7}, 7), "NVIDIA H100", {"BLOCK": "8"}, 1.0, "")
    more, made = table.extended(problem, trial, [*own, *new, elsewhere], "NVIDIA H200")
    assert [case.name for case in more.benchmarks] == ["n=3", "n=5", "n=4", "n=6"]
    text = made.kernel.main
    assert [line for line in text.splitlines() if "dispatch" in line] == [
        "// dispatch: if n == 6: BLOCK=8",
        "// dispatch: if n > 4: BLOCK=16",
    ]
    assert [effective(text, {"n": n})["BLOCK"] for n in (3, 5, 6)] == ["8", "16", "8"]
    assert table.extended(problem, trial, [*own, *new], "NVIDIA H200 of a data sheet") == (more, made)
    assert table.extended(problem, trial, [], "NVIDIA H200") == (problem, trial)


@pytest.mark.slow
def test_one_tensor_is_called_as_it_is(judge: LocalEvaluator, tmp_path: Path) -> None:
    text = """from ksflow.formats.runtime import install

FILES = {"r.py": "import torch\\ndef generate_input(n):\\n    return torch.randn(n, 2 * n)\\n"
                 "def ref_kernel(x):\\n    return (x.T * 3).contiguous()\\n"}
SPEC = {"reference": "r.py", "rtol": None, "atol": None, "accumulate": "bfloat16"}
install(globals(), "kernel", FILES, SPEC)
"""
    problem = given(tmp_path, text, format="kernel")
    found = hand_over(tmp_path / "out", problem, detect(), won(CPP.replace("FACTOR", "3"), language="cpp"), judge)
    assert found.said == (f"module.py: {WORTHY}",)
    x = torch.randn(3, 6)
    assert torch.equal(module(found.files[0]).custom_kernel(x), x.T * 3)


@pytest.mark.slow
def test_a_solution(judge: LocalEvaluator, tmp_path: Path) -> None:
    works: list[Json] = [{"uuid": f"u{n}", "axes": {"n": n}, "inputs": {"x": {"type": "random"}}} for n in (3, 5)]
    problem = given(tmp_path, DEFINITION, format="flashinfer", definition="turn", workloads=works)
    trial = won("def run(x):\n    return (x * 3).T\n")
    found = hand_over(tmp_path / "out", problem, detect(), trial, judge)
    assert [file.name for file in found.files] == ["solution.json"], found.said
    solution = json.loads(found.files[0].read_text())
    assert (solution["definition"], solution["spec"]["entry_point"]) == ("turn", "run.py::run")
    assert "return (x * 3).T" in solution["sources"][0]["content"]


def test_solutions_of_two_definitions_have_names_and_modules_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a data set and a process that hold both need it."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    made = []
    for number, name in enumerate(("turn", "twist")):
        works: list[Json] = [{"uuid": "u3", "axes": {"n": 3}, "inputs": {"x": {"type": "random"}}}]
        problem = given(tmp_path, DEFINITION, format="flashinfer", definition=name, workloads=works)
        text = (
            "import beside0, os\nfrom beside0 import by as times\n\n\ndef run(x):\n    import beside0\n\n"
            "    return beside0.by, times, os.sep\n"
        )
        (file,) = hand_over(tmp_path / name, problem, H200, won(text, f"by = {number}\n")).files
        made.append(json.loads(file.read_text()))
    assert made[0]["name"] != made[1]["name"]
    found = []
    for number, solution in enumerate(made):
        (tmp_path / f"run{number}.py").write_text(solution["sources"][0]["content"])
        found.append(module(tmp_path / f"run{number}.py"))
    assert [one.run(None) for one in found] == [(0, 0, "/"), (1, 1, "/")]
    for one in found:
        one._folder.cleanup()


def test_imports_of_files_beside_are_renamed_and_no_others() -> None:
    main = "# ü\nimport a, os, b as c; from a import x\nfrom os import a\nfrom . import a\nfrom ab import y\n"
    text, files = mark_modules(main, {"a.py": "import b\n", "b.py": "import ab\n", "k.h": "import a\n"}, "77")
    assert text == main.replace("import a, os, b as c", "import a_77 as a, os, b_77 as c").replace("m a i", "m a_77 i")
    assert files == {"a_77.py": "import b_77 as b\n", "b_77.py": "import ab\n", "k.h": "import a\n"}


@pytest.mark.slow
@pytest.mark.parametrize("uses", [False, True])
def test_cases_that_differ_in_nothing_a_tensor_shows_are_handed_over(
    judge: LocalEvaluator, tmp_path: Path, uses: bool
) -> None:
    """Such a number says how inputs are drawn, as a rule; where it says what is computed, the judge finds that out."""
    by = "3 + spread" if uses else "3"
    reference = REFERENCE.replace("(n, seed)", "(n, spread, seed)").replace(
        "return torch.randn(n, 2 * n, generator=generator),",
        "return torch.randn(n, 2 * n, generator=generator) * spread,",
    )
    cases = tuple(Case(f"n=3 spread={spread}", {"n": 3, "spread": spread}, 1) for spread in (5, 90, 7))
    problem = replace(given(tmp_path, reference), dims=("n", "spread"), tests=cases[2:], benchmarks=cases[:2])
    text = CPP.replace("int64_t n,", "int64_t n, int64_t spread,").replace("FACTOR", f"({by})")
    found = hand_over(tmp_path / "out", problem, detect(), won(text, language="cpp"), judge)
    right, guessed = found.said
    assert guessed == "module.py: calls the kernel with spread=90 where cases differ in nothing that tensors show"
    assert right.startswith("module.py does not do what the kernel did") if uses else right == f"module.py: {WORTHY}"


@pytest.mark.slow
def test_a_file_for_sizes_that_were_cut_says_so(tmp_path: Path) -> None:
    problem = given(tmp_path, format="kernel", cap=64)
    said = hand_over(tmp_path / "out", problem, detect(), won(CPP, language="cpp")).said
    assert any("no others, here none above 64 (problem.cap)" in line for line in said)
    said = hand_over(tmp_path / "python", problem, detect(), won("def custom_kernel(data): pass\n")).said
    assert not any("problem.cap" in line for line in said)


def test_what_cannot_be_one_file_is_said(tmp_path: Path) -> None:
    device = won(CUDA, language="cuda")
    command = given(tmp_path, format="command", file="src/a.cpp", path="/mine")
    assert "put it in its place in /mine" in hand_over(tmp_path, command, detect(), device).said[0]


# -- launch lines ----------------------------------------------------------------------------------


def ran(file: Path, code: str, environment: dict[str, str]) -> str:
    """What a process prints that has the file as `made`, and `right(n)`: whether it answers at that size."""
    text = LOADED.format(file=str(file)) + code
    done = subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    return done.stdout


def facts(*sources: str, blocks: int = 3, pdl: bool = False) -> Facts:
    """Of the case n=3, with a launch of `turn` where there are sources."""
    x, y = [[3, 6], [6, 1], "float32"], [[6, 3], [3, 1], "float32"]
    args = [["arg", 0], ["int", 3]]
    step = {"kernel": "turn", "grid": [blocks, 1, 1], "block": [8, 1, 1], "shared": 120000, "args": args, "pdl": pdl}
    spaces = [{"dtype": "float32", "elements": 18}]
    plan = {"variant": 0, "workspaces": spaces, "tensor_maps": [], "launches": [step]}
    return Facts([[[x, y], [[0, 1], {"1": y}, [1]], [3], plan if sources else None]], sources)


def test_launches_are_written_out_for_every_case(tmp_path: Path) -> None:
    problem = given(tmp_path, format="gpumode")
    kernel = won(CUDA, language="cuda").kernel
    assert kernel is not None
    text = loader(problem, H200, kernel, facts(CUDA))
    compile(text, "submission.py", "exec")
    assert "(('turn', (3, 1, 1, 8, 1, 1), 120000, (('arg', 0), ('int', 3))),)" in text
    assert "{'turn': 120000}" in text
    assert f"r'''{CUDA}'''" in text
    assert "stream" not in text
    early = loader(problem, H200, kernel, facts(CUDA, pdl=True))
    compile(early, "submission.py", "exec")
    assert "(('arg', 0), ('int', 3)), True),)" in early
    assert ("cuLaunchKernelEx" in early, "cuLaunchKernelEx" in text) == (True, False)
    assert "stream" not in early.lower()
    assert "torch.cuda.current_stream" in loader(replace(problem, origin={}), H200, kernel, facts(CUDA))
    both = Facts([*facts(CUDA).rows, *facts(CUDA, blocks=4).rows], [CUDA])
    with pytest.raises(ValueError, match="two cases have tensors of the same sizes"):
        loader(problem, H200, kernel, both)


@pytest.mark.slow
def test_a_submission_compiles_its_variants_and_launches_them(tmp_path: Path) -> None:
    problem = replace(given(tmp_path, format="gpumode"), languages=("hip",))
    found = hand_over(tmp_path / "out", problem, MI300X, won(CUDA, language="hip"))
    assert found.said == ("submission.py: not tried: this evaluator runs no file here",)
    code = """
print(right(5), right(3), right(5))
x, y = torch.randn(19)[1:].view(3, 6), torch.zeros(19)[1:].view(6, 3)
print(made.custom_kernel((x, y)) is y, torch.equal(y, x.T * 3))
try:
    made.custom_kernel((torch.ones(6, 3).T, torch.ones(6, 3)))
except ValueError as error:
    print(error)
"""
    said = ran(found.files[0], code, toy_driver.environment(tmp_path, "hip"))
    assert said.startswith("True True True\nTrue True\nno case with tensors of (((3, 6), (1, 3), 'float32'),")
    text = found.files[0].read_text()
    assert text.count('extern "C"') == 1  # of two variants
    assert "BLOCK = 16" in text


@pytest.mark.slow
def test_a_model_launches_where_torch_works(tmp_path: Path) -> None:
    reference = DEFINITION.replace("x.T * 3", "(x.T * 3).contiguous()")
    problem = replace(given(tmp_path, reference, format="kernelbench"), languages=("cuda",))
    early = CUDA.replace("[2 * n, n] [1]", "[2 * n, n] [1] pdl")
    found = hand_over(tmp_path / "out", problem, H200, won(early.replace("2 * n", "4"), language="cuda"))
    assert [file.name for file in found.files] == ["model_new.py"], found.said
    code = """
from types import SimpleNamespace
torch.cuda.current_stream = lambda device: SimpleNamespace(cuda_stream=77)
x = torch.randn(5, 4)
model = made.ModelNew()
model.load_state_dict({"unread": x}, strict=True)  # as a deck hands weights over
print(torch.equal(model(x), x.T * 3))
"""
    assert ran(found.files[0], code, {**toy_driver.environment(tmp_path, "cuda"), "QUEUE": "77"}) == "early\nTrue\n"


@pytest.mark.slow
def test_a_module_makes_the_tensor_maps_of_its_launches(tmp_path: Path) -> None:
    problem = replace(given(tmp_path), languages=("cuda",))
    text = CUDA.replace("(x, half", "(x_map, half")
    text = f"// tensormap: x_map x float32 [2 * n * n] box [BLOCK]\n{text}"
    found = hand_over(tmp_path / "out", problem, H200, won(text, language="cuda"))
    assert [file.name for file in found.files] == ["module.py"], found.said
    code = """
from types import SimpleNamespace
torch.cuda.current_stream = lambda device: SimpleNamespace(cuda_stream=0)
print(right(3), right(5))
"""
    said = ran(found.files[0], code, toy_driver.environment(tmp_path, "cuda"))
    assert said == "map of 18, type 7, box 8\nmap of 50, type 7, box 16\nTrue True\n"


@pytest.mark.slow
def test_triton_functions_are_launched(tmp_path: Path) -> None:
    problem = replace(given(tmp_path), languages=("triton",))
    found = hand_over(tmp_path / "out", problem, H200, won(TRITON, language="triton"))
    assert found.said == ("module.py: not tried: this evaluator runs no file here",)
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    assert ran(found.files[0], "print(right(5), right(3), right(5))", environment) == "True True True\n"


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("nvcc"), reason="needs nvcc")
def test_what_is_embedded_compiles(tmp_path: Path) -> None:
    problem = given(tmp_path)
    strong, host = (won(text, language="cuda").kernel for text in (CUDA, HOST_CUDA))
    assert strong is not None
    assert host is not None
    file = tmp_path / "module.py"
    file.write_text(loader(problem, H200, strong, facts(CUDA)))
    code = module(file)._code(0)
    assert code.startswith(b"\x7fELF")
    assert b"triple" in code
    file.write_text(loader(problem, H200, host, facts()))
    assert module(file)._kernel().restype is None
