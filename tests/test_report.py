"""What is printed: words of models and people as they are, and every kernel below the one it came from."""

import io
import json
import re
from pathlib import Path

import pytest
from conftest import accepted, kernel
from rich.console import Console
from test_session import SEEDS, Run

from ksflow import report
from ksflow.kernels.problem.loader import load
from ksflow.lineage import Lineage
from ksflow.loop.search import search
from ksflow.records import Origin, Plan, Population, Trial
from ksflow.report import scores
from ksflow.report.words import console, grid

ODD = "cannot read [/x] in [red]a[/red]"


def written(made: Console) -> str:
    return " ".join(made.file.getvalue().split())  # type: ignore[attr-defined]


def wide() -> Console:
    """As a user's, with its output kept."""
    made = console()
    made.file, made.width = io.StringIO(), 240
    return made


def test_brackets_in_a_message_end_no_run(lineage: Lineage) -> None:
    def sulk(*arguments: object) -> Plan:
        raise ValueError(ODD)

    made = Console(file=io.StringIO(), width=200, force_terminal=True, color_system=None)
    run = Run(lineage, design=sulk)
    with report.Display(made) as show:
        outcome = search(run.made(show), SEEDS)
    assert "3 rounds in a row" in outcome.reason
    assert ODD in written(made)


def test_brackets_in_an_approval_break_no_table(
    lineage: Lineage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    (tmp_path / "gitconfig").write_text("[user]\n name = Me\n email = me@example.org\n")
    outcome = Run(lineage)(evaluations=3)
    lineage.approve(outcome.best, note=f"{ODD} [/see]")
    made = Console(file=io.StringIO(), width=240)  # with markup, as another program may have it
    report.show_outcome(made, outcome, load("softmax", "cpu"), lineage)
    figures = scores.figures(outcome.population, load("softmax", "cpu"))
    scores.show(made, [{**report.summary(outcome, load("softmax", "cpu"), lineage), "figures": figures}])
    assert written(made).count(f"{ODD} [/see]") == 2


def test_the_ending_of_a_run_is_wrapped_between_words_and_nothing_is_cut(
    lineage: Lineage, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = Run(lineage)(evaluations=3)
    files = [f"runs/best/softmax/main: {', '.join(f'module_{number}.py' for number in range(9))}"]
    monkeypatch.setenv("FORCE_COLOR", "1")  # a terminal, for rich
    made = console()
    made.file, made.width, made.no_color = io.StringIO(), 80, True
    report.show_ending(made, outcome, lineage, files)
    lines = re.sub(r"\x1b\[\d*m", "", made.file.getvalue()).splitlines()
    assert max(map(len, lines)) <= 80
    assert sum(not line.startswith("  ") for line in lines) <= 6
    assert files[0] in " ".join(" ".join(lines).split())
    assert "…" not in "".join(lines)


def test_a_table_without_room_says_what_it_leaves_out() -> None:
    made = wide()
    made.width = 30
    rows = [{"run": "toy/main", "cost": "$1.2345", "state": "at rest", "trials": "12345"}]
    made.print(grid(made, rows, ("run",), ("run",), ("cost", "trials"), 8, shown_by="format=csv"))
    assert "$1.2345" not in written(made)
    assert "not in this window: trials, cost (format=csv shows them)" in written(made)


def test_a_console_of_ours_takes_no_text_for_markup() -> None:
    made = wide()
    made.print("pip install ksflow[compiler]", ODD)
    assert written(made) == f"pip install ksflow[compiler] {ODD}"


def test_children_of_a_pushed_branch_stand_below_it() -> None:
    def trial(name: str, *parents: str) -> Trial:
        return Trial(name, Origin.EXPERIMENT, parents, kernel=kernel(name), name=name, evaluation=accepted(1.0))

    trials = [trial("00001"), trial("00002", "by-hand"), trial("00003", "gone"), trial("by-hand", "00001")]
    turned = [trial("00005", "turned"), trial("turned", "00005")]  # a person put it on top of its own child
    made = wide()
    report.show_tree(made, [*trials, *turned], Population((*trials, *turned)), None, {})
    lines = made.file.getvalue().splitlines()  # type: ignore[attr-defined]
    depth = {line.split()[-1]: len(line) - len(line.lstrip("│├└─ ")) for line in lines}
    assert depth["00001"] < depth["by-hand"] < depth["00002"]
    assert depth["00003"] == depth["00005"] == depth["00001"] < depth["turned"]


def test_a_sweep_s_rows_have_their_headline_and_the_other_baselines(tmp_path: Path) -> None:
    common = {"problem": "p", "trials": 3, "trials_to_best": 1, "correct": 1.0, "tokens": 0, "usd": 0.0, "wall_s": 1.0}
    for run, us, over in (("one", 426.0, {"NumPy": 9.0, "PyTorch": 2.03}), ("two", 277.8, {"NumPy": 13.8})):
        said = [f"x{value:.3g} over {name}" for name, value in sorted(over.items(), key=lambda pair: pair[1])]
        figures = {"compiled": True, "right": True, "us": us, "speedups": over, "sure": over, "beside": said}
        (tmp_path / run).mkdir()
        summary = {**common, "run": run, "score_us": us, "figures": figures}
        (tmp_path / run / "summary.json").write_text(json.dumps(summary))
    out = io.StringIO()
    scores.show_sweep(Console(file=out, width=120), tmp_path)
    lines = out.getvalue().splitlines()
    one, two = (next(at for at, line in enumerate(lines) if f"p/{run}" in line) for run in ("one", "two"))
    assert "x2.03 over PyTorch" in lines[one]
    assert "x9 over NumPy" in lines[one + 1]
    assert "x13.8 over NumPy" in lines[two]
    assert out.getvalue().index("p/two") < out.getvalue().index("p/one")
