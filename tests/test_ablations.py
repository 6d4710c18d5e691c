"""`benchmarks/ablations.py`: variants side by side, and the same figures again."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from ksflow.__main__ import main
from ksflow.home import PACKAGE

WORDS = ["--seeds", "1", "--evaluations", "3", "problem=softmax", "--", "selector=fastest", "designer=random"]


@pytest.fixture
def ablations() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ablations", PACKAGE.parent / "benchmarks" / "ablations.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_variants_stand_in_tables_that_come_out_the_same_again(
    ablations: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ablations.main(WORDS) == 0
    told = capsys.readouterr().out
    first, second = told.split("\n\n")
    assert {row.split("`")[1] for row in first.splitlines()[2:]} == {"selector=fastest", "designer=random"}
    assert second.splitlines()[2].startswith("| `selector=fastest` | `designer=random` | ")
    assert ablations.main(WORDS) == 0
    assert capsys.readouterr().out == told


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The place of a run with three experiments."""
    monkeypatch.chdir(tmp_path)
    words = ["recipe=dry_run", "problem=softmax", "designer=random", "loop.evaluations=3", "loop.confirm=false"]
    monkeypatch.setattr(sys, "argv", ["ksflow", *words])
    assert main() == 0
    return [str(tmp_path / "runs" / "lineage.git"), "softmax", "dry"]


@pytest.mark.slow
def test_the_kernels_of_a_run_come_in_as_they_were_written(
    ablations: ModuleType, recorded: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    trials = ablations.trials(*recorded)
    words = ["recipe=dry_run", "problem=softmax", "designer=tune"]
    best = min(trial.score_us for trial in trials if trial.score_us and "tune:" in trial.kernel.main)
    curves = [ablations.search([*words, f"written={share}"], 9, trials)[1] for share in (1, 0.5, 0)]
    assert curves[0][2:] == [pytest.approx(ablations.math.log(best))] * 7  # nothing else is tried
    assert min(curves[1][-1], curves[2][-1]) <= curves[0][-1]
    assert curves[2] == ablations.search(words, 9)[1]
    capsys.readouterr()
    assert ablations.main(["--written", *recorded, *WORDS[:-2], "written=1", "designer=tune"]) == 0
    assert "| `written=1` |" in capsys.readouterr().out


@pytest.mark.slow
def test_runs_become_a_landscape_of_times_or_of_ratios(ablations: ModuleType, recorded: list[str]) -> None:
    trials = [trial for trial in ablations.trials(*recorded) if trial.kernel and "tune:" in trial.kernel.main]
    plain, twice, ratios = (
        json.loads(ablations.landscape(*recorded, *more, ratios=corrected))
        for more, corrected in (((), False), (("dry",), False), ((), True))
    )
    assert plain == twice
    assert len(plain) == len({str(ablations.values(trial.kernel.main)) for trial in trials})
    assert [row["values"] for row in plain] == [row["values"] for row in ratios]
    for row, corrected in zip(plain, ratios, strict=True):  # made-up ratios are those of the times
        assert corrected["us"] == pytest.approx(row["us"], rel=0.01)
