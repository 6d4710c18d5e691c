"""The winner as a repository that Hugging Face's `kernels` loads and times. A whole run's is in test_heldout_shapes."""

import json
from pathlib import Path

import pytest
import torch
from kernels import get_local_kernel
from kernels.cli.benchmark import discover_benchmark_classes, run_benchmark_class

from ksflow.integrate.handover.hub import Standing, write_hub
from ksflow.kernels.problem.licences import of_kernel
from ksflow.kernels.problem.loader import load
from ksflow.protocols import as_evaluator
from ksflow.records import Evaluation, Kernel, Origin, Problem, Target, Timing, Trial, Verdict

CPU = Target("cpu", "cpu", "a CPU", march="native")
KERNEL = "import torch\n\n\ndef custom_kernel(data):\n    return torch.softmax(data[0], 1, out=data[1])\n"
STANDING = Standing("x1.5 [1.4, 1.6] over PyTorch", "right on 3 of 3 held-out shapes", "2026-11-26", "MIT", "mit")


def says(verdict: Verdict) -> object:
    """An evaluator that finds the same of each module."""
    judge = as_evaluator(lambda *_: Evaluation(verdict))
    judge.measure = lambda *_: Evaluation(verdict, "off by one")  # type: ignore[method-assign]
    return judge


def written(folder: Path, target: Target, language: str, verdict: Verdict = Verdict.UNTIMED) -> tuple[Path, str]:
    problem: Problem = load("softmax", target=target)
    module = folder / "module.py"
    module.write_text(KERNEL)
    times = tuple(Timing(case.name, 75.0) for case in problem.benchmarks)
    trial = Trial("00007", Origin.SEED, kernel=Kernel(language, {"k.x": KERNEL}), evaluation=Evaluation(
        Verdict.ACCEPT, "", 75.0, times, judge="ksflow 9"))  # fmt: skip
    return folder / "hub", write_hub(folder / "hub", problem, target, trial, [module], STANDING, says(verdict))  # type: ignore[arg-type]


@pytest.mark.skipif(torch.cuda.is_available(), reason="`kernels benchmark` takes the GPU where there is one")
def test_it_is_loaded_timed_and_described(tmp_path: Path) -> None:
    hub, said = written(tmp_path, CPU, "python")
    assert said == f'{hub}: kernels.get_local_kernel(Path("{hub}"), backend="cpu")'
    x = torch.randn(3, 5)
    assert torch.equal(get_local_kernel(hub, backend="cpu").custom_kernel((x, torch.zeros(3, 5))), torch.softmax(x, 1))
    made = json.loads((hub / "build/torch-cpu/metadata.json").read_text())
    assert (made["name"], made["license"], made["backend"]) == ("softmax-float32", "mit", {"type": "cpu"})

    (cases,) = discover_benchmark_classes(hub / "benchmarks/benchmark.py", hub)
    timed, _ = run_benchmark_class(cases, 2, 1, str(hub), is_local=True, revision="local")
    assert len(timed) == len(load("softmax", target=CPU).benchmarks)
    assert all(row.verified and row.ref_mean_ms for row in timed.values())

    card = (hub / "README.md").read_text()
    assert "license: mit\n" in card
    assert "x1.5 [1.4, 1.6] over PyTorch (geomean of the cases, timed in turns) on a CPU (native), 2026-11-26" in card
    assert "right on 3 of 3 held-out shapes" in card
    assert "| 512x1024 | 75 |" in card


@pytest.mark.parametrize(
    ("target", "language", "backend"),
    [
        (Target("h200", "gpu", "NVIDIA H200", march="sm_90a"), "cuda", {"type": "cuda", "archs": ["9.0a"]}),
        (Target("mi300x", "gpu", "AMD Instinct MI300X", march="gfx942"), "hip", {"type": "rocm", "archs": ["gfx942"]}),
        (Target("h200", "gpu", "NVIDIA H200", march="sm_90a"), "triton", {"type": "cuda"}),
    ],
)
def test_device_code_is_for_its_chip(tmp_path: Path, target: Target, language: str, backend: dict[str, object]) -> None:
    hub, _ = written(tmp_path, target, language)
    assert json.loads((hub / f"build/torch-{backend['type']}/metadata.json").read_text())["backend"] == backend


def test_a_wrong_module_is_no_repository(tmp_path: Path) -> None:
    hub, said = written(tmp_path, CPU, "python", Verdict.INCORRECT)
    assert said == "no repository for Hugging Face's kernels: off by one"
    assert not hub.exists()


def test_a_winner_has_the_licences_of_all_that_it_was_made_from() -> None:
    problem = load("softmax", target=CPU)
    first = Trial("00001", Origin.SEED, kernel=Kernel("python", {"k.py": "# SPDX-License-Identifier: MIT\n"}))
    made = Trial("00002", Origin.EXPERIMENT, parents=("00001",), kernel=Kernel("python", {"k.py": KERNEL}))
    assert of_kernel(problem, {"00001": first, "00002": made}, "00002") == "Apache-2.0 AND MIT"
