"""`evaluator=static` with rocjitsu: what a second emulator's word on machine code does to a verdict.

`fake_rocjitsu` speaks its command line and plays the GPU at /dev/kfd; a soak test asks the real one.
"""

import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from ksflow.home import shipped
from ksflow.problem.loader import load
from ksflow.records import Evaluation, Kernel, Problem, Verdict
from ksflow.stages.evaluator.static import StaticEvaluator

from . import gpu_toy

FAKE = Path(__file__).with_name("fake_rocjitsu")
HEADER = Path("/usr/include/linux/kfd_ioctl.h")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-in, installed as rocjitsu is: the folder of its program."""
    if not HEADER.is_file():
        pytest.skip("needs linux/kfd_ioctl.h, of Linux' own headers")
    root = tmp_path_factory.mktemp("rocm")
    for folder in ("bin", "lib", "share/rocjitsu/configs", "include/drm"):
        (root / folder).mkdir(parents=True)
    (root / "include/drm/drm.h").write_text("#include <linux/types.h>\n#include <sys/ioctl.h>\n")
    out = ["-o", str(root / "lib/librocjitsu.so"), str(FAKE / "device.c"), "-ldl", "-lpthread"]
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-w", "-idirafter", str(root / "include"), *out], check=True)
    shutil.copy(FAKE / "rocjitsu", root / "bin/rocjitsu")
    (root / "share/rocjitsu/configs/gfx942_cdna3_kmd.json").write_text(json.dumps({"gpu_id": 50148}))
    for path in (root.parent.parent, root.parent, root, *root.rglob("*")):
        path.chmod(0o755)
    return root / "bin"


@pytest.fixture
def problem(tmp_path: Path) -> Problem:
    made = gpu_toy.problem(tmp_path)
    return replace(made, small=made.tests[-1:])


@pytest.fixture
def evaluator(installed: Path, monkeypatch: pytest.MonkeyPatch) -> StaticEvaluator:
    monkeypatch.setenv("PATH", f"{installed}:{os.environ['PATH']}")
    return StaticEvaluator(gpu_toy.MI300X)


def named(name: str, text: str = gpu_toy.HIP) -> Kernel:
    """The toy kernel under a name by which the stand-in does something else."""
    return gpu_toy.hip(text.replace("add", name))


@pytest.mark.slow
def test_both_emulators_are_asked_and_a_difference_is_a_dispute(evaluator: StaticEvaluator, problem: Problem) -> None:
    right = evaluator(problem, gpu_toy.hip(), ())
    assert right.verdict is Verdict.UNTIMED, right
    assert "rocjitsu: right" in right.evidence.emulated, right.evidence
    assert right.reason.endswith(
        "right where emulated; right in rocjitsu, instruction by instruction; nothing was timed"
    )
    assert right.target.endswith("rocjitsu-0.3.1")

    racy = evaluator(problem, named("add_racy"), ())
    assert racy.verdict is Verdict.DISPUTED
    assert (
        "right on the CPU at small shapes; rocjitsu: reject-incorrect, n1000: race: Race on LDS byte 4" in racy.reason
    )
    assert "==> ds_write_b32 v0, v1 ; <-- wave 1; ==> ds_read_b32" in racy.reason

    alone = evaluator(problem, gpu_toy.hip(gpu_toy.HIP.replace("+ b[i]", "- b[i]")), ())
    assert alone.verdict is Verdict.DISPUTED, alone
    assert "reject-incorrect" in alone.reason
    assert alone.reason.endswith("rocjitsu: right")

    both = evaluator(problem, named("add_wrong", gpu_toy.HIP.replace("+ b[i]", "- b[i]")), ())
    assert both.verdict is Verdict.INCORRECT
    assert both.reason.startswith("emulated on the CPU: n1000: ")
    assert "rocjitsu: reject-incorrect, n1000: " in both.evidence.emulated


@pytest.mark.slow
def test_what_it_does_not_know_and_what_it_gets_wrong_itself_is_no_word(
    evaluator: StaticEvaluator, problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    unknown = evaluator(problem, named("add_unknown"), ())
    assert unknown.verdict is Verdict.UNTIMED, unknown
    assert unknown.reason.endswith("right where emulated; nothing was timed")
    assert (
        "status 0 before the kernel did; it said nothing: an instruction that it does not know?"
        in unknown.evidence.emulated
    )

    monkeypatch.setattr("ksflow.judge.rocjitsu._ROOM", {"deadline_s": 0.5})
    endless = evaluator(problem, named("add_endless"), ())
    assert "rocjitsu: no word, " in endless.evidence.emulated
    assert "TimeoutError: add_endless does not end" in endless.evidence.emulated
    monkeypatch.undo()


@pytest.mark.slow
def test_tritons_machine_code_runs_in_it_too(evaluator: StaticEvaluator, problem: Problem) -> None:
    found = evaluator(problem, gpu_toy.triton(), ())
    assert found.verdict is Verdict.UNTIMED, found
    assert found.evidence.emulated == "right on the CPU at small shapes; rocjitsu: right"


@pytest.mark.slow
def test_a_version_with_broken_atomics_fails_its_self_test(
    evaluator: StaticEvaluator, problem: Problem, installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "old"
    shutil.copytree(installed.parent, old)
    program = old / "bin/rocjitsu"
    program.write_text(program.read_text().replace("LD_PRELOAD=", "FAKE_ROCJITSU_OLD=1 LD_PRELOAD="))
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    found = evaluator(problem, gpu_toy.hip(), ())
    assert found.verdict is Verdict.UNTIMED
    assert "rocjitsu: no word, it fails its self-test: selftest: " in found.evidence.emulated


# -- the real one ----------------------------------------------------------------------------------


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.skipif(
    not shutil.which("rocjitsu"),
    reason="needs AMD's rocjitsu on the PATH: docs/no_gpu.md says where it is had",
)
def test_the_real_one_on_the_matrix_seed_triton_and_a_planted_race(tmp_path: Path) -> None:
    evaluator = StaticEvaluator(gpu_toy.MI300X)
    gemm = load("fp8_gemm", cases="cpu", variant="e4m3fnuz")
    gemm = replace(gemm, small=gemm.tests[:2])
    text = shipped("seeds", "fp8_gemm", "gpu", "02_mfma.hip").read_text()
    assert _in_rocjitsu(evaluator(gemm, gpu_toy.hip(text), ()))
    toy = gpu_toy.problem(tmp_path)
    assert _in_rocjitsu(evaluator(replace(toy, small=toy.tests), gpu_toy.triton(), ()))
    barrier = "    __syncthreads();\n    if (PREFETCH"
    assert barrier in text
    racy = evaluator(gemm, gpu_toy.hip(text.replace(barrier, "    if (PREFETCH")), ())
    assert "rocjitsu: reject-incorrect" in racy.evidence.emulated
    assert "race: " in racy.evidence.emulated


def _in_rocjitsu(found: Evaluation) -> bool:
    assert found.verdict is Verdict.UNTIMED, found
    return "rocjitsu: right" in found.evidence.emulated
