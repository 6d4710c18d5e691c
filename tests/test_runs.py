"""`ksflow runs`: what it lists for programs, and how a run is deleted, renamed and taken elsewhere."""

import csv
import io
import json
import subprocess
import time
from pathlib import Path

import pytest
from conftest import plant
from test_cli import DRY, ksflow

from ksflow.lineage import Lineage


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """A folder with two small runs of a problem, of which one has the winner's files."""
    for run in ("first", "second"):
        lineage = Lineage(tmp_path / "runs" / "lineage.git", "toy", run)
        lineage.open_session("a: 1")
        plant(lineage, f"// {run}", 100.0)
        lineage.close()
    best = tmp_path / "runs" / "best" / "toy" / "first"
    best.mkdir(parents=True)
    (best / "best.py").write_text("x = 1\n")
    return tmp_path


def listed(folder: Path) -> list[str]:
    return [row["run"] for row in json.loads(ksflow(folder, "runs", "--json").stdout)]


def test_runs_are_listed_for_programs(planted: Path) -> None:
    assert sorted(listed(planted)) == ["toy/first", "toy/second"]
    for row in json.loads(ksflow(planted, "runs", "format=json").stdout):
        assert (row["trials"], row["best µs"], row["cost"], row["speedup"]) == (0, 100.0, 0.0, None)
        assert 0 <= time.time() - row["touched"] < 3600
    rows = list(csv.DictReader(io.StringIO(ksflow(planted, "runs", "format=csv").stdout)))
    assert sorted(row["run"] for row in rows) == ["toy/first", "toy/second"]
    assert "experiments" in ksflow(planted, "runs").stdout
    said = ksflow(planted, "runs", "format=xml")
    assert (said.returncode, said.stderr) == (2, "ksflow: format=xml; valid: table, json, csv\n")


def test_a_run_is_renamed_with_all_that_it_has(planted: Path) -> None:
    assert ksflow(planted, "runs", "rename", "toy/first", "to=third").returncode == 0
    assert sorted(listed(planted)) == ["toy/second", "toy/third"]
    assert (planted / "runs/best/toy/third/best.py").is_file()
    lineage = Lineage(planted / "runs" / "lineage.git", "toy", "third", create=False)
    assert [trial.kernel.main for trial in lineage.population().trials if trial.kernel] == ["// first"]
    assert lineage.settings == "a: 1"
    lineage.close()
    taken = ksflow(planted, "runs", "rename", "toy/third", "to=second")
    assert (taken.returncode, taken.stderr.count("\n")) == (2, 1)
    assert "toy/second is there already" in taken.stderr
    assert "cannot name a git branch" in ksflow(planted, "runs", "rename", "toy/third", "to=a..b").stderr


@pytest.mark.slow
def test_deleting_asks_and_a_run_in_use_is_refused(planted: Path) -> None:
    refused = ksflow(planted, "runs", "delete", "toy/first")
    assert (refused.returncode, "add yes=true" in refused.stderr) == (2, True)
    assert len(listed(planted)) == 2
    busy = Lineage(planted / "runs" / "lineage.git", "toy", "first")
    busy.open_session("a: 2")
    for words in (("delete", "toy/first", "yes=true"), ("rename", "toy/first", "to=other")):
        said = ksflow(planted, "runs", *words)
        assert (said.returncode, "toy/first is in use" in said.stderr) == (2, True)
    busy.close()
    assert ksflow(planted, "runs", "delete", "toy/first", "yes=true").returncode == 0
    assert listed(planted) == ["toy/second"]
    assert not (planted / "runs/best/toy/first").exists()
    assert "valid: toy/second" in ksflow(planted, "runs", "delete", "toy/first", "yes=true").stderr


def test_an_exported_run_is_read_elsewhere(planted: Path) -> None:
    done = ksflow(planted, "runs", "export", "toy/first", "out=taken")
    assert done.returncode == 0, done.stderr
    assert (planted / "taken/winner/best.py").is_file()
    assert "<title>" in (planted / "taken/page.html").read_text()
    elsewhere = planted / "elsewhere" / "runs"
    elsewhere.mkdir(parents=True)
    bundle, store = planted / "taken" / "lineage.bundle", elsewhere / "lineage.git"
    subprocess.run(["git", "clone", "-q", "--mirror", bundle, store], check=True, capture_output=True)
    assert listed(planted / "elsewhere") == ["toy/first"]


@pytest.mark.slow
def test_commands_that_people_read_are_read_by_programs_too(tmp_path: Path) -> None:
    assert ksflow(tmp_path, *DRY, "loop.evaluations=3").returncode == 0
    facts = json.loads(ksflow(tmp_path, "lineage", "softmax/dry", "--json").stdout)
    assert facts["winner"] in {row["id"] for row in facts["trials"]}
    shown = ksflow(tmp_path, "lineage", "show", facts["winner"], "problem=softmax", "run=dry", "--json")
    one = json.loads(shown.stdout)
    assert one["verdict"] == "accept"
    found = json.loads(ksflow(tmp_path, "doctor", "--json").stdout)
    assert {"ready", "isolation", "git"} <= found.keys()
    known = ksflow(tmp_path, "verify", facts["winner"], "problem=softmax", "evaluator=fake", "run=dry", "--json")
    compared = json.loads(known.stdout)
    assert compared["score_us"]["on_record"] == pytest.approx(compared["score_us"]["now"], rel=0.1)
    assert all(len(ratio["now"]) == 3 for ratio in compared["speedups"].values())
