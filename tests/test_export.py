"""The best kernel as files: in any language there is something a user can run, or is told how to."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from ksflow.home import shipped_path
from ksflow.integrate.handover.package import write_best
from ksflow.kernels.problem.kernel_file import kernel_file
from ksflow.kernels.problem.loader import load
from ksflow.records import Arg, Case, Evaluation, Kernel, Origin, Target, Timing, Trial, Verdict

H200 = Target("h200", "gpu", "NVIDIA H200", march="sm_90a")
MI300X = Target("mi300x", "gpu", "AMD Instinct MI300X", march="gfx942")


def best(kernel: Kernel) -> Trial:
    evaluation = Evaluation(Verdict.ACCEPT, "", 75.0, (Timing("1024x1536x7168", 75.0),))
    return Trial("00007", Origin.SEED, kernel=kernel, evaluation=evaluation)


def imported(file: Path) -> Any:
    """The module in a file."""
    spec = importlib.util.spec_from_file_location("made_best", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def written(folder: Path, target: Target, kernel: Kernel) -> tuple[Path, str]:
    made = write_best(folder, load("fp8_gemm", target=target), target, best(kernel), "c0ffee")
    assert json.loads((folder / "origin.json").read_text())["commit"] == "c0ffee"
    assert made.read_text() == kernel.main
    return made, (folder / "README.md").read_text()


@pytest.mark.parametrize(
    ("seed", "target", "said"),
    [
        ("02_wgmma.cu", H200, "nvcc -O3 -std=c++20 -gencode=arch=compute_90a,code=sm_90a -DE4M3FNUZ=0 -cubin"),
        ("02_mfma.hip", MI300X, "hipcc -O3 -std=c++20 --offload-arch=gfx942 -DE4M3FNUZ=1 --genco"),
        ("02_transposed_triton.py", H200, "warps WARPS stages STAGES"),
    ],
)
def test_device_code_comes_with_its_launches(tmp_path: Path, seed: str, target: Target, said: str) -> None:
    file = shipped_path("seeds", "fp8_gemm", "gpu", seed)
    made, readme = written(tmp_path / "best", target, kernel_file(str(file), ("cuda", "hip", "triton")))
    assert made.name == seed
    assert said in readme
    assert "kernel 00007" in readme
    assert "programmatic" not in readme
    assert "75 µs (geomean of 1024x1536x7168" in readme
    launches = [line.lstrip("/# ") for line in file.read_text().splitlines() if "launch: " in line]
    assert launches
    assert all(f"    {line}\n" in readme for line in launches)


def test_a_launch_that_may_begin_early_is_explained(tmp_path: Path) -> None:
    lines = "// launch: one [1] [32] (a)\n// launch: two [1] [32] pdl shared 8 (c)\n"
    _, readme = written(tmp_path / "best", H200, Kernel("cuda", {"kernel.cu": lines}))
    assert "`pdl` may begin before the one before it has ended (programmatic dependent launch)." in readme
    assert "CUtensorMap" not in readme


def test_a_tensor_map_is_explained(tmp_path: Path) -> None:
    lines = "// tensormap: a_map a uint8 [m, k] box [128, 64]\n// launch: one [1] [32] (a_map)\n"
    _, readme = written(tmp_path / "best", H200, Kernel("cuda", {"kernel.cu": lines}))
    assert "`tensormap:` line is a CUtensorMap of cuTensorMapEncodeTiled" in readme
    assert "    tensormap: a_map a uint8 [m, k] box [128, 64]\n" in readme


def test_host_code_comes_with_how_it_is_called(tmp_path: Path) -> None:
    file = shipped_path("seeds", "fp8_gemm", "gpu", "03_host_triton.py")
    _, readme = written(tmp_path / "triton", H200, kernel_file(str(file), ("triton",)))
    assert "custom_kernel((a, b, a_scale, b_scale, c))" in readme
    assert "compile" not in readme
    _, readme = written(tmp_path / "cuda", H200, Kernel("cuda", {"host.cu": "void custom_kernel() {}\n"}))
    assert "int64_t k, const int64_t *strides, void *stream);" in readme
    assert "-shared -Xcompiler -fPIC -o kernel.so host.cu" in readme


def test_a_python_kernel_is_a_module_already_and_takes_the_place_of_the_winner_before(tmp_path: Path) -> None:
    target = Target("cpu", "cpu", "a CPU", march="native")
    problem = load("fp8_gemm", target=target)
    write_best(tmp_path, problem, target, best(Kernel("cpp", {"k.cpp": "\n"})), "c0ffee")
    (tmp_path / "notes.txt").write_text("mine\n")
    kernel = Kernel("python", {"00_k.py": "def custom_kernel(data):\n    return data[-1]\n"})
    made = write_best(tmp_path, problem, target, best(kernel), "c0ffee")
    assert made == tmp_path / "best.py"
    assert made.read_text() == kernel.main
    assert {file.name for file in tmp_path.iterdir()} == {"best.py", "evaluation.json", "origin.json", "notes.txt"}


def test_what_came_in_another_format_is_called_by_its_own_file_alone(tmp_path: Path) -> None:
    target = Target("cpu", "cpu", "a CPU", march="native")
    problem = replace(load("fp8_gemm", target=target), origin={"format": "kernel"})
    made = write_best(tmp_path, problem, target, best(Kernel("cpp", {"k.cpp": "\n"})), "c0ffee")
    assert made == tmp_path / "k.cpp"
    assert not (tmp_path / "best.py").exists()


EXPORTED = """import sys
from ksflow.integrate.handover.winner import hand_over
from ksflow.kernels.problem.loader import load
from ksflow.records import Evaluation, Kernel, Origin, Target, Timing, Trial, Verdict
from pathlib import Path
target = Target("cpu", "cpu", "a CPU", march="x86-64")
kernel = Kernel("cpp", {"k.cpp": "int x;"})
accepted = Evaluation(Verdict.ACCEPT, "", 75.0, (Timing("a", 75.0),))
trial = Trial("00007", Origin.SEED, kernel=kernel, evaluation=accepted)
print("now", flush=True)
hand_over(Path(sys.argv[1]), load("fp8_gemm", target=target), target, trial)
"""


def test_an_interrupted_export_keeps_the_module_of_the_winner_before(tmp_path: Path) -> None:
    module = tmp_path / "out" / "module.py"
    module.parent.mkdir()
    module.write_text("# the winner before\n")
    with subprocess.Popen(
        [sys.executable, "-c", EXPORTED, str(module.parent)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "KSFLOW_CACHE": str(tmp_path / "cache")},
    ) as export:
        assert export.stdout is not None
        assert export.stdout.readline() == b"now\n"
        children = Path(f"/proc/{export.pid}/task/{export.pid}/children")
        while not children.read_text():  # the one that looks at the problem's sizes
            time.sleep(0.01)
        while export.poll() is None:  # Python drops an interrupt that comes while it forks
            export.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                export.wait(0.5)
    assert export.returncode != 0
    assert module.read_text() == "# the winner before\n"


SCALE = """#include <cstdint>
#include "factor.hpp"
extern "C" void custom_kernel(const float *x, float *y, int64_t n, const int64_t *) {
  for (int64_t i = 0; i < n; i++) y[i] = x[i] * FACTOR;
}"""


def scaled(folder: Path) -> Any:
    """The winner of a problem on vectors, imported as a user's program does."""
    target = Target("cpu", "cpu", "a CPU", march="x86-64")
    args = (Arg("x", "float32", "in", shape="n"), Arg("y", "float32", "out", shape="n"))
    cases = (Case("n=4", {"n": 4}, 1),)
    bare = replace(load("softmax", target=target), args=args, dims=("n",), tests=(), benchmarks=cases)
    winner = best(Kernel("cpp", {"k.cpp": SCALE, "factor.hpp": "#define FACTOR 3"}))
    return imported(write_best(folder, bare, target, winner, "c0ffee"))


def test_the_winner_is_compiled_when_it_is_first_called_by_the_compiler_that_is_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "clang++").write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/said\nPATH=/usr/bin:/bin exec g++ "$@"\n')
    (tmp_path / "clang++").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    module = scaled(tmp_path / "best")
    assert not (tmp_path / "said").exists()
    assert module.custom_kernel((torch.ones(4), torch.zeros(4))).tolist() == [3.0] * 4
    assert "-march=x86-64 -O3 -std=c++20" in (tmp_path / "said").read_text()


@pytest.mark.soak
@pytest.mark.slow
def test_where_there_is_no_compiler_zigs_from_pypi_compiles_the_winner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    assert scaled(tmp_path / "best").custom_kernel((torch.ones(4), torch.zeros(4))).tolist() == [3.0] * 4


@pytest.mark.parametrize(("steps", "more"), [((3, 3), {}), ((3, 5), {"steps": 5})])
def test_a_size_that_no_shape_tells_is_the_cases_own_or_asked_for(
    tmp_path: Path, steps: tuple[int, int], more: dict[str, int]
) -> None:
    target = Target("cpu", "cpu", "a CPU", march="native")
    text = """#include <cstdint>
    extern "C" void custom_kernel(const float *x, float *y, int64_t n, int64_t steps, const int64_t *) {
      for (int64_t i = 0; i < n; i++) y[i] = x[i] * steps;
    }"""
    cases = tuple(Case(f"steps={count}", {"n": 4, "steps": count}, 1) for count in steps)
    args = (Arg("x", "float32", "in", shape="n"), Arg("y", "float32", "out", shape="n"))
    bare = replace(load("softmax", target=target), args=args, dims=("n", "steps"), tests=(), benchmarks=cases)
    made = write_best(tmp_path, bare, target, best(Kernel("cpp", {"k.cpp": text})), "c0ffee")
    module = imported(made)
    x = torch.ones(4)
    assert module.custom_kernel((x, torch.zeros(4)), **more).tolist() == [steps[1]] * 4
