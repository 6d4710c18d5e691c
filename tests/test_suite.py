"""Many problems under one budget: which members there are, what they come to, and going on after a kill."""

import contextlib
import fcntl
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from conftest import accepted, draft, kernel, paired, until
from rich.console import Console
from test_cli import DRY, ksflow

from ksflow.__main__ import _command
from ksflow.cli import verbs
from ksflow.cli.suite import Session, suite
from ksflow.config.members import Suite, members, of_multirun
from ksflow.errors import ConfigError
from ksflow.evaluation.sandbox.runners.torch_kernel import load_module
from ksflow.home import PACKAGE
from ksflow.kernels.problem.loader import load
from ksflow.kernels.source.answer import replace_main
from ksflow.lineage import Lineage
from ksflow.lm.prompts import render
from ksflow.records import (
    Comparison,
    Evaluation,
    Evidence,
    Origin,
    Population,
    Problem,
    RooflineCase,
    Seed,
    Trial,
    Verdict,
)
from ksflow.report import scores

UPSTREAM = PACKAGE.parent / "benchmarks" / "upstream.py"
SCALE = """import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2


rows = 32


def get_inputs():
    return [torch.rand(rows, 64)]


def get_init_inputs():
    return []
"""
NEW = """import torch

BLOCK = 16  # tune: 16 32 64 128
WIDE = 1  # tune: 1 2 4


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.cat([part.relu() * 2 for part in x.split(BLOCK * WIDE)])
"""


def problem(*seeds: Seed) -> Problem:
    return Problem(
        name="toy", title="", description="", statement="", root="", reference="", languages=("cpp",), args=(),
        dims=(), tests=(), benchmarks=(), seeds=seeds,
        origin={"format": "kernelbench", "path": "/x/level1/4_Toy.py", "level": 1, "number": 4},
    )  # fmt: skip


def population(us: float | None, baseline_us: float = 10.0) -> tuple[Population, Problem]:
    """A baseline, and one experiment: accepted, or wrong."""
    eager = Seed("00_eager.py", kernel("eager"), baseline=True)
    seed = Trial("00001", Origin.SEED, kernel=eager.kernel, name=eager.name, evaluation=accepted(baseline_us))
    verdict = Evaluation(Verdict.INCORRECT, "off") if us is None else accepted(us)
    new = draft("00001")
    tried = Trial("00002", Origin.EXPERIMENT, ("00001",), new.experiment, kernel("new"), evaluation=verdict)
    return paired((seed, tried)), problem(eager)


def row(us: float | None, number: int = 4, **more: Any) -> dict[str, Any]:
    found = scores.figures(*population(us))
    found["origin"] = {**found["origin"], "number": number}
    return {"member": f"problem.id={number}", "problem": "toy", "figures": found, "trials": 1, "tokens": 10,
            "usd": 0.5, "wall_s": 2.0, "state": "finished", **more}  # fmt: skip


def test_each_value_is_a_member_and_the_command_line_wins() -> None:
    plan = Suite(words=("problem=kernelbench", "problem.level=1", "problem.id=range(1,101)"), name="l1")
    assert len(members(plan, [])) == 100
    made = members(plan, ["problem.id=3,7", "llm=dummy,offline", "problem.root=/x"])
    assert [member.key for member in made] == [
        "problem.id=3,llm=dummy",
        "problem.id=3,llm=offline",
        "problem.id=7,llm=dummy",
        "problem.id=7,llm=offline",
    ]
    assert made[0].words == (
        "problem=kernelbench", "problem.level=1", "problem.id=3", "llm=dummy", "problem.root=/x", "run=l1,llm=dummy",
    )  # fmt: skip
    assert made[0].variant == "llm=dummy"
    assert len({member.folder for member in made}) == 4
    runs = [
        [word for word in member.words if word.startswith("run=")]
        for member in members(plan, ["run=mine", "problem.id=3", "llm=dummy,offline"])
    ]
    assert runs == [["run=mine,llm=dummy"], ["run=mine,llm=offline"]]
    assert {member.words[-1] for member in members(plan, ["run=mine"])} == {"run=mine"}
    with pytest.raises(ConfigError, match=r"problem\.id=range\(1"):
        members(plan, ["problem.id=range(1"])
    with pytest.raises(ConfigError, match="at_once"):
        Suite(at_once=0)


def test_fast_p_is_strict_and_over_all_problems() -> None:
    found = scores.totals([row(10.0), row(4.0), row(None), {"state": "failed", "member": "problem.id=9"}])
    assert found["problems"] == 4
    assert found["compiled"] == 0.75
    assert found["right"] == 0.5
    assert found["fast"] == found["fast_mean"] == {"0": 0.5, "1": 0.25, "1.5": 0.25, "2": 0.25}
    assert found["geomean"]["00_eager.py"] == pytest.approx(2.5**0.5)
    assert (found["tokens"], found["usd"], found["wall_s"]) == (30, 1.5, 6.0)


def upstream_fast_p(correct: list[bool], baseline: list[float], actual: list[float], n: int, p: float) -> float:
    """KernelBench's `fastp` in its own words: mean times divided, strictly more than p, over all n."""
    return sum(b / a > p for right, b, a in zip(correct, baseline, actual, strict=True) if right) / n


@pytest.mark.parametrize("p", [0.0, 1.0, 1.5, 2.0])
def test_fast_p_by_means_is_upstream_s(p: float) -> None:
    rows = [row(10.0), row(4.0), row(None), {"state": "failed", "member": "problem.id=9"}]
    times = [10.0, 4.0]
    assert scores.fast_p(rows, p, sure=False) == upstream_fast_p([True, True], [10.0, 10.0], times, 4, p)


def test_fast_0_is_the_share_that_is_right_also_where_no_baseline_was_accepted() -> None:
    known, toy = population(5.0)
    lone = {"figures": scores.figures(paired(known.trials[1:]), toy), "state": "finished"}
    assert lone["figures"]["sure"] == {"00_eager.py": None}
    found = scores.totals([lone, {"state": "failed", "member": "problem.id=9"}])
    assert found["right"] == found["fast"]["0"] == found["fast_mean"]["0"] == 0.5
    assert found["fast"]["1"] == 0.0


def test_a_gain_within_noise_counts_by_its_mean_and_not_for_sure() -> None:
    known, toy = population(5.0)
    versus = Comparison(id="00001", speedup=2.0, low=0.9, high=4.4)
    said = replace(accepted(5.0), evidence=Evidence(against=(versus,)))
    tried = replace(known.trials[1], evaluation=said)
    figures = scores.figures(paired((known.trials[0], tried)), toy)
    rows = [{**row(5.0), "figures": figures}, row(10.0)]
    found = scores.totals(rows)
    assert (found["fast"]["1"], found["fast_mean"]["1"]) == (0.0, 0.5)
    out = io.StringIO()
    scores.show(Console(file=out, width=200), rows)
    assert "0% (50%)" in out.getvalue()
    assert "as KernelBench counts" in " ".join(out.getvalue().split())


def test_a_seed_is_no_answer() -> None:
    known, toy = population(5.0)
    found = scores.figures(paired(known.trials[:1]), toy)
    assert (found["compiled"], found["right"], found["us"]) == (False, False, None)
    assert found["baselines"]["00_eager.py"]["us"] == 10.0


def test_what_was_not_shown_to_be_faster_does_not_count() -> None:
    known, toy = population(5.0)
    seed, tried = known.trials
    versus = Comparison(id="00001", speedup=2.0, low=0.9, high=4.4)
    evaluation = replace(accepted(5.0), evidence=Evidence(against=(versus,)))
    tried = replace(tried, evaluation=evaluation)
    found = scores.figures(paired((seed, tried)), toy)
    assert found["speedups"] == {"00_eager.py": 2.0}
    assert found["sure"] == {"00_eager.py": pytest.approx(0.9)}
    assert found["beside"] == ["x2 [0.9, 4.44] over PyTorch (a tie)"]


@pytest.mark.slow
def test_whoever_states_a_run_s_ratio_states_the_same_over_the_same_baseline(tmp_path: Path) -> None:
    words = [*DRY, "llm=offline", "loop.evaluations=8", "suite.name=one"]
    done = ksflow(tmp_path, "suite", *words)
    assert done.returncode == 0, done.stderr
    row = json.loads((tmp_path / "runs/suites/one/report.json").read_text())["rows"][0]
    whole = row["headline"].partition(": ")[2]
    figure = whole.removesuffix(", the fastest of 2 baselines")
    assert figure != whole
    assert re.fullmatch(r"x[\d.]+ \[[\d.]+, [\d.]+\] over PyTorch", figure)
    assert row["figures"]["beside"][0] == figure
    assert "over NumPy" in row["figures"]["beside"][1]
    assert figure in done.stdout
    sweep = io.StringIO()
    scores.show_sweep(Console(file=sweep, width=160), tmp_path / "runs/suites/one")
    assert figure in sweep.getvalue()
    (folder,) = (tmp_path / "runs/suites/one").glob("*/output.txt")
    assert f"winner {row['best']}: {figure}" in folder.read_text()
    (module,) = (tmp_path / "runs/best/softmax").glob("*/best.py")
    assert figure in module.read_text()
    run = f"softmax/{row['run']}"
    for command in (["runs"], ["lineage", run]):
        assert figure in ksflow(tmp_path, *command).stdout, command
    for kind in ("html", "md"):
        assert ksflow(tmp_path, "report", run, f"format={kind}", f"out=page.{kind}").returncode == 0
        assert figure in (tmp_path / f"page.{kind}").read_text().replace("\\", "")


@pytest.fixture
def upstream() -> ModuleType:
    return load_module("upstream", UPSTREAM)


def test_results_as_the_formats_tools_read_them(upstream: ModuleType, tmp_path: Path) -> None:
    task = row(4.0)
    task["figures"] = {**task["figures"], "origin": {"format": "gpumode", "path": "/x/task"}}
    upstream.write(tmp_path, [row(4.0, 12), row(None, 3), task, {"state": "failed", "member": "x"}])
    folder = tmp_path / "upstream" / "kernelbench_level1"
    samples = json.loads((folder / "eval_results.json").read_text())
    assert list(samples) == ["3", "12"]
    (right,), (wrong,) = samples["12"], samples["3"]
    assert (right["compiled"], right["correctness"], right["runtime"]) == (True, True, 0.004)
    assert right["runtime_stats"]["num_trials"] == 2
    assert (wrong["compiled"], wrong["correctness"], wrong["runtime"]) == (True, False, -1.0)
    assert json.loads((folder / "baseline.json").read_text())["level1"]["4_Toy.py"]["mean"] == 0.01
    paired = row(4.0)
    paired["figures"]["speedups"] = {"00_eager.py": 1.5}  # in turns; the two times are of different minutes
    upstream.write(tmp_path / "paired", [paired])
    file = tmp_path / "paired" / "upstream" / "kernelbench_level1" / "baseline.json"
    assert json.loads(file.read_text())["level1"]["4_Toy.py"]["mean"] == pytest.approx(0.006)
    full = json.loads((tmp_path / "upstream" / "gpumode" / "toy.json").read_text())
    assert full["runs"]["leaderboard"]["run"]["result"]["benchmark.0.best"] == "4000.0"


def test_members_that_failed_are_in_the_exported_files(upstream: ModuleType, tmp_path: Path) -> None:
    """Were they left out, a rate that the formats' tools take of the files would be over fewer problems."""
    (tmp_path / "level1").mkdir()
    (tmp_path / "level1" / "9_Lost.py").touch()
    words = ["problem=kernelbench", "problem.level=1", "problem.id=9", f"problem.root={tmp_path}"]
    failed = {"state": "failed", "why": "it died", "member": "problem.id=9", "words": words}
    left = {"state": "left", "member": "problem.id=10", "words": [*words[:2], "problem.id=10"]}
    task = {
        "state": "failed",
        "member": "problem.path=/y/sort_py",
        "words": ["problem=gpumode", "problem.path=/y/sort_py"],
    }
    upstream.write(
        tmp_path, [row(4.0, 4), failed, left, task, {"state": "failed", "member": "", "words": ["problem=toy"]}]
    )
    folder = tmp_path / "upstream" / "kernelbench_level1"
    samples = json.loads((folder / "eval_results.json").read_text())
    assert [(name, one["compiled"], one["correctness"]) for name, (one,) in samples.items()] == [
        ("4", True, True), ("9", False, False), ("10", False, False),
    ]  # fmt: skip
    baselines = json.loads((folder / "baseline.json").read_text())["level1"]
    assert {name: one["mean"] for name, one in baselines.items()} == {"4_Toy.py": 0.01, "9_Lost.py": -1.0}
    full = json.loads((tmp_path / "upstream" / "gpumode" / "sort_py.json").read_text())
    assert full["runs"]["leaderboard"]["run"]["passed"] is False


def test_what_does_not_choose_the_problem_is_a_variant_with_a_run_of_its_own() -> None:
    made = members(Suite(name="l1"), ["problem=kernelbench", "++problem.id=3,4", "problem.cap=64,128"])
    assert [member.variant for member in made] == ["problem.cap=64", "problem.cap=128"] * 2
    assert {member.words[-1] for member in made} == {"run=l1,problem.cap=64", "run=l1,problem.cap=128"}


def test_files_of_one_name_have_runs_of_their_own() -> None:
    made = members(Suite(name="l1"), ["problem=kernelbench", "problem.path=a/m.py,m.py,a/other.py"])
    assert [member.words[-1] for member in made] == [
        "run=l1,problem.path=a_m.py",
        "run=l1,problem.path=m.py",
        "run=l1",
    ]
    assert {member.variant for member in made} == {""}


def test_a_pattern_of_folders_is_a_member_for_each_problem_of_a_deck(tmp_path: Path) -> None:
    for name in ("07_gemm", "05_topk"):
        (tmp_path / name).mkdir()
    word = f"problem.path={tmp_path}/*"
    made = members(Suite(name="deck"), ["problem=kernelbench", word])
    assert [member.key for member in made] == [f"problem.path={tmp_path}/{name}" for name in ("05_topk", "07_gemm")]
    assert {member.words[-1] for member in made} == {"run=deck"}
    assert of_multirun(["-m", "problem=kernelbench", word]) is not None
    with pytest.raises(ConfigError, match=r"problem\.path=.*/x\*: nothing there has such a name"):
        members(Suite(), [f"problem.path={tmp_path}/x*"])


def test_a_deck_s_table_has_both_shares_of_the_speed_of_light_and_the_board_s_verdict() -> None:
    known, toy = population(5.0)
    near = tuple(RooflineCase(case=name, share=share, theirs=share / 2) for name, share in (("a", 0.4), ("b", 0.1)))
    evidence = Evidence(roofline=near, upstream="its text has F.linear, which upstream forbids")
    trials = [
        t if t.id == "00001" else replace(t, evaluation=replace(accepted(5.0), evidence=evidence)) for t in known.trials
    ]
    found = scores.figures(paired(tuple(trials)), replace(toy, work={"regime": "memory", "bytes": "n"}))
    assert found["sol"] == pytest.approx({"theirs": 0.1, "ours": 0.2})
    shown = io.StringIO()
    scores.show(Console(file=shown, width=150), [{**row(5.0), "figures": found}])
    heads, _, line, *_ = [text for text in shown.getvalue().splitlines() if text.strip()][1:]
    assert heads.split()[:8] == ["problem", "best", "µs", "SOL", "theirs", "SOL", "ours", "verdict"]
    assert line.split()[:7] == ["toy", "5", "10", "%", "20", "%", "accept;"]
    assert {"tokens", "cost"} <= {*heads.split()}
    assert scores.figures(known, toy)["sol"] == {}


def test_hydras_multirun_over_problems_is_a_suite_with_one_budget_and_a_name_of_its_words() -> None:
    words = ["problem=kernelbench", "problem.id=range(1,4)", "llm=offline"]
    found = of_multirun(["-m", *words, "loop.usd=5", "loop.evaluations=3"])
    assert found is not None
    assert found[:-1] == [*words, "loop.evaluations=3", "suite.usd=5"]
    assert found[-1].startswith("suite.name=kernelbench_range_1_4-")
    again = of_multirun([*reversed(words), "loop.usd=7", "--multirun"])
    assert again is not None
    assert again[-1] == found[-1]
    other = of_multirun(["-m", *words, "designer=random"])
    assert other is not None
    assert other[-1] != found[-1]
    apart = of_multirun(["-m", *words, "loop.minutes=2", "suite.minutes=9", "suite.name=mine"])
    assert apart == [*words, "loop.minutes=2", "suite.minutes=9", "suite.name=mine"]


@pytest.mark.parametrize(
    "words",
    [
        ["problem=softmax,fp8_gemm"],
        ["-m", "problem=softmax", "problem.cap=64", "designer=tune,random"],
        ["-m", "problem=softmax,fp8_gemm", "hydra/launcher=joblib"],
        ["-m", "problem=softmax,fp8_gemm", "hydra.sweeper.n_trials=8"],
        ["-m", "problem=softmax,fp8_gemm", "--info"],
    ],
)
def test_other_sweeps_stay_hydras(words: list[str]) -> None:
    assert of_multirun(words) is None


def test_a_users_configs_hold_for_all_members(tmp_path: Path) -> None:
    found = of_multirun(["-m", "-cd", str(tmp_path), "problem=softmax,fp8_gemm"])
    assert found is not None
    assert found[0] == f"--config-dir={tmp_path}"
    assert all(member.words[0] == found[0] for member in members(Suite(), found[:-1]))


def test_a_table_shows_words_in_brackets_as_they_are() -> None:
    """Names of files and words of foreign code are no markup."""
    shown = io.StringIO()
    row = {"state": "failed", "why": "no [/bold] in [red]x", "member": "problem.path=a[/b]", "variant": "q=[c]"}
    scores.show(Console(file=shown, width=160), [row])
    assert all(word in shown.getvalue() for word in ("no [/bold] in [red]x", "problem.path=a[/b]", "q=[c]"))


def test_what_a_member_paid_stays_paid_when_it_is_begun_again(tmp_path: Path) -> None:
    plan = Suite(usd=5.0, name="x")
    made = members(plan, ["problem=softmax,fp8_gemm"])
    file = tmp_path / made[0].folder / "row.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"state": "interrupted", "usd": 3.0, "words": list(made[0].words)}))
    session = Session(plan, made, tmp_path, Console(file=io.StringIO()))
    assert session._usd() == 2.0
    with subprocess.Popen(["true"]) as running:
        made[0].usd, made[0].process = 1.0, running
        assert session._usd() == 1.0


def test_a_problem_without_a_new_kernel_does_not_name_the_seeds_time() -> None:
    known, toy = population(5.0)
    idle = {**row(None), "figures": scores.figures(paired(known.trials[:1]), toy), "trials": 0}
    assert scores.summary(idle) == "problem.id=4: none written in 2 s"
    assert scores.summary(row(None)) == "problem.id=4: none right in 2 s"
    assert scores.summary(row(5.0)) == "problem.id=4: 5 µs (x2 [1.98, 2.02] over PyTorch) in 2 s"


WORDS = ["suite", "problem=kernelbench", "problem.root=.", "problem.level=1", "problem.id=range(1,4)"]
WORDS += ["seed_kernels=mine.py", "llm=offline", "designer=tune", "evaluator=fake"]
WORDS += ["loop.evaluations=3", "suite.name=three"]


def three(folder: Path) -> list[str]:
    """The command for a suite of three problems whose second is broken."""
    (folder / "level1").mkdir()
    for number, text in enumerate((SCALE, "class Model:\n    pass\n", SCALE.replace("32", "48")), start=1):
        (folder / "level1" / f"{number}_Scale.py").write_text(text)
    (folder / "mine.py").write_text(NEW)
    return [sys.executable, "-m", "ksflow", *WORDS]


def said(folder: Path, command: list[str]) -> "subprocess.CompletedProcess[str]":
    return ksflow(folder, *command[3:])


def killed_at(folder: Path, command: list[str], member: str) -> None:
    """Start it, and kill it when a member has begun: then nothing of it goes on."""
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL) as victim:
        until(lambda: any(member in words for words in at_work(folder)))
        victim.kill()
    until(lambda: not at_work(folder))


def at_work(folder: Path) -> list[list[str]]:
    """What the processes were started with whose working directory that is."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "cwd").readlink() == folder:
                found.append((process / "cmdline").read_text().split("\0"))
    return found


def branches(store: Path, pattern: str) -> str:
    """Those that there are."""
    command = ["git", "-C", store, "for-each-ref", pattern]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout if store.exists() else ""


@pytest.mark.slow
def test_killed_and_started_again_it_goes_on_and_one_broken_problem_stops_no_other(tmp_path: Path) -> None:
    command = three(tmp_path)
    folder = tmp_path / "runs" / "suites" / "three"
    first = folder / "problem.id=1" / "row.json"
    killed_at(tmp_path, command, "problem.id=3")
    assert json.loads(first.read_text())["state"] == "finished"
    before = first.stat().st_mtime_ns
    third = folder / "problem.id=3"
    begun = json.loads((third / "row.json").read_text())["begun"]
    ran = (third / "output.txt").stat().st_mtime - begun

    done = said(tmp_path, command)
    assert done.returncode == 1, done.stderr
    assert "2_Scale.py defines no get_inputs" in done.stderr
    assert "fast_1.5" in done.stdout
    assert first.stat().st_mtime_ns == before
    report = json.loads((folder / "report.json").read_text())
    assert report["totals"][""]["right"] == pytest.approx(2 / 3)
    assert [row["state"] for row in report["rows"]] == ["finished", "failed", "finished"]
    assert report["rows"][2]["trials"] == 3
    assert report["rows"][2]["wall_s"] > ran  # before it was killed, and after
    subprocess.run([sys.executable, UPSTREAM, folder], check=True)
    samples = json.loads((folder / "upstream" / "kernelbench_level1" / "eval_results.json").read_text())
    assert [samples[name][0]["correctness"] for name in "123"] == [True, False, True]
    best = next((tmp_path / "runs" / "best" / "kernelbench-1-1_Scale" / "three").glob("*.py"))
    assert "class ModelNew" in best.read_text()

    other = said(tmp_path, [*command, "designer=random"])
    assert other.returncode == 2
    assert "give suite.name=ANOTHER" in other.stderr


@pytest.mark.slow
@pytest.mark.soak
def test_multirun_over_problems_goes_on_when_it_was_killed(tmp_path: Path) -> None:
    command = three(tmp_path)[:3]
    words = ["problem=kernelbench", "problem.root=.", "problem.level=1", "problem.id=1,3", "seed_kernels=mine.py"]
    command = [*command, "-m", *words, "evaluator=fake", "loop.evaluations=2", "suite.name=typed"]
    folder = tmp_path / "runs" / "suites" / "typed"
    killed_at(tmp_path, command, "problem.id=3")
    before = (folder / "problem.id=1" / "row.json").stat().st_mtime_ns
    done = said(tmp_path, command)
    assert done.returncode == 0, done.stderr
    assert "suite of 2: no budget for all together" in done.stderr
    assert (folder / "problem.id=1" / "row.json").stat().st_mtime_ns == before
    assert [row["trials"] for row in json.loads((folder / "report.json").read_text())["rows"]] == [2, 2]


@pytest.mark.slow
@pytest.mark.soak
def test_one_budget_holds_for_all_members_of_a_multirun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    prices = ["model.usd_per_mtok_in=10", "model.usd_per_mtok_out=10", "loop.evaluations=40"]
    words = ["-m", "problem=softmax,fp8_gemm", "llm=dummy", "evaluator=fake", *prices]
    assert verbs.run([], [*words, "loop.usd=2"]) == 0
    (file,) = tmp_path.glob("runs/suites/softmax_fp8_gemm-*/report.json")
    rows = json.loads(file.read_text())["rows"]
    assert 0 < sum(row["usd"] for row in rows) <= 2
    assert [row["state"] for row in rows] == ["finished"] * 2
    assert all("usd=" in row["reason"] for row in rows)
    assert "$2 for all together" in capsys.readouterr().err


@pytest.mark.slow
def test_asked_to_end_it_leaves_a_table(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ksflow", "-m", "problem=softmax,fp8_gemm", "evaluator=fake"]
    command += ["loop.minutes=60", "loop.evaluations=100000"]
    wide = {**os.environ, "COLUMNS": "160"}
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=wide
    ) as asked:
        until(lambda: list(tmp_path.glob("runs/suites/*/problem=softmax/row.json")))
        until(lambda: branches(tmp_path / "runs/lineage.git", "refs/heads/softmax/*/00002"))
        asked.terminate()
        table, _ = asked.communicate(timeout=300)
    assert asked.returncode == 130
    assert "left: interrupted" in table
    assert list(tmp_path.glob("runs/suites/*/report.json"))


@contextlib.contextmanager
def _held(folder: Path) -> Iterator[None]:
    """As by another call of the same suite."""
    folder.mkdir(parents=True)
    with (folder / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def test_what_would_fail_every_member_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GEMINI_API_KEY", raising=False)
    with pytest.raises(ConfigError, match=r"suite=kernelbench_l1 needs problem.root=FOLDER$"):
        suite([], ["suite=kernelbench_l1"])
    with pytest.raises(ConfigError, match=r"needs problem.root=FOLDER, and /nowhere is none"):
        suite([], ["suite=kernelbench_l1", "problem.root=/nowhere"])
    with pytest.raises(ConfigError, match="GEMINI_API_KEY"):
        suite([], ["problem=softmax,fp8_gemm", "llm=gemini"])
    with _held(tmp_path / "runs" / "suites" / "held"), pytest.raises(ConfigError, match="another process works in"):
        suite([], ["problem=softmax", "suite.name=held"])
    shutil.rmtree(tmp_path / "runs")
    (tmp_path / "runs").write_text("a file where a folder should be")
    assert _command(["suite", "problem=softmax"]) == 2
    told = capsys.readouterr()
    assert "go to a folder you can write to" in told.err
    assert told.out == ""


PYTHON = """import numpy as np

BLOCK = 16  # tune: 8 16 32 64
UNROLL = 1  # tune: 1 2 4


def custom_kernel(data):
    x, y = (tensor.numpy() for tensor in data)
    for row in range(0, len(x), BLOCK):
        e = np.exp(x[row : row + BLOCK] - x[row : row + BLOCK].max(1, keepdims=True))
        y[row : row + BLOCK] = e / e.sum(1, keepdims=True)
    return data[1]
"""


@pytest.mark.slow
def test_languages_side_by_side_then_the_fastest_for_as_much_again(tmp_path: Path) -> None:
    (tmp_path / "rows.py").write_text(PYTHON)
    words = ["suite=bakeoff", "recipe=dry_run", "problem=softmax", "language=cpp,python,hip", "suite.finalists=1"]
    more = ["seed_kernels=rows.py", "loop.evaluations=6", "loop.confirm=false", "digester=none", "suite.minutes=30"]
    more += ["random_seed=3"]  # of made-up times, by which the kernels in C++ are the fastest
    command = [sys.executable, "-m", "ksflow", "suite", *words, *more]
    done = said(tmp_path, command)
    assert done.returncode == 1, done.stderr  # one lane has no compiler here, which stops no other
    assert "language=hip: failed: language=hip: softmax takes here: python, cpp" in done.stderr
    report = json.loads((tmp_path / "runs/suites/bakeoff/report.json").read_text())
    first, second, failed = report["rows"]
    assert failed["state"] == "failed"
    assert first["final"]
    assert f"{first['member']} goes on for as much again" in done.stderr
    assert (first["trials"], second["trials"]) == (12, 6)
    assert first["figures"]["us"] < second["figures"]["us"]
    assert sum(first["verdicts"].values()) == 12
    for row in (first, second):
        language = row["member"].removeprefix("language=")
        assert [*row["figures"]["baselines"]] == ["00_numpy.py", "00_torch.py"]
        with contextlib.closing(Lineage(tmp_path / "runs/lineage.git", "softmax", row["run"])) as lineage:
            new = [t.kernel.language for t in lineage.all_trials() if t.origin is not Origin.SEED and t.kernel]
        assert {*new} == {language}
    assert "bakeoff" in done.stdout
    page = (tmp_path / "runs/suites/bakeoff/softmax.html").read_text()
    assert page.count('"run":"bakeoff,language=') == 2
    again = said(tmp_path, command)
    assert "goes on for as much again" not in again.stderr
    assert [
        row.get("trials") for row in json.loads((tmp_path / "runs/suites/bakeoff/report.json").read_text())["rows"]
    ][:2] == [12, 6]


def test_a_model_is_asked_for_the_lanes_language_whatever_the_base_is_in() -> None:
    lane = load("softmax").keeping_to("cpp")
    assert [seed.name for seed in lane.seeds] == ["00_numpy.py", "00_torch.py", "01_naive.cpp", "02_rows.cpp"]
    assert "Languages that a kernel may be in: cpp." in render.task(lane)
    base = lane.seeds[0].kernel
    text = render.interface(lane, base)
    assert "The answer is in cpp, whatever the base is in: the first line of the file then gives its name" in text
    assert "`// file: kernel.cpp`" in text
    with pytest.raises(ValueError, match=r"is python; the task takes: cpp"):
        replace_main(base, PYTHON, lane.writable_languages, "")
    assert (
        replace_main(base, "// file: kernel.cpp\nvoid custom_kernel() {}", lane.writable_languages, "").language
        == "cpp"
    )


def test_a_bakeoff_wants_variants() -> None:
    with pytest.raises(
        ConfigError, match="suite=bakeoff compares variants: name some, such as language=cuda,triton,python"
    ):
        suite([], ["suite=bakeoff", "problem=softmax"])
