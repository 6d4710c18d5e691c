"""The commands as typed, in child processes and an empty folder."""

import itertools
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
import warm

from ksflow.cli import usage, verbs
from ksflow.config import compose, keys, pages
from ksflow.home import PACKAGE, expand_home, shipped_path

AT_START = {"PATH", "PYTHONPATH", "PYTHONOPTIMIZE"}
"""What a process takes from its environment before anything else."""
OWN_OPTIONS = {"out", "details", "note", "sign", "force", "again", "format", "port", "stages", "run", "test_problems"}
OWN_OPTIONS |= {"cases"}
"""Keys that a command knows by itself."""
DRY = ["recipe=dry_run", "problem=softmax"]


def ksflow(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """One command, in a process of its own."""
    wanted = {**os.environ, "COLUMNS": "160", **environment}
    if not environment.keys().isdisjoint(AT_START):
        command = [sys.executable, "-m", "ksflow", *arguments]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, env=wanted, check=False)
    return warm.run(folder, [*arguments], wanted)


def test_a_python_that_is_called_by_a_roundabout_way_is_the_same(tmp_path: Path) -> None:
    """Compilers are started with it in sandboxes, which do not have the folders that the way leads through."""
    folder, name = os.path.split(sys.executable)
    (tmp_path / "here").mkdir()
    odd = f"{tmp_path}/here/{os.path.relpath(folder, tmp_path / 'here')}/{name}"
    script = (
        "import sys; from ksflow import __main__; sys.argv[1:] = ['--version']; __main__.main(); print(sys.executable)"
    )
    done = subprocess.run([odd, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == f"{os.path.realpath(folder)}/{name}"


def test_help_is_useful_and_loads_nothing_heavy(tmp_path: Path) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "ksflow", "--help"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    words = ("designer   agent llm mix", "problem.path=", "lineage [NAME] show ID", "ksflow doctor", "-m designer=")
    for word in words:
        assert word in done.stdout
    first, second = (
        done.stdout.index(f"\n{head}:\n  ksflow ") for head in ("Your own problem", "What runs have found")
    )
    assert first < done.stdout.index("ksflow isolate") < done.stdout.index("ksflow apply") < second
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "ksflow.errors" in loaded
    assert loaded.isdisjoint({"git", "hydra", "pydantic", "rich", "torch", "dspy"})
    assert ksflow(tmp_path, "--version").stdout.startswith("ksflow 0.")


def test_the_options_of_a_group_and_the_problems_of_a_folder_are_listed(tmp_path: Path) -> None:
    shutil.copytree(shipped_path("examples", "own_problem", "column_sums"), tmp_path / "sums")
    shown = ksflow(tmp_path, "problem", "list").stdout
    assert "problem=softmax\n    Row softmax\n" in shown
    assert "problem=sums\n    Column sums (in this folder)\n" in shown
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "problem.yaml").write_text("title: [1")
    assert "problem=odd\n    its problem.yaml is not YAML" in ksflow(tmp_path, "problem", "list").stdout
    assert ksflow(tmp_path, "problem=sums", "--help").stdout.startswith(
        "problem=sums\n    Column sums (in this folder)\n"
    )


@pytest.mark.slow
def test_every_option_and_part_shows_each_key_with_default_type_and_purpose() -> None:
    parts = [f"{group}={option}" for group in keys.groups() for option in keys.options(group)]
    for part in [*parts, "loop", "lineage", "knowledge", "optimize"]:
        head, *lines = pages.pages([part]).splitlines()
        assert head.removesuffix("  (default)") == part
        assert lines[0].startswith("    ")
        for line, after in itertools.pairwise([*lines, ""]):
            if not line.startswith("        ") and "=" in line and line.endswith(")"):
                assert re.fullmatch(r"    [a-z][\w.]+(?:\.KEY)?=.+  \(.+\)", line), line
                assert after.startswith("        "), (part, line)
    axes = "    selector.axes=[language,features,structure]  (Sequence[str])\n        What tells kernels apart"
    assert axes in pages.pages(["selector=map_elites"])
    assert axes in pages.pages(["selector"])


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        (["loop", "--help"], "    loop.repairs=0  (int)\n        How often"),
        (["loop.repairs=3", "-h"], "    loop.repairs=0  (int)\n        How often"),
        (["loop.stages.writer.usd=3", "--help"], "    loop.stages=null  (Mapping["),
        (["--help", "selector"], "selector=map_elites\n    The best kernel"),
        (["help", "selector=map_elites", "loop.repairs"], "selector=map_elites\n    The best kernel"),
        (["problem=softmax", "--help"], "problem=softmax\n    Row softmax\n    problem.path=softmax  (str)\n"),
        (["run", "problem=softmax", "-h"], "  ksflow [problem=NAME] [llm=NAME]"),
        (["selector=fastest", "--help"], "selector=fastest  (default)\n    Best kernel"),
        (["--help"], "  designer   agent llm mix random rules (default) tune\n"),
        (["inherit", "--help"], "inherit=null\n    RUN, PROBLEM/RUN"),
        (["llm=gemini", "--help"], "Keys of the model: `ksflow model=gemini --help`."),
        (["-m", "--help"], "ksflow 0."),
    ],
)
def test_help_explains_what_it_stands_beside(tmp_path: Path, typed: list[str], shown: str) -> None:
    done = ksflow(tmp_path, *typed)
    assert done.returncode == 0
    assert shown in done.stdout


@pytest.mark.parametrize("typed", [["llm", "--help"], ["llm", "list"], ["llm"]])
def test_providers_are_listed_with_what_they_read_and_whether_it_is_set(tmp_path: Path, typed: list[str]) -> None:
    shown = ksflow(tmp_path, *typed, GEMINI_API_KEY="secret-of-mine", OPENAI_API_KEY="", LLM_URL="").stdout
    assert "secret-of-mine" not in shown
    for row in (
        r"llm=gemini +GEMINI_API_KEY +set",
        r"llm=openai +OPENAI_API_KEY +not set, and needed",
        r"llm=openai_compatible +LLM_MODEL +not set: default\n +LLM_URL +not set: http://localhost:8000/v1",
    ):
        assert re.search(f"^  {row}$", shown, re.MULTILINE), shown
    assert ("export LLM_URL=" in shown) is (typed[-1] == "--help")


def test_a_dry_run_ends_with_table_commit_and_commands(tmp_path: Path) -> None:
    done = ksflow(tmp_path, *DRY, "loop.evaluations=6")
    assert done.returncode == 0, done.stderr
    assert "x PyTorch" in done.stderr
    *_, last = done.stderr.splitlines()
    assert last.startswith("next: python -m ksflow report problem=softmax run=dry")
    ending = done.stderr[done.stderr.index("\nwinner ") :].strip().splitlines()
    assert len(ending) <= 6
    assert any(line.startswith("files: runs/best/softmax/dry: best.py") for line in ending)
    best = tmp_path / "runs/best/softmax/dry"
    assert (best / "best.py").is_file()
    assert json.loads((best / "evaluation.json").read_text())["evaluation"]["verdict"] == "accept"
    events = next((tmp_path / "runs/logs").glob("*/events.jsonl")).read_text().splitlines()
    assert sum(json.loads(line)["event"] == "done" for line in events) >= 6
    tree = ksflow(tmp_path, "lineage", "problem=softmax", "run=dry")
    assert "00001" in tree.stdout
    assert "git -C runs/lineage.git log --graph --oneline softmax/dry/" in tree.stdout
    shown = ksflow(tmp_path, "lineage", "show", "00005", "problem=softmax", "run=dry")
    for told in ("what was tried", "predicted: a gain of ", "what came out", "verdict ", "details=true"):
        assert told in shown.stdout
    assert "fake: true" not in shown.stdout
    details = ksflow(tmp_path, "lineage", "show", "00005", "problem=softmax", "run=dry", "details=true")
    assert "fake: true" in details.stdout
    base = shown.stdout.split("base: ")[1][:5]
    assert ksflow(tmp_path, "lineage", "show", "5", "problem=softmax", "run=dry").stdout == shown.stdout
    changed = ksflow(tmp_path, "lineage", "diff", base.lstrip("0"), "5", "problem=softmax", "run=dry")
    assert "\n+" in changed.stdout
    assert "tune:" in changed.stdout


@pytest.mark.slow
def test_a_sweep_ends_with_one_table_of_its_runs(tmp_path: Path) -> None:
    words = ("loop.evaluations=8", "designer=rules,random", "selector=fastest,tournament")
    done = ksflow(tmp_path, "-m", *DRY, *words)
    assert done.returncode == 0, done.stderr
    table = done.stdout[done.stdout.index("sweep") :]
    (head,) = [line for line in table.splitlines() if "best µs" in line]
    names = "".join(line[: head.index("best µs")].strip() for line in table.splitlines())  # a long one has two lines
    for name in ("designer=rules,selector=fastest", "designer=random,selector=tournament"):
        assert name in names
    assert "to best" in table
    tree = ksflow(tmp_path, "lineage", "problem=softmax", "run='designer=random,selector=fastest'")
    assert "accept" in tree.stdout, tree.stderr
    branch = "softmax/designer=random,selector=fastest/00001"
    assert ksflow(tmp_path, "verify", branch, "evaluator=fake").returncode == 0


@pytest.mark.slow
def test_a_variant_that_fails_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    done = ksflow(tmp_path, "-m", *DRY, "loop.evaluations=1", "designer=random", "designer.seed=1,x")
    assert done.returncode == 2
    assert "failed: designer.seed=x: designer.seed=x must be a number" in done.stderr
    assert done.stderr.splitlines()[-1] == "ksflow: designer.seed=x: designer.seed=x must be a number"
    assert "softmax/designer.seed=1" in done.stdout


@pytest.mark.slow
def test_ctrl_c_ends_a_sweep(tmp_path: Path) -> None:
    words = ["-m", "designer=random,rules,tune", *DRY, "loop.evaluations=100000"]
    with subprocess.Popen(
        [sys.executable, "-m", "ksflow", *words],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "160"},
    ) as sweep:
        assert sweep.stderr
        assert any("00007" in line for line in sweep.stderr)
        sweep.send_signal(signal.SIGINT)
        said, shown = sweep.communicate(timeout=600)[::-1]
    assert sweep.returncode == 0
    assert "stopped: interrupted" in said
    assert said.count("the sweep's variants that follow are not begun") == 1
    assert "designer=random" in shown
    assert "designer=rules" not in shown
    assert "designer=rules" not in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["llm=gemni"], "did you mean gemini? valid: anthropic"),
        (["lineage"], "no lineage at runs/lineage.git"),
        (["frobnicate"], "no command 'frobnicate'; commands: run, demo, suite, tune, init, isolate, problem, evaluate"),
        (["lineag"], "no command 'lineag'; did you mean lineage? commands: run"),
        (["export"], "no command 'export'; did you mean runs export? commands: run"),
        (["problems"], "no command 'problems'; did you mean problem show or problem check or problem list? commands"),
        (["selector"], "did you mean selector=NAME? `ksflow selector --help` lists them; commands: run"),
        (["--loop.evaluations", "4"], "--loop.evaluations is no flag: write loop.evaluations=4"),
        (["lineage", "--run", "main"], "--run is no flag of this command"),
        (["-m", "hydra/sweeper=optuna", "evaluator=fake"], "hydra/sweeper=optuna is not installed: pip install -e"),
        (["problem=no/such/folder", "evaluator=fake"], "no problem.yaml in no/such/folder"),
        (["problem.path=~/no/such", "evaluator=fake"], "/no/such; "),
        pytest.param(["problem", "chekc"], "did you mean problem check?", marks=pytest.mark.slow),
        (["problem=softmax", "--dry-run"], "no flag --dry-run; a search that compiles nothing is recipe=dry_run;"),
        (["--verson"], "no flag --verson; did you mean --version?"),
        (["+foo=1", "evaluator=fake"], "+foo= would be read by nothing: no key 'foo'; valid: agent"),
        (["model.name=x", "evaluator=fake"], "model.name= would be read by nothing: no stage asks a model; add llm="),
        (["~designer", "evaluator=fake"], "~designer takes away what every run reads"),
        pytest.param(["--shell-completion", "foo"], "takes install=bash, zsh or fish", marks=pytest.mark.slow),
        (
            ["-m", "problem=softmax,fp8_gemm", "--cfg", "job"],
            "--cfg shows one configuration and runs nothing: leave -m",
        ),
        (["suite", "suite=kernelbench_l1", "--cfg", "job"], "--cfg is no flag of this command, which takes key=value"),
        pytest.param(["lineage", "-m", "designer=rules"], "-m is no flag of this command", marks=pytest.mark.slow),
        (["target=mi300x"], "is not in this machine"),
        (["problem.path=no/such/folder", "evaluator=fake"], "no problem.yaml in no/such/folder"),
        pytest.param(["seed_kernels=absent.cpp", "evaluator=fake"], "cannot read absent.cpp", marks=pytest.mark.slow),
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
    assert "00002  untimed" in done.stderr


@pytest.mark.slow
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
    assert "tensormap" not in done.stdout
    newer = ksflow(tmp_path, "problem", "show", "target=h200").stdout
    assert "// tensormap: NAME TENSOR DTYPE [EXTENTS]" in newer
    assert "griddepcontrol.wait" in newer
    assert "tensormap" not in ksflow(tmp_path, "problem", "show", "target=a100").stdout


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
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
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
        assert stage in log, f"{log}\n{done.stdout}\n{done.stderr}"


@pytest.mark.slow
def test_problems_of_one_name_in_two_folders_do_not_share_a_run(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        shutil.copytree(shipped_path("problems", "softmax"), tmp_path / folder / "softmax")
        shutil.copytree(shipped_path("seeds", "softmax"), tmp_path / folder / "softmax" / "seeds")
    words = ["recipe=dry_run", "loop.evaluations=1", "loop.confirm=false"]
    assert ksflow(tmp_path, *words, "problem.path=a/softmax").returncode == 0
    other = ksflow(tmp_path, *words, "problem.path=b/softmax")
    assert other.returncode == 2
    assert f"run=dry of softmax is for {tmp_path}/a/softmax, and {tmp_path}/b/softmax is another" in other.stderr
    assert ksflow(tmp_path, *words, "problem.path=b/softmax", "run=b").returncode == 0
    (tmp_path / "a").rename(tmp_path / "moved")
    assert ksflow(tmp_path, *words, "problem.path=moved/softmax").returncode == 0


@pytest.mark.slow
@pytest.mark.soak
def test_two_processes_on_one_lineage_lose_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ksflow", *DRY, "loop.evaluations=10", "loop.confirm=false"]
    both = [
        subprocess.Popen([*command, f"random_seed={seed}"], cwd=tmp_path, stderr=subprocess.PIPE) for seed in (1, 2)
    ]
    for process in both:
        assert process.communicate(timeout=600)
        assert process.returncode == 0
    tree = ksflow(tmp_path, "lineage", "problem=softmax", "run=dry").stdout.partition("improvements")[0]
    ids = re.findall(r"^\W*(\d{5}) ", tree, re.MULTILINE)
    assert len(set(ids)) == len(ids) == 24 + tree.count("same code as")  # four seeds, ten experiments each, and repeats


@pytest.mark.slow
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
        timeout=600,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.slow
def test_of_a_corrupt_lineage_each_branch_is_named_in_a_line(tmp_path: Path) -> None:
    assert ksflow(tmp_path, *DRY, "loop.evaluations=1").returncode == 0
    for pack in (tmp_path / "runs/lineage.git/objects/pack").glob("*.pack"):
        pack.chmod(0o644)
        pack.write_bytes(b"PACK" + bytes(200))
    done = ksflow(tmp_path, "lineage", "problem=softmax", "run=dry")
    assert done.returncode == 2
    *passed_over, last = done.stderr.splitlines()
    assert all(line.startswith("passed over: branch softmax/dry/") for line in passed_over)
    assert last.startswith("ksflow: ")


@pytest.mark.slow
def test_children_find_what_the_python_has_and_say_what_it_lacks(tmp_path: Path) -> None:
    venv.create(tmp_path / "env", symlinks=True)
    python, packages = tmp_path / "env/bin/python", sysconfig.get_path("purelib")

    def typed(path: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": path, "COLUMNS": "160"}
        command = [python, "-m", "ksflow", "problem=softmax", *arguments]
        if arguments[0] == "evaluate":
            command = [python, "-m", "ksflow", *arguments, "problem=softmax"]
        if arguments[0] == "doctor":
            command = [python, "-m", "ksflow", *arguments]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    lacking = typed(f"{PACKAGE.parent}:{packages}", "evaluate", "01_naive.cpp", "cache=false")
    assert lacking.returncode == 3, lacking.stderr
    assert "No module named 'torch'; it reads neither PYTHONPATH nor ~/.local: install it into" in lacking.stdout
    told = typed(f"{PACKAGE.parent}:{packages}", "doctor")
    assert "kernels cannot use it: they read neither PYTHONPATH nor ~/.local" in told.stdout
    next((tmp_path / "env/lib").glob("*/site-packages")).joinpath("more.pth").write_text(packages)
    assert "kernels cannot use it" not in typed(str(PACKAGE.parent), "doctor").stdout
    found = typed(str(PACKAGE.parent), "evaluator=fake", "loop.evaluations=0")
    assert found.returncode == 0, found.stderr
    assert "handover/module.py" in found.stderr
    assert "not handed over" not in found.stderr


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
    assert "00_numpy.py" not in done.stderr, "a seed was judged before"


def explores(folder: Path, problem: str, trials: int, *words: str) -> None:
    done = ksflow(folder, f"problem={problem}", f"loop.evaluations={trials}", *words)
    assert done.returncode == 0, done.stderr
    summary = json.loads(next((folder / "runs/logs").glob("*/summary.json")).read_text())
    assert summary["trials"] == trials
    assert summary["correct"] > 0
    assert f"\n{summary['headline']}\n" in done.stderr
    assert summary["headline"].startswith((f"winner {summary['best']}: ", "no winner: "))


def test_a_baseline_that_wins_is_not_handed_over(tmp_path: Path) -> None:
    done = ksflow(tmp_path, *DRY, "loop.evaluations=0", "loop.confirm=false", "problem.seeds=[00_torch.py]")
    assert done.returncode == 0, done.stderr
    assert re.search(r"\nfiles: none, as \w+ is a baseline, and no kernel is ahead of it\n", done.stderr)
    assert not (tmp_path / "runs" / "best").exists()


@pytest.mark.slow
@pytest.mark.soak
def test_the_rules_explore_the_matrix_product(tmp_path: Path) -> None:
    explores(tmp_path, "fp8_gemm", 3, "problem.seeds=[03_tiles.cpp]")


@pytest.mark.soak
@pytest.mark.slow
def test_the_rules_explore_the_softmax_and_the_winner_can_be_taken_away(tmp_path: Path) -> None:
    mine = tmp_path / "softmax"  # without baselines, of which none is handed over where it wins on a busy machine
    shutil.copytree(shipped_path("problems", "softmax"), mine)
    (mine / "seeds").mkdir()
    shutil.copy(shipped_path("seeds", "softmax", "02_rows.cpp"), mine / "seeds")
    spec = (mine / "problem.yaml").read_text()
    (mine / "problem.yaml").write_text(re.sub("(?m)^baselines: .*$", "baselines: []", spec))
    explores(tmp_path, "./softmax", 3)
    script = (
        "import runpy, sys, torch; kernel = runpy.run_path(sys.argv[1])['custom_kernel'];"
        "x = torch.randn(37, 1001); y = torch.zeros_like(x);"
        "torch.testing.assert_close(kernel((x, y)), torch.softmax(x, 1))"
    )
    (file,) = (tmp_path / "runs/best/softmax/main").glob("*.py")
    checked = subprocess.run(
        [sys.executable, "-c", script, file],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr


def examples(command: str) -> list[str]:
    """Those of a command's page, as they are typed."""
    return [line.strip() for line in usage.command_page(command).rpartition("Examples:\n")[2].splitlines()]


@pytest.mark.slow
def test_every_command_has_a_page_of_its_own_without_loading_anything(tmp_path: Path) -> None:
    pages = {name: ksflow(tmp_path, name, "--help").stdout for name in usage.COMMANDS}
    assert len(set(pages.values())) == len(pages)
    for name, page in pages.items():
        assert page.startswith("  ksflow ")
        assert max(map(len, page.splitlines())) <= 80, page
        typed = examples(name)
        assert len(typed) == 2
        assert all(line.startswith("ksflow " if name == "run" else f"ksflow {name}") for line in typed)
    assert set(usage.COMMANDS) == {*verbs.COMMANDS, "worker"}


@pytest.mark.slow
def test_each_example_of_a_page_fits_the_configuration() -> None:
    for name in usage.COMMANDS:
        for line in examples(name):
            words = shlex.split(line)[1:]
            given = [word for word in words if "=" in word and word.partition("=")[0] not in OWN_OPTIONS]
            if name not in ("doctor", "skill", "init", "worker", "optimize", "suite", "model"):
                compose.compose([word for word in given if not word.startswith("problem=softmax,")])


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["linage"], "no command 'linage'; did you mean lineage?"),
        (["best"], "no command 'best'; `ksflow lineage` shows the winner"),
        (["version"], "no command 'version'; `ksflow --version` prints the version"),
        (["status"], "no command 'status'; `ksflow runs` shows every run"),
        (["doctr", "--help"], "no command 'doctr'; did you mean doctor?"),
        (["softmax"], "no command 'softmax'; did you mean `ksflow problem=softmax`?"),
        (["softmx", "--help"], "no command 'softmx'; did you mean `ksflow problem=softmax`?"),
        (["run", "softmax"], "run takes no 'softmax'; did you mean `ksflow problem=softmax`?"),
        (["gemini"], "did you mean `ksflow llm=gemini`?"),
        (["filters.py:smooth"], "did you mean `ksflow init problem smooth from=filters.py:smooth`?"),
        (["filters:smooth"], "did you mean `ksflow isolate filters:smooth --run"),
        (["kernel.cu"], "did you mean `ksflow evaluate kernel.cu problem=NAME`?"),
        (["loop.minits", "--help"], "no key loop.minits; did you mean loop.minutes?"),
        (["selector=randm", "--help"], "no option selector=randm; did you mean random?"),
        (["-m"], "-m needs a key with several values"),
        (["lineage", "shwo", "5"], "no command 'lineage shwo'; did you mean lineage show?"),
        (["problem", "chek"], "no command 'problem chek'; did you mean problem check?"),
        (["init", "problm", "x"], "no command 'init problm'; did you mean init problem?"),
        (["init", "stage", "desiner", "x"], "no stage 'desiner'; did you mean designer?"),
        (["init", "stage", "selector", "random"], "selector=random ships with ksflow"),
        (["init", "stage", "writer", "calendar"], "a module calendar is there already"),
        (["init", "problem", "softmax"], "problem=softmax ships with ksflow"),
        (["llm", "check"], "add llm=NAME; valid: anthropic,"),
        (["llm", "check", "llm=gemini"], "set the environment variable GEMINI_API_KEY"),
        (["runs"], "no lineage at runs/lineage.git"),
        (["apply", "softmax", "--patch"], "no lineage at runs/lineage.git; a search, `ksflow problem=NAME`, makes one"),
        (["lineage", "softmax"], "no lineage at runs/lineage.git"),
    ],
)
def test_a_word_that_is_none_is_one_line_with_what_may_be_meant(tmp_path: Path, typed: list[str], meant: str) -> None:
    done = ksflow(tmp_path, *typed, GEMINI_API_KEY="")
    assert done.returncode == 2
    assert meant in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_verifier_that_init_writes_is_asked_by_the_command_that_it_says(tmp_path: Path) -> None:
    made = ksflow(tmp_path, "init", "stage", "verifier", "strict")
    assert "ksflow --config-dir=conf writer=verified llm=dummy verifier=strict problem=softmax" in made.stdout
    words = ["--config-dir=conf", "writer=verified", "llm=dummy", "verifier=strict", "verifier.risk=7"]
    done = ksflow(tmp_path, *words, *DRY, "loop.evaluations=1", "loop.confirm=false")
    assert done.returncode == 0, done.stderr
    shown = ksflow(tmp_path, "lineage", "show", "00005", "softmax/dry").stdout
    assert "the risk that the judge refuses it: 7 %" in shown


@pytest.mark.slow
def test_stages_that_init_writes_run_at_once(tmp_path: Path) -> None:
    kinds = ("selector", "designer", "writer", "evaluator", "digester")
    for kind in kinds:
        made = ksflow(tmp_path, "init", "stage", kind, f"my_{kind}")
        assert made.returncode == 0, made.stderr
        assert f"ksflow --config-dir=conf {kind}=my_{kind} " in made.stdout
        again = ksflow(tmp_path, "init", "stage", kind, f"my_{kind}")
        assert again.returncode == 2
        assert "nothing is overwritten" in again.stderr
    fake = "{_target_: ksflow.stages.evaluator.fake.FakeEvaluator}"
    yaml = tmp_path / "conf/evaluator/my_evaluator.yaml"
    yaml.write_text(f"{yaml.read_text().partition('inner:')[0]}inner: {fake}\n")
    words = [f"{kind}=my_{kind}" for kind in kinds]
    done = ksflow(tmp_path, "--config-dir=conf", *words, "problem=softmax", "loop.evaluations=6", "loop.digest_every=5")
    assert done.returncode == 0, done.stderr
    assert "\n6 experiments in " in done.stderr
    assert "no plan" not in done.stderr
    assert "no notes" not in done.stderr
    assert "designer=my_designer" in ksflow(tmp_path, "lineage").stdout
    listed = ksflow(tmp_path, "runs")
    assert re.search(r"softmax/main +6 .* at rest", listed.stdout), listed.stdout + listed.stderr
    assert ksflow(tmp_path, "runs", "problem=fp8_gemm").returncode == 2


def test_a_problem_that_init_writes_is_understood_at_once(tmp_path: Path) -> None:
    made = ksflow(tmp_path, "init", "problem", "my_sums")
    assert made.returncode == 0, made.stderr
    shown = ksflow(tmp_path, "problem", "show", "problem=my_sums")
    assert shown.stdout.startswith("my_sums: Column sums"), shown.stderr
    assert ksflow(tmp_path, "problem", "show", "problem=./my_sums").stdout == shown.stdout
    assert "# Shapes: every kernel must be right" in (tmp_path / "my_sums/problem.yaml").read_text()


@pytest.mark.slow
def test_a_problem_that_init_writes_passes_its_check(tmp_path: Path) -> None:
    assert ksflow(tmp_path, "init", "problem", "my_sums").returncode == 0
    done = ksflow(tmp_path, "problem", "check", "problem=my_sums")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "my_sums: every check holds" in done.stdout


def test_a_folder_can_be_named_as_the_problem(tmp_path: Path) -> None:
    shutil.copytree(shipped_path("problems", "softmax"), tmp_path / "mine" / "soft max")
    shutil.copytree(shipped_path("seeds", "softmax"), tmp_path / "mine" / "soft max" / "seeds")
    for typed in ("problem=mine/soft max", "problem.path=~/soft max", "problem=~/soft max"):
        done = ksflow(tmp_path, "problem", "show", typed, HOME=str(tmp_path / "mine"))
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("soft max: "), done.stdout
    shown = ksflow(tmp_path, "problem=mine/soft max", "--help").stdout
    assert "    problem.path=mine/soft max  (str)\n" in shown


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("problem.root=~/KernelBench", "problem.root=/h me/KernelBench"),
        ("problem.root=~", "problem.root=/h me"),
        ("seed_kernels=[~/a.cpp,~/b.cpp]", "seed_kernels=['/h me/a.cpp','/h me/b.cpp']"),
        ("x='~/a'", "x='~/a'"),
        ("x=a~/b", "x=a~/b"),
        ("~designer", "~designer"),
    ],
)
def test_the_home_folder_is_known_where_no_shell_expands_it(
    typed: str, read: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/h me")
    expected = read if "'" in read or "h me" not in read else re.sub(r"=(/h me.*)", r"='\1'", read)
    assert expand_home(typed) == expected


@pytest.mark.slow
def test_a_clone_of_a_lineage_shows_the_winners_kernel(tmp_path: Path) -> None:
    assert ksflow(tmp_path, *DRY, "loop.evaluations=3").returncode == 0
    subprocess.run(["git", "clone", "-q", "runs/lineage.git", "clone"], cwd=tmp_path, check=True)
    summary = json.loads(next((tmp_path / "runs/logs").glob("*/summary.json")).read_text())
    head = subprocess.run(
        ["git", "symbolic-ref", "HEAD"], cwd=tmp_path / "clone", capture_output=True, text=True, check=True
    ).stdout
    assert head == f"refs/heads/softmax/dry/{summary['best']}\n"
    best = json.loads((tmp_path / "runs/best/softmax/dry/evaluation.json").read_text())
    shown = json.loads((tmp_path / "clone" / "evaluation.json").read_text())
    assert shown["evaluation"]["score_us"] == best["evaluation"]["score_us"]


@pytest.mark.slow
def test_one_headline_from_paired_timing_wherever_the_winner_is_shown(tmp_path: Path) -> None:
    for seed in range(5):  # which kernels are tried, and so whether two of them tie, depends on who is done first
        shutil.rmtree(tmp_path / "runs", ignore_errors=True)
        done = ksflow(tmp_path, *DRY, "loop.evaluations=12", f"random_seed={seed}")
        said = re.findall(
            r"^winner (\d{5}): (x\S+ \[\S+, \S+\]) over (\w+), the fastest of 2 baselines$", done.stderr, re.MULTILINE
        )
        if said:
            break
    ((winner, ratio, baseline),) = said
    rows = json.loads((tmp_path / "runs/best/softmax/dry/evaluation.json").read_text())["evaluation"]["evidence"]
    low = min(row["speedup"] for row in rows["against"] if row["id"] in ("00001", "00002"))
    assert ratio.startswith(f"x{low:.3g} ")
    assert baseline in ("NumPy", "PyTorch")
    table = done.stderr[done.stderr.index("lower is better") :]
    assert re.search(rf"{winner} .*winner .*{re.escape(ratio)}", table)
    assert table.count(" winner ") == 1
    tree = ksflow(tmp_path, "lineage", "problem=softmax", "run=dry").stdout
    (line,) = [line for line in tree.splitlines() if " winner " in line]
    assert f"{winner} accept" in line
    assert f"{ratio} over {baseline}" in line
    assert f"winner {winner}: {ratio} over {baseline}, the fastest of 2 baselines\n" in tree
    unpaired = ksflow(tmp_path, *DRY, "run=other", "loop.evaluations=12", "loop.confirm=false", "random_seed=3")
    (line,) = re.findall(r"^winner .*", unpaired.stderr, re.MULTILINE)
    assert re.fullmatch(
        r"winner \d{5}: (x.* over \w+, the fastest of 2 baselines|.* µs, not timed beside a baseline)", line
    )


@pytest.mark.slow
def test_without_git_it_is_one_line_and_doctor_still_runs(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "g++").symlink_to(shutil.which("g++") or "")
    done = ksflow(tmp_path, *DRY, PATH=str(tools))
    assert done.returncode == 2
    assert done.stderr == "ksflow: git is not installed, and a lineage is a git repository: apt install git\n"
    told = ksflow(tmp_path, "doctor", PATH=str(tools))
    assert "not found: apt install git" in told.stdout, told.stderr


def test_doctor_prints_remedies_as_they_are_typed(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "git").symlink_to(shutil.which("git") or "")
    told = ksflow(tmp_path, "doctor", PATH=str(tmp_path / "bin"))
    assert "apt install g++, or pip install 'ksflow[compiler]' for zig c++" in told.stdout


@pytest.mark.slow
def test_what_is_printed_to_be_typed_next_can_be_typed(tmp_path: Path) -> None:
    (tmp_path / "my.cpp").write_text(shipped_path("seeds", "softmax", "01_naive.cpp").read_text())
    shutil.copytree(shipped_path("problems", "softmax"), tmp_path / "a" / "soft")
    shutil.copytree(shipped_path("seeds", "softmax"), tmp_path / "a" / "soft" / "seeds")
    done = ksflow(tmp_path, "recipe=dry_run", "problem.path=a/soft", "loop.evaluations=1")
    (report,) = re.findall(r"^next: (python -m ksflow report .*)  \(lineage and verify take", done.stderr, re.MULTILINE)
    lineage = report.replace(" report ", " lineage ")
    tree = ksflow(tmp_path, *lineage.split()[3:]).stdout
    (log,) = re.findall(r"^git -C .*$", tree, re.MULTILINE)
    for line in (report, lineage, log):
        typed = line.replace("python", sys.executable, 1) if line.startswith("python") else line
        again = subprocess.run(["bash", "-c", typed], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert again.returncode == 0, (line, again.stderr)
        assert again.stdout
