"""One's own runs by name, as a person types it: `lineage dwt`, `report`, `verify softmax/two 3`."""

import shutil
from pathlib import Path

import pytest
from test_cli import ksflow

from ksflow.home import shipped_path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A problem of one's own, `dwt`, after a run of softmax under another name than main; dwt is the newest."""
    found = tmp_path_factory.mktemp("named")
    shutil.copytree(shipped_path("problems", "softmax"), found / "dwt", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(shipped_path("seeds", "softmax"), found / "dwt" / "seeds")
    for words in (("problem=softmax", "run=two"), ("problem=./dwt", "--config-dir", ".", "run=main")):
        done = ksflow(found, "recipe=dry_run", *words, "loop.evaluations=1")
        assert done.returncode == 0, done.stderr
    return found


@pytest.mark.slow
def test_a_run_is_found_by_its_name(folder: Path) -> None:
    assert "dwt/main" in ksflow(folder, "runs").stdout
    for name in ("dwt", "dwt/main"):
        shown = ksflow(folder, "lineage", name, "show", "1")
        assert "dwt/main/00001" in shown.stdout, shown.stderr
        assert not shown.stderr
    two = ksflow(folder, "lineage", "softmax", "show", "1")
    assert "softmax/two/00001" in two.stdout
    assert "dwt/main" in ksflow(folder, "explain", "dwt/main/00003").stdout
    assert ksflow(folder, "report", "dwt").stdout.strip() == "written to runs/reports/dwt/main.html"


@pytest.mark.slow
def test_without_a_name_the_newest_is_meant_and_said(folder: Path) -> None:
    done = ksflow(folder, "lineage", "show", "1")
    assert "dwt/main/00001" in done.stdout
    assert done.stderr.startswith("run: dwt/main, the newest of 2 (another: python -m ksflow lineage NAME;")
    only = ksflow(folder, "report", "run=two")
    assert only.stdout.strip() == "written to runs/reports/softmax/two.html"
    assert not only.stderr


@pytest.mark.slow
def test_a_run_of_a_problem_that_was_named_by_its_path_is_found(folder: Path, tmp_path: Path) -> None:
    words = ("recipe=dry_run", f"problem.path={folder / 'dwt'}", "loop.evaluations=0")
    assert ksflow(tmp_path, *words).returncode == 0
    shown = ksflow(tmp_path, "lineage", "dwt", "show", "1")
    assert "dwt/dry/00001" in shown.stdout, shown.stderr


def test_a_name_that_is_none_is_told_with_those_that_are(folder: Path) -> None:
    for words in (("lineage", "dwd"), ("report", "dwd"), ("verify", "dwd", "3"), ("apply", "dwd", "--patch")):
        done = ksflow(folder, *words)
        assert done.returncode == 2
        assert "no run 'dwd' in runs/lineage.git; did you mean dwt?" in done.stderr
        assert "softmax/two" in done.stderr


def test_an_empty_or_a_mistyped_word_is_one_line_that_names_it(folder: Path) -> None:
    for words, said in (
        (("report", "dwt", "out="), "out= has no value"),
        (("report", "dwt", "out=."), "Is a directory"),
        (("init", "problem", "sums", "from="), "from= has no value"),
        (("init", "problem", "sums", "from=norm.py:f", "eps=3"), "init takes no 'eps=3'"),
        (("apply", "dwt", "--ptch"), "apply takes no --ptch; did you mean --patch?"),
        (("isolate", "norm:f", "--run=true", "out="), "out= has no value"),
        (("verify", "dwt", "1", "2"), "verify takes one name, not 2: python -m ksflow verify COMMIT"),
    ):
        done = ksflow(folder, *words)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
        assert said in done.stderr
    assert not (folder / "sums").exists()


@pytest.mark.slow
def test_without_a_kernel_the_winner_is_verified(folder: Path) -> None:
    for words in (("verify",), ("verify", "dwt"), ("verify", "dwt", "best")):
        done = ksflow(folder, *words, "evaluator=fake")
        assert done.returncode == 0, done.stderr
        assert "dwt/main/0" in done.stdout
        assert done.stdout.splitlines()[-1] == "holds"


def test_no_word_at_all_is_help(folder: Path) -> None:
    done = ksflow(folder)
    assert done.returncode == 0
    assert done.stdout == ksflow(folder, "--help").stdout
