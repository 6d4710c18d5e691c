"""Every example's commands, run in a copy of its folder as a user would type them."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import warm

from ksflow.evaluation.compilers.cpp import compile_kernel
from ksflow.home import PACKAGE
from ksflow.kernels.hardware.target import detect
from ksflow.kernels.problem.kernel_file import kernel_file
from ksflow.kernels.problem.loader import load

EXAMPLES = PACKAGE.parent / "examples"
SHOWS = {
    "own_problem": [
        r"column_sums: every check holds",
        r"\n6 experiments in ",
        r"files: runs/best/column_sums/main: ",
    ],
    "own_model": [
        r"ShortConv x4: 0\.conv ",
        r"written to short_conv: python -m ksflow problem=\./short_conv",
        r"\n6 experiments in ",
        r"winner 000\d\d: x[\d.]+ \[.*over (PyTorch|torch\.compile)",
        r"right on 1 of 1 held-out shapes",
        r"short_conv: module\.py: the judge finds that it answers as the reference does",
        r"\n +eager +[\d.]+ +[\d.]+ +x[\d.]+ \[",
    ],
    "quantised_matvec": [
        r"\n6 experiments in ",
        r"winner 000\d\d: x[\d.]+ \[.*over (PyTorch|NumPy)",
        r"right on 2 of 2 held-out shapes",
    ],
    "own_stage": [
        r"\n2 experiments in ",
        r'"by": "designer=one_at_a_time"',
        r"\n1 experiments? in ",
        r"\w{7} writer=rewrite: openai/my-model\n",
    ],
    "sweep": [
        *(rf"column_sums/designer={designer} .*\$0\.00" for designer in ("rules", "random", "tune")),
        r"written to runs/reports/column_sums/",
    ],
}
"""Example -> what its commands say, in any order."""


def test_the_list_of_examples_names_each_of_them() -> None:
    folders = {folder.name for folder in EXAMPLES.iterdir() if folder.is_dir()}
    assert folders == SHOWS.keys() == set(re.findall(r"^\| \[(\w+)\]\(", (EXAMPLES / "README.md").read_text(), re.M))


QUANTS = """#include "ggml-common.h"
#define MM256_SET_M128I(a, b) _mm256_insertf128_si256(_mm256_castsi128_si256(b), (a), 1)
static inline int twice(int x) { return 2 * x; }
void quantize_row_q8_0(const float * GGML_RESTRICT x) {
}
void ggml_vec_dot_q4_0_q8_0(int n, float * GGML_RESTRICT s, size_t bs, const void * GGML_RESTRICT vx, size_t bx, const void * GGML_RESTRICT vy, size_t by, int nrc) {
    const block_q4_0 * GGML_RESTRICT x = vx;
    const block_q8_0 * GGML_RESTRICT y = vy;
    *s = twice(n) * GGML_CPU_FP16_TO_FP32(x[0].d) + y[0].qs[0];
}
"""  # noqa: E501


def test_a_kernel_is_made_of_ggml(tmp_path: Path) -> None:
    file = tmp_path / "src/ggml-cpu/arch/x86/quants.c"
    file.parent.mkdir(parents=True)
    file.write_text(QUANTS)
    command = [sys.executable, str(EXAMPLES / "quantised_matvec/from_ggml.py"), str(tmp_path)]
    (tmp_path / "ggml.cpp").write_text(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    problem, kernel = load(str(EXAMPLES / "quantised_matvec/q4_matvec")), kernel_file(str(tmp_path / "ggml.cpp"))
    built = compile_kernel(problem, kernel, detect(cores=2))
    assert not built.reason, built.log
    file.write_text("int x;")
    assert "no ggml_vec_dot_q4_0_q8_0" in subprocess.run(command, capture_output=True, text=True, check=False).stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "more"),
    [
        pytest.param("own_stage", "evaluator=fake", id="own_stage with made-up times"),
        *(pytest.param(one, "", id=one, marks=pytest.mark.soak) for one in SHOWS),
    ],
)
def test_an_example_does_what_its_page_says(name: str, more: str, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES, tmp_path / "examples", ignore=shutil.ignore_patterns("runs", "__pycache__"))
    warm.shims(tmp_path / "bin")
    folder = tmp_path / "examples" / name
    commands = "".join(
        re.findall(r"^```bash\n(.*?)^```$", (folder / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    )
    settings = {
        **os.environ,
        "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(PACKAGE.parent),
        "COLUMNS": "160",
        "MORE": more,
    }
    with subprocess.Popen(
        ["bash", "-e", "-c", commands],
        cwd=folder,
        env=settings,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as typed:
        try:
            said, _ = typed.communicate(timeout=590)
        except subprocess.TimeoutExpired:
            os.killpg(typed.pid, signal.SIGKILL)
            raise
    assert typed.returncode == 0, said[-4000:]
    for lineage in folder.glob("runs/lineage.git"):  # who designed is on record, however busy the machine was
        log = [
            "git",
            "-C",
            lineage,
            "log",
            "--branches",
            "-p",
            "--diff-merges=first-parent",
            "--format=",
            "--",
            "trial.json",
        ]
        said += subprocess.run(log, capture_output=True, text=True, check=True).stdout
    for shown in SHOWS[name]:
        assert re.search(shown, said), f"{shown}\n{said[-4000:]}"
