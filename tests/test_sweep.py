"""A sweep that is killed goes on with the members that are left; its jobs can travel to other processes."""

import importlib.util
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from conftest import until
from test_cli import ksflow

from ksflow.config import command_line, compose
from ksflow.errors import pluralize

DRY = ("recipe=dry_run", "problem=softmax", "loop.evaluations=0", "loop.confirm=false")


def words(members: int, *more: str) -> list[str]:
    return [sys.executable, "-m", "ksflow", "-m", *DRY, "designer=random", f"designer.seed=range(0,{members})", *more]


def run(folder: Path, *given: str) -> subprocess.CompletedProcess[str]:
    return ksflow(folder, *given[3:], COLUMNS="200")


def kept(folder: Path) -> list[Path]:
    """The finished members of a sweep that is not."""
    files = (folder / "runs" / "sweeps").glob("unfinished-*/*.json")
    return [file for file in files if file.stat().st_size]


def killed(folder: Path, members: int, finished: int) -> int:
    """How many members were finished when the sweep was killed."""
    with subprocess.Popen(words(members), cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            until(lambda: len(kept(folder)) >= finished)
        finally:
            process.send_signal(signal.SIGKILL)
    return len(kept(folder))


@pytest.mark.slow
@pytest.mark.parametrize("members", [4, pytest.param(100, marks=pytest.mark.soak)])
def test_a_killed_sweep_runs_what_is_left(tmp_path: Path, members: int) -> None:
    before = killed(tmp_path, members, max(2, members // 10))
    assert before < members
    done = run(tmp_path, *words(members))
    assert done.returncode == 0, done.stderr
    assert f"the sweep goes on: {pluralize(before, 'member')} finished before, not run again" in done.stderr
    for seed in range(members):
        assert f"softmax/loop.confirm=False,designer.seed={seed} " in done.stdout
    (sweep,) = {file.parent.parent for file in tmp_path.glob("runs/sweeps/*/0/summary.json")} - {
        file.parent.parent for file in tmp_path.glob("runs/sweeps/*/0/events.jsonl")
    }
    assert len(list(sweep.glob("*/summary.json"))) == members
    assert len(list(sweep.glob("*/events.jsonl"))) == members - before
    assert not list(tmp_path.glob("runs/sweeps/unfinished-*"))  # the same words would go on with all of them


@pytest.mark.slow
@pytest.mark.parametrize("given", [("run=sw",), ("run=one,two",)], ids=["one name", "names"])
def test_each_member_of_a_sweep_has_a_run_of_its_own(tmp_path: Path, given: tuple[str, ...]) -> None:
    done = run(tmp_path, *words(2, *given))
    assert done.returncode == 0, done.stderr
    runs = {f"{name},loop.confirm=False,designer.seed={seed}" for name in given[0][4:].split(",") for seed in (0, 1)}
    assert {path.name for path in tmp_path.glob("runs/best/softmax/*")} == runs


def test_a_name_that_is_cut_is_no_other_variants() -> None:
    names = {command_line.plain_name(f"seed_kernels={'folder/' * 30}{name}.cpp") for name in ("a", "b")}
    assert len(names) == 2
    assert max(map(len, names)) <= 120


def test_the_job_of_a_sweep_can_travel(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the processes of a launcher, which unpickle it."""
    tasks: list[Any] = []
    monkeypatch.setattr("hydra.main", lambda **_: lambda task: lambda: tasks.append(task))
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("KSFLOW_ARGUMENTS", "")
    compose.launch(run, ["recipe=dry_run"])
    assert len(cloudpickle.dumps(tasks[0])) < 10_000


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["joblib", "submitit_local", "ray"])
def test_a_launcher_that_is_installed_runs_a_sweep(tmp_path: Path, launcher: str) -> None:
    if not importlib.util.find_spec("hydra_plugins") or not importlib.util.find_spec(
        f"hydra_plugins.hydra_{launcher.partition('_')[0]}_launcher"
    ):
        pytest.skip("needs a launcher of Hydra 1.4: pip install -e '.[launchers]', or '.[ray-launcher]'")
    done = run(tmp_path, *words(2, f"hydra/launcher={launcher}"))
    assert done.returncode == 0, done.stderr
    table = done.stdout[done.stdout.index("sweep  ") :]
    assert "designer.seed=0 " in table
    assert "designer.seed=1 " in table
