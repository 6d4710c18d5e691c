"""`evaluate` and `verify` as typed: one kernel judged, a committed one judged again."""

import hashlib
import json
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import accepted, over
from test_cli import DRY, ksflow

from ksflow.home import shipped_path
from ksflow.kernels.problem.loader import load
from ksflow.records import Comparison, Evaluation, Speedup, TimedCase
from ksflow.report.comparison import compare

FAKE = ["problem=softmax", "evaluator=fake"]
FAILS = """from ksflow.errors import ConfigError


class Mine:
    def __call__(self, problem, kernel, against):
        raise ConfigError("no licence")
"""
WRONG = 'extern "C" void custom_kernel(const float *x, float *y, long m, long n, const long *strides) { y[0] = 1; }\n'


@pytest.mark.parametrize("kept", ["", "older"])
def test_one_that_fails_leaves_the_file_for_the_verdict_as_it_was(tmp_path: Path, kept: str) -> None:
    found = tmp_path / "found.json"
    if kept:
        found.write_text(kept)
    (tmp_path / "kernel.cpp").write_text("// nothing to tune\n")
    (tmp_path / "conf" / "evaluator").mkdir(parents=True)
    (tmp_path / "conf" / "evaluator" / "mine.yaml").write_text("_target_: mine.Mine\n")
    (tmp_path / "mine.py").write_text(FAILS)
    words = ["problem=softmax", "--config-dir=conf", "evaluator=mine", "cache=false", "out=found.json"]
    done = ksflow(tmp_path, "evaluate", "kernel.cpp", *words)
    assert done.returncode == 2, done.stdout
    assert "no licence" in done.stderr
    assert ([found.read_text()] if found.exists() else []) == [kept] * bool(kept)


def test_a_file_is_judged_beside_the_baselines_without_a_lineage(tmp_path: Path) -> None:
    (tmp_path / "my").mkdir()
    (tmp_path / "my" / "kernel.cpp").write_text("// nothing to tune\n")
    done = ksflow(tmp_path, "evaluate", "my/kernel.cpp", *FAKE, "out=found.json")
    assert done.returncode == 0, done.stderr
    assert "judging" in done.stderr
    assert "verdict accept" in done.stdout
    for word in (
        "512x1024",
        "over 00_numpy.py",
        "over 00_torch.py",
        "claim:",
        "control",
        "judge fake-1",
        "target fake",
    ):
        assert word in done.stdout
    found = json.loads((tmp_path / "found.json").read_text())["evaluation"]
    assert found["verdict"] == "accept"
    assert found["judge"] == "fake-1"
    assert found["problem"]
    assert not (tmp_path / "runs").exists()


def test_a_file_is_judged_for_the_problem_of_its_folder(tmp_path: Path) -> None:
    shutil.copytree(shipped_path("examples", "own_problem", "column_sums"), tmp_path / "mine")
    (tmp_path / "mine" / "seeds" / "k.cpp").write_text("// nothing to tune\n")
    done = ksflow(tmp_path, "evaluate", "mine/seeds/k.cpp", "evaluator=fake")
    assert done.returncode == 0, done.stderr
    assert f"mine: the problem of {tmp_path / 'mine'}\n" in done.stderr


@pytest.mark.slow
def test_a_seed_is_judged_by_its_name_and_known_the_second_time(tmp_path: Path) -> None:
    cache = {"KSFLOW_CACHE": str(tmp_path / "cache")}
    first = ksflow(tmp_path, "evaluate", "02_rows.cpp", *FAKE, **cache)
    second = ksflow(tmp_path, "evaluate", "02_rows.cpp", *FAKE, **cache)
    fresh = ksflow(tmp_path, "evaluate", "02_rows.cpp", *FAKE, "cache=false", **cache)
    other = ksflow(tmp_path, "evaluate", "02_rows.cpp", *FAKE, "problem.cases=tests", **cache)
    assert "not judged now, known from evaluate on 20" in second.stdout
    for done in (first, fresh, other):
        assert "judging" in done.stderr
        assert "not judged now" not in done.stdout
    assert "judged before by fake-1 on 20" in other.stdout
    assert "stale, another problem now" in other.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["evaluate"], "python -m ksflow evaluate KERNEL"),
        (["evaluate", "absent.cpp", *FAKE], "no file absent.cpp, and no such seed of softmax; its seeds: 00_numpy.py"),
        (["evaluate", "notes.txt", *FAKE], "a kernel's file ends in one of .cpp"),
        pytest.param(["evaluate", ".", *FAKE], "the files of a kernel lie in one folder", marks=pytest.mark.slow),
        pytest.param(
            ["evaluate", "folder.cpp", *FAKE],
            "one file of a kernel defines custom_kernel; here none does",
            marks=pytest.mark.slow,
        ),
        (["evaluate", "k.cpp", *FAKE, "out=/proc/nowhere/x.json"], "out=/proc/nowhere/x.json cannot be written"),
        pytest.param(
            ["evaluate", "k.cpp", *FAKE, "cache=perhaps"], "cache=perhaps; valid: true, false", marks=pytest.mark.slow
        ),
        (["evaluate", "k.cpp", "problem=softmx"], "did you mean softmax?"),
        pytest.param(["verify", "00001", *FAKE], "no lineage at runs/lineage.git", marks=pytest.mark.slow),
        (["approve", "a", "b", *FAKE], "python -m ksflow approve COMMIT"),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "k.cpp").write_text("int x;\n")
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "folder.cpp").mkdir()
    done = ksflow(tmp_path, *arguments)
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("ksflow: ")
    assert message in line


@pytest.mark.slow
def test_what_compiles_and_cannot_be_timed_is_a_success(tmp_path: Path) -> None:
    static = ["problem=fp8_gemm", "evaluator=static", "target=mi300x"]
    right = ksflow(tmp_path, "evaluate", "01_naive.hip", *static)
    assert right.returncode == 0, right.stderr
    assert "verdict untimed" in right.stdout
    (tmp_path / "k.hip").write_text("int x = nothing;\n")
    assert ksflow(tmp_path, "evaluate", "k.hip", *static).returncode == 1


@pytest.mark.parametrize(
    ("clock", "now_us", "holds", "said"),
    [
        ("wall: the judge's", 50.0, True, "within noise or better"),
        ("wall: the judge's", 200.0, False, "slower by more than noise"),
        ("cpu: the sandbox's", 50.0, None, "by different clocks: not comparable"),
        ("cpu: the sandbox's", 200.0, None, "by different clocks: not comparable"),
    ],
)
def test_times_by_different_clocks_are_no_change_of_speed(
    clock: str, now_us: float, holds: bool | None, said: str
) -> None:
    def timed(us: float, by: str) -> Evaluation:
        rows = tuple(TimedCase(case=timing.case, clock=by) for timing in accepted(us).timings)
        return accepted(us).with_evidence(timed=rows, load=0.1)

    problem = load("softmax", "cpu")
    problem = replace(problem, benchmarks=problem.benchmarks[:1])
    found = compare(problem, timed(100.0, "wall: the judge's"), timed(now_us, clock), {})
    assert found.holds is holds
    assert said in [remark for *_, remark in found.rows]
    assert ("different clocks" in found.why) is (holds is None)


@pytest.mark.parametrize(
    ("now", "ranked", "busy", "holds", "said"),
    [
        ((0.975, 0.937, 1.01), True, 0.1, False, "not confirmed: no longer ahead"),
        ((0.975, 0.937, 1.01), True, 9.0, None, "not confirmed: no longer ahead, on a busy machine"),
        ((0.975, 0.937, 1.01), False, 0.1, None, "not confirmed: no longer ahead"),
        ((0.6, 0.55, 0.65), True, 9.0, False, "not confirmed: no longer ahead"),
        ((1.0, 0.98, 1.025), True, 0.1, True, "holds"),  # the intervals meet
        ((1.012, 1.01, 1.015), True, 0.1, True, "holds"),  # less, and still ahead
    ],
)
def test_a_lead_that_is_lost_does_not_hold_however_fast_the_machine_is(
    now: tuple[float, float, float], ranked: bool, busy: float, holds: bool | None, said: str
) -> None:
    problem = replace(loaded := load("softmax", "cpu"), benchmarks=loaded.benchmarks[:1])
    row = Comparison(id="00002", speedup=now[0], low=now[1], high=now[2], ranked=ranked)
    judged = accepted(50.0).with_evidence(against=(row,), load=busy)
    found = compare(problem, over("00002", 1.03, 50.0), judged, {"00002": Speedup(1.03, 1.02, 1.03)})
    assert (found.holds, found.rows[-1][-1]) == (holds, said)


@pytest.mark.slow
def test_a_committed_kernel_is_judged_again_and_its_record_compared(tmp_path: Path) -> None:
    searched = ksflow(tmp_path, *DRY[:1], "loop.evaluations=2")
    assert searched.stderr.startswith("fp8_gemm: Block-scaled fp8 matrix multiply. No problem= was given.")
    best = ksflow(tmp_path, "evaluate", "runs/best/fp8_gemm/dry/best.py", *DRY[:1])
    assert "fp8_gemm: the problem of the run in " in best.stderr
    assert ksflow(tmp_path, *DRY, "loop.evaluations=2").returncode == 0
    store = tmp_path / "runs/lineage.git"
    before = _git(store, "for-each-ref")
    commit = _git(store, "rev-parse", "softmax/dry/00004").strip()
    for word in ("00004", "softmax/dry/00004", commit, commit[:8]):
        run = ["run=dry"] if word == "00004" else []
        problem = ["problem=softmax"] if word == "00004" else []  # a commit tells its own
        done = ksflow(tmp_path, "verify", word, "evaluator=fake", *problem, *run)
        assert done.returncode == 0, done.stderr
        assert "on record" in done.stdout
        assert done.stdout.splitlines()[-1] == "holds"
        assert "score, µs" in done.stdout
    assert _git(store, "for-each-ref") == before


@pytest.mark.slow
def test_a_record_that_does_not_hold_is_exit_code_1(tmp_path: Path) -> None:
    landscape, slow = tmp_path / "landscape.json", {"512x1024": 100.0, "2048x256": 100.0, "64x8192": 100.0}
    landscape.write_text(json.dumps([{"values": {"FORM": "scalar"}, "us": slow}]))
    fake = [f"evaluator.landscape={landscape}", "problem=softmax"]
    assert ksflow(tmp_path, *DRY, fake[0], "loop.evaluations=1").returncode == 0
    store = tmp_path / "runs/lineage.git"
    faster = ('"score_us": 100.0', '"score_us": 50.0', '"us": 100.0', '"us": 50.0')
    _forge(store, "softmax/dry/00004", *faster)
    done = ksflow(tmp_path, "verify", "00004", *fake, "evaluator=fake", "run=dry")
    assert done.returncode == 0, done.stderr  # as fast as ever beside the same kernels: the machine may be slow today
    assert "slower by more than noise" in done.stdout
    assert done.stdout.splitlines()[-1] == "holds"
    _forge(store, "softmax/dry/00004", '"against"', '"lost"')
    done = ksflow(tmp_path, "verify", "00004", *fake, "evaluator=fake", "run=dry")
    assert done.returncode == 1, done.stderr
    assert "slower by more than noise" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("DOES NOT HOLD, in 3 judgements")
    other = ksflow(tmp_path, "verify", "00004", "problem=softmax", "evaluator=fake", "run=dry")
    assert other.returncode == 0
    assert "the record is stale (target changed since): only the verdicts are compared" in other.stdout


@pytest.mark.slow
def test_an_unknown_commit_is_one_line(tmp_path: Path) -> None:
    assert ksflow(tmp_path, *DRY, "loop.evaluations=0").returncode == 0
    for word, message in (
        ("deadbeef", "no commit, branch or trial 'deadbeef'"),
        ("softmax/dry/00099", "no commit, branch or trial 'softmax/dry/00099'"),
        ("00099", "(problem=softmax run=dry)"),
        ("--all", ""),
    ):
        done = ksflow(tmp_path, "verify", word, *FAKE, "run=dry")
        assert done.returncode == 2
        assert len(done.stderr.strip().splitlines()) == 1
        assert message in done.stderr


@pytest.mark.slow
def test_an_abbreviation_of_two_commits_is_refused(tmp_path: Path) -> None:
    assert ksflow(tmp_path, *DRY, "loop.evaluations=0").returncode == 0
    store = tmp_path / "runs/lineage.git"
    start = _git(store, "rev-parse", "softmax/dry/00004")[:4]
    head = f"tree {_git(store, 'rev-parse', 'softmax/dry/00004^{tree}')}author a <a@b.c> 1 +0000\n"
    for number in range(10**7):
        text = f"{head}committer a <a@b.c> 1 +0000\n\n{number}\n"
        if hashlib.sha1(f"commit {len(text)}\0{text}".encode()).hexdigest().startswith(start):
            break
    subprocess.run(
        ["git", "-C", store, "hash-object", "-t", "commit", "-w", "--stdin"], input=text.encode(), check=True
    )
    done = ksflow(tmp_path, "verify", start, *FAKE, "run=dry")
    assert done.returncode == 2
    assert f"'{start}' may be {start}" in done.stderr


@pytest.mark.slow
def test_a_real_kernel_is_judged_verified_and_told_from_a_wrong_one(tmp_path: Path) -> None:
    (tmp_path / "wrong.cpp").write_text(WRONG)
    anew = ["problem=softmax", "cache=false"]  # what other tests found is no answer
    wrong = ksflow(tmp_path, "evaluate", "wrong.cpp", *anew)
    assert wrong.returncode == 1, wrong.stdout + wrong.stderr
    assert "verdict reject-incorrect" in wrong.stdout
    right = ksflow(tmp_path, "evaluate", "02_rows.cpp", *anew, "out=x.json", "details=true")
    assert right.returncode == 0, right.stdout + right.stderr
    for word in ("verdict accept", "over 00_torch.py", "of the bound", "isolation ", "judge local-", "seeds: "):
        assert word in right.stdout
    few = ["problem=softmax", "problem.seeds=[]"]  # one kernel on record will do
    ran = ksflow(tmp_path, *few, "loop.evaluations=0", "loop.confirm=false")
    assert ran.returncode == 0, ran.stderr
    done = ksflow(tmp_path, "verify", "00001", *few)
    words = {0: "holds", 3: "not verified ("}  # which of them is the machine's noise; it never says that it is slower
    assert done.stdout.splitlines()[-1].startswith(words[done.returncode]), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_in_one_line_and_leaves_no_judge(tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "ksflow", "evaluate", "00_torch.py", "problem=softmax", "cache=false"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "judging" in process.stderr.readline()
        children, deadline = Path(f"/proc/{process.pid}/task/{process.pid}/children"), time.monotonic() + 300
        while not (judges := children.read_text().split()) and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(number)
        rest = process.stderr.read()
        assert process.wait(300) == 130
    assert len(rest.strip().splitlines()) == 1
    assert "interrupted" in rest
    assert judges
    while any(Path(f"/proc/{pid}").exists() for pid in judges):  # it may still be starting
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _git(store: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", store, *arguments], check=True, capture_output=True, text=True).stdout


def _forge(store: Path, branch: str, *replacements: str) -> None:
    """Change a branch's newest evaluation behind everybody's back."""
    text = _git(store, "show", f"{branch}:evaluation.json")
    for old, new in zip(replacements[::2], replacements[1::2], strict=True):
        assert old in text
        text = text.replace(old, new)
    blob = subprocess.run(
        ["git", "-C", store, "hash-object", "-w", "--stdin"], input=text, check=True, capture_output=True, text=True
    ).stdout.strip()
    lines = [line for line in _git(store, "ls-tree", branch).splitlines() if not line.endswith("evaluation.json")]
    listing = "\n".join([*lines, f"100644 blob {blob}\tevaluation.json", ""])
    tree = subprocess.run(
        ["git", "-C", store, "mktree"], input=listing, check=True, capture_output=True, text=True
    ).stdout.strip()
    name = branch.rpartition("/")[2]
    identity = ["-c", "user.name=me", "-c", "user.email=me@example.org"]
    message = f"forged\n\nTrial: {name}\n"
    commit = _git(store, *identity, "commit-tree", tree, "-p", branch, "-m", message).strip()
    _git(store, "update-ref", f"refs/heads/{branch}", commit)
