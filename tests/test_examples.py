"""Every example's commands, run in a copy of its folder as a user would type them."""

import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
import warm

from ksflow.home import PACKAGE

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
