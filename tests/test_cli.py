"""The commands as typed, in child processes and an empty folder."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

DRY = ["recipe=dry_run", "problem=softmax"]


def ksflow(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ksflow", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "COLUMNS": "160", **environment},
        check=False,
    )


def test_help_is_useful_and_quick(tmp_path: Path) -> None:
    times = []
    for _ in range(3):
        started = time.monotonic()
        done = ksflow(tmp_path, "--help")
        times.append(time.monotonic() - started)
    assert done.returncode == 0
    for word in ("designer   llm mix random rules tune", "problem.path=", "lineage show ID", "doctor", "-m designer="):
        assert word in done.stdout
    assert min(times) < 1.0
    assert ksflow(tmp_path, "--version").stdout.startswith("ksflow 0.")


def test_a_dry_run_ends_with_table_commit_and_commands(tmp_path: Path) -> None:
    done = ksflow(tmp_path, *DRY, "loop.evaluations=6")
    assert done.returncode == 0, done.stderr
    assert "x baseline" in done.stderr
    assert "git -C runs/lineage.git log --graph --oneline softmax/dry/" in done.stderr
    best = tmp_path / "runs/best/softmax/dry"
    assert (best / "best.py").is_file()
    assert json.loads((best / "evaluation.json").read_text())["evaluation"]["verdict"] == "accept"
    events = next((tmp_path / "runs/logs").glob("*/events.jsonl")).read_text().splitlines()
    assert sum(json.loads(line)["event"] == "done" for line in events) >= 6
    tree = ksflow(tmp_path, "lineage", "problem=softmax", "run=dry")
    assert "00001" in tree.stdout
    shown = ksflow(tmp_path, "lineage", "show", "00005", "problem=softmax", "run=dry")
    assert "experiment (gain" in shown.stdout
    base = shown.stdout.split("base: ")[1][:5]
    changed = ksflow(tmp_path, "lineage", "diff", base, "00005", "problem=softmax", "run=dry")
    assert "\n+" in changed.stdout
    assert "tune:" in changed.stdout


@pytest.mark.slow
def test_a_sweep_ends_with_one_table_of_its_runs(tmp_path: Path) -> None:
    done = ksflow(tmp_path, "-m", *DRY, "loop.evaluations=4", "designer=rules,random", "selector=fastest,tournament")
    assert done.returncode == 0, done.stderr
    table = done.stdout[done.stdout.index("sweep") :]
    for name in ("designer=rules,selector=fastest", "designer=random,selector=tournament"):
        assert name in table
    assert "to best" in table
    tree = ksflow(tmp_path, "lineage", "problem=softmax", "run='designer=random,selector=fastest'")
    assert "accept" in tree.stdout, tree.stderr
    branch = "softmax/designer=random,selector=fastest/00001"
    assert ksflow(tmp_path, "verify", branch, "evaluator=fake").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["llm=gemni"], "did you mean gemini?"),
        (["lineage"], "no lineage at runs/lineage.git"),
        (["frobnicate"], "no command 'frobnicate'; commands: run, problem, evaluate, verify, approve, lineage, doctor"),
        pytest.param(["problem", "chekc"], "commands: problem show, problem check", marks=pytest.mark.slow),
        (["target=mi300x"], "is not in this machine"),
        (["problem.path=no/such/folder"], "no problem.yaml in no/such/folder"),
        pytest.param(["seed=absent.cpp", "evaluator=fake"], "cannot read absent.cpp", marks=pytest.mark.slow),
        (["llm=gemini", "evaluator=fake"], "GEMINI_API_KEY"),
        (["lineage.path=taken", "evaluator=fake"], "taken is not a lineage"),
        pytest.param(
            ["lineage.path=/proc/nowhere/l.git", "evaluator=fake"], "cannot open the lineage", marks=pytest.mark.slow
        ),
        pytest.param(["hydra.run.dir=file/below", "evaluator=fake"], "cannot write here", marks=pytest.mark.slow),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine.txt").write_text("mine")
    (tmp_path / "file").write_text("")
    done = ksflow(tmp_path, *arguments, GEMINI_API_KEY="")
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.strip().splitlines()
    assert message in line
    assert line.startswith("ksflow: ")


@pytest.mark.slow
def test_compilers_alone_cannot_search_and_that_is_said(tmp_path: Path) -> None:
    done = ksflow(tmp_path, "target=mi300x", "evaluator=static", "problem.seeds=[01_naive.hip]")
    assert done.returncode == 2
    assert "nothing was timed, and a search needs times: evaluator=local where the target is" in done.stderr
    assert "00002 untimed" in done.stderr


def test_killed_and_started_again_it_goes_on_without_doing_anything_twice(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ksflow", *DRY, "loop.evaluations=400"]
    for trials in (6, 15):
        with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as victim:
            assert victim.stderr is not None
            for _ in range(trials):
                victim.stderr.readline()
            victim.kill()
    done = ksflow(tmp_path, *DRY, "loop.evaluations=3", "loop.confirm=false")
    assert done.returncode == 0, done.stderr
    store = tmp_path / "runs/lineage.git"
    log = subprocess.run(
        ["git", "-C", store, "for-each-ref", "--format=%(refname:lstrip=4)", "refs/heads/softmax/dry/"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert log == [f"{number:05d}" for number in range(1, len(log) + 1)]
    assert len(log) >= 20
    for name in log:
        form = "--format=%(trailers:key=Trial,valueonly,separator=)"
        first = subprocess.run(
            ["git", "-C", store, "log", "--first-parent", form, f"softmax/dry/{name}"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        assert first.count(name) in (1, 2)  # written and evaluated, or failed: once each


def test_doctor_names_keys_but_never_shows_them(tmp_path: Path) -> None:
    done = ksflow(tmp_path, "doctor", OPENAI_API_KEY="sk-very-secret")
    assert "OPENAI_API_KEY" in done.stdout
    assert "very-secret" not in done.stdout + done.stderr
    assert "isolation" in done.stdout


def test_problem_show_says_what_was_understood(tmp_path: Path) -> None:
    done = ksflow(tmp_path, "problem", "show", "problem.cases=leaderboard")
    assert done.returncode == 0, done.stderr
    assert 'extern "C" void custom_kernel(const uint8_t *a' in done.stdout
    assert "6144x4096x512" in done.stdout
    assert "00_torch.py (baseline)" in done.stdout


@pytest.mark.slow
def test_the_console_script_sees_modules_beside_the_user(tmp_path: Path) -> None:
    (tmp_path / "mystages.py").write_text(
        "from ksflow.stages.selector.fastest import Fastest\nclass Mine(Fastest):\n    pass\n"
    )
    (tmp_path / "conf" / "selector").mkdir(parents=True)
    (tmp_path / "conf" / "selector" / "mine.yaml").write_text("_target_: mystages.Mine\n")
    script = Path(sys.executable).parent / "ksflow"
    done = subprocess.run(
        [script, "--config-dir", "conf", "selector=mine", *DRY, "loop.evaluations=1"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_model_path_runs_without_a_model_and_keeps_its_calls(tmp_path: Path) -> None:
    done = ksflow(tmp_path, *DRY, "llm=dummy", "loop.evaluations=3")
    assert done.returncode == 0, done.stderr
    log = subprocess.run(
        ["git", "-C", tmp_path / "runs/lineage.git", "log", "--format=%s", "refs/ksflow/softmax/dry/calls"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for stage in ("selector=llm", "designer=llm", "writer=rewrite"):
        assert stage in log


@pytest.mark.slow
def test_two_processes_on_one_lineage_lose_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ksflow", *DRY, "loop.evaluations=10", "loop.confirm=false"]
    both = [subprocess.Popen([*command, f"rng={rng}"], cwd=tmp_path, stderr=subprocess.PIPE) for rng in (1, 2)]
    for process in both:
        assert process.communicate(timeout=60)
        assert process.returncode == 0
    tree = ksflow(tmp_path, "lineage", "problem=softmax", "run=dry").stdout.partition("improvements")[0]
    ids = re.findall(r"^\W*(\d{5}) ", tree, re.MULTILINE)
    assert len(set(ids)) == len(ids) == 24 + tree.count("the code of")  # four seeds, ten experiments each, and repeats


def test_offline_runs_import_neither_dspy_nor_torch(tmp_path: Path) -> None:
    script = (
        "import sys; from ksflow.__main__ import main; sys.argv = ['ksflow', *sys.argv[1:]]; main();"
        "print([name for name in ('dspy', 'torch', 'optuna') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *DRY, "loop.evaluations=3"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.slow
def test_a_corrupt_lineage_is_one_line(tmp_path: Path) -> None:
    assert ksflow(tmp_path, *DRY, "loop.evaluations=1").returncode == 0
    for pack in (tmp_path / "runs/lineage.git/objects/pack").glob("*.pack"):
        pack.chmod(0o644)
        pack.write_bytes(b"PACK" + bytes(200))
    done = ksflow(tmp_path, "lineage", "problem=softmax", "run=dry")
    assert done.returncode == 2
    assert done.stderr.startswith("ksflow: ")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow
def test_no_compiler_is_one_line_with_the_remedy(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "git").symlink_to("/usr/bin/git")
    (tmp_path / "ziglang").mkdir()
    (tmp_path / "ziglang" / "__init__.py").write_text("raise SystemExit(1)")
    done = ksflow(tmp_path, "problem=softmax", PATH=str(tools), PYTHONPATH=str(tmp_path))
    assert done.returncode == 2, done.stderr
    assert "apt install g++" in done.stderr.splitlines()[-1]
    assert "ksflow[compiler]" in done.stderr.splitlines()[-1]


@pytest.mark.slow
def test_the_winner_can_be_taken_away_and_is_right(tmp_path: Path) -> None:
    done = ksflow(tmp_path, "problem=softmax", "loop.evaluations=6")
    assert done.returncode == 0, done.stderr
    script = (
        "import torch, best; x = torch.randn(37, 1001); y = torch.zeros_like(x);"
        "out = best.custom_kernel((x, y)); torch.testing.assert_close(out, torch.softmax(x, 1)); print(best.__doc__)"
    )
    checked = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path / "runs/best/softmax/main",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr
    assert "µs (geomean of 512x1024, 2048x256, 64x8192)" in checked.stdout


@pytest.mark.slow
@pytest.mark.parametrize("problem", ["fp8_gemm", "softmax"])
def test_a_shipped_problem_passes_its_own_check(tmp_path: Path, problem: str) -> None:
    done = ksflow(tmp_path, "problem", "check", f"problem={problem}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAIL" not in done.stdout
    assert "ok   rejects zeros" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("problem", ["fp8_gemm", "softmax"])
def test_the_rules_beat_every_seed_of_both_problems(tmp_path: Path, problem: str) -> None:
    done = ksflow(tmp_path, f"problem={problem}", "loop.evaluations=24")
    assert done.returncode == 0, done.stderr
    summary = json.loads(next((tmp_path / "runs/logs").glob("*/summary.json")).read_text())
    assert summary["trials"] == 24
    assert summary["trials_to_best"] > 0  # the winner is an experiment, not a seed
    assert summary["speedup"] > 1
