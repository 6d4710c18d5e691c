"""Forty times `kill -9` at random moments: over the lineage's plumbing, over a run, over a suite.

Each time the whole process group dies, git's helpers too. Nothing that was reported done is lost, nothing is there
twice, and whoever comes next goes on without help.
"""

import contextlib
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest
from conftest import accepted, draft, kernel, plant, until
from test_cli import ksflow

from ksflow.lineage import Lineage
from ksflow.records import Call, Note, Plan

PLUMBING, RUNS, SUITES = 30, 8, 4


def git(path: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", str(path), *arguments], check=True, capture_output=True, text=True).stdout


def commits(path: Path) -> set[str]:
    """Every commit that a ref leads to."""
    return set(git(path, "rev-list", "--all").split()) if path.exists() else set()


def kill(group: int) -> None:
    """All of a process group, at once."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def sound(path: Path) -> None:
    """Git finds nothing wrong, and no trial of any run was evaluated twice for the same reason."""
    git(path, "fsck", "--strict", "--connectivity-only")
    for branch in git(path, "for-each-ref", "--format=%(refname)", "refs/heads/").split():
        subjects = git(path, "log", "--first-parent", "--format=%s", branch).splitlines()
        name = branch.rpartition("/")[2]
        own = [subject.split()[1] for subject in subjects if subject.startswith(f"{name} ")]
        assert Counter(own)["accept"] <= 1, subjects


# -- plumbing --------------------------------------------------------------------------------------


def at_work(path: str, journal: str, begun: Event) -> None:
    """Everything that a run writes, without end; what was done is put into the journal."""
    os.setpgid(0, 0)
    log = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def done(*words: str) -> None:
        os.write(log, (" ".join(words) + "\n").encode())

    lineage = Lineage(path, "toy")
    lineage.population()
    begun.set()
    lineage.open_session("made: by a test\n")
    done("session")
    for trial in lineage.claim_unfinished():
        finish(lineage, trial.id if trial.kernel else "", done)
        if trial.kernel is None:
            write(lineage, replace(trial), done)
    number = 0
    while True:
        number += 1
        turn = lineage.begin_round()
        lineage.select(turn.population.choose("00001", "00001", "the first"), turn.name)
        said = f"{os.getpid()}.{number}"
        lineage.record(Call("designer", "m", (), said))
        done("call", said)
        ideas = tuple(e for e in (draft("00001", idea=f"idea {n}").experiment for n in range(3)) if e)
        drafts = [replace(draft("00001"), experiment=idea) for idea in ideas]
        for trial in lineage.dispatch(drafts, Plan(("a",), ideas, (0, 1, 2)), turn.name):
            done("opened", trial.id)
            write(lineage, trial, done)
        lineage.learn((Note("Count", said, ("00001",)),))
        lineage.store.maintain(force=number % 3 == 0)


def write(lineage: Lineage, trial, done) -> None:  # type: ignore[no-untyped-def]
    kept = lineage.write(replace(trial, kernel=kernel(f"// {trial.id}")))
    done("written", kept.id)
    finish(lineage, kept.id, done)


def finish(lineage: Lineage, name: str, done) -> None:  # type: ignore[no-untyped-def]
    if name:
        trial = next(t for t in lineage.all_trials() if t.id == name)
        lineage.evaluate(replace(trial, evaluation=accepted(9.0)))
        done("evaluated", name)


@pytest.mark.slow
@pytest.mark.soak
def test_plumbing_killed_at_random_loses_nothing(lineage: Lineage, tmp_path: Path) -> None:
    plant(lineage, "// 00001", 20.0)
    path, journal, dice = lineage.store.path, tmp_path / "journal", random.Random(7)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["test_killed"])
    for attempt in range(PLUMBING):
        if attempt % 10 == 9:  # what a loss of power leaves
            lock = path / f"refs/ksflow/toy/main/{dice.choice(['rounds', 'calls', 'sessions', 'notes'])}.lock"
            lock.parent.mkdir(parents=True, exist_ok=True)
            lock.touch()
            os.utime(lock, (time.time() - 900,) * 2)
        begun = context.Event()
        victim = context.Process(target=at_work, args=(str(path), str(journal), begun))
        victim.start()
        assert victim.pid
        assert begun.wait(300)
        time.sleep(dice.uniform(0, 0.4))
        kill(victim.pid)
        victim.join()
        victim.close()
        assert not lost(lineage, journal)
    check_all(path, lines(journal))


def lines(journal: Path) -> list[list[str]]:
    return [line.split() for line in journal.read_text().splitlines()] if journal.exists() else []


def lost(lineage: Lineage, journal: Path) -> list[list[str]]:
    """What was reported done of a kernel and is not there."""
    known = {t.id: t.verdict for t in lineage.all_trials()}
    wanted = {"written": ("written", "accept"), "evaluated": ("accept",)}
    return [words for words in lines(journal) if words[0] in wanted and known.get(words[1]) not in wanted[words[0]]]


def check_all(path: Path, done: list[list[str]]) -> None:
    """Finish what the last victim left; then every trial, call and session is there once."""
    last = Lineage(path, "toy")
    for trial in last.claim_unfinished():
        write(last, trial, lambda *words: None) if trial.kernel is None else finish(last, trial.id, lambda *words: None)
    trials = last.population().trials
    assert [t.id for t in trials] == [f"{n:05d}" for n in range(1, len(trials) + 1)]
    assert all(t.kernel and t.kernel.main == f"// {t.id}" for t in trials)
    assert not git(path, "for-each-ref", "refs/ksflow/toy/main/open/")
    head = git(path, "rev-parse", "refs/ksflow/toy/main/calls").strip()
    calls = [json.loads(last.store.read(f"{commit}:call.json")) for commit in last.store.list_ancestors(head)]
    said = Counter(call["call"]["answer"] for call in calls)
    assert set(said.values()) == {1}
    assert {words[1] for words in done if words[0] == "call"} <= said.keys()
    sessions = git(path, "log", "--format=%s", "refs/ksflow/toy/main/sessions").splitlines()
    assert sessions == [f"session {n}" for n in range(len(sessions), 0, -1)]
    last.close()
    sound(path)


# -- a run, a suite --------------------------------------------------------------------------------


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "ksflow", *words]


def killed(folder: Path, words: list[str], dice: random.Random, longest_s: float) -> None:
    """Start it, let it write something, and kill all of it."""
    store = folder / "runs/lineage.git"
    before = commits(store)
    with subprocess.Popen(
        command(*words), cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as victim:
        until(lambda: time.sleep(0.2) or commits(store) - before or victim.poll() is not None)
        time.sleep(dice.uniform(0, longest_s))
        kill(victim.pid)
        victim.wait()
    until(lambda: not in_folder(folder))
    assert before <= commits(store)


def in_folder(folder: Path) -> list[Path]:
    """The processes that work there: members of a suite are in process groups of their own, and die with it."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "cwd").readlink().is_relative_to(folder):
                found.append(process)
    return found


def finished(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    done = ksflow(folder, *words)
    assert done.returncode == 0, done.stderr
    sound(folder / "runs/lineage.git")
    return done


@pytest.mark.slow
@pytest.mark.parametrize("times", [3, pytest.param(RUNS, marks=pytest.mark.soak)])
def test_a_run_killed_at_random_goes_on(tmp_path: Path, times: int) -> None:
    dice, words = random.Random(11), ["recipe=dry_run", "problem=softmax", "llm=dummy", "loop.rounds_in_flight=3"]
    for _ in range(times):
        killed(tmp_path, [*words, "loop.evaluations=100000"], dice, 1.0)
    finished(tmp_path, *words, "loop.evaluations=3")
    done = Lineage(tmp_path / "runs/lineage.git", "softmax", "dry")
    names = sorted({t.id for t in (*done.all_trials(), *done.claim_unfinished())})  # planned ones have no branch yet
    assert names == [f"{n:05d}" for n in range(1, len(names) + 1)]
    done.close()


@pytest.mark.soak
@pytest.mark.slow
def test_a_suite_killed_at_random_keeps_its_budget(tmp_path: Path) -> None:
    prices = ["model.usd_per_mtok_in=10", "model.usd_per_mtok_out=10"]
    words = ["-m", "problem=softmax,fp8_gemm", "llm=dummy", "evaluator=fake", "loop.evaluations=60", *prices]
    words += ["loop.usd=4", "suite.name=killed"]
    dice = random.Random(13)
    for _ in range(SUITES):
        killed(tmp_path, words, dice, 1.0)
    command_again = subprocess.run(command(*words), cwd=tmp_path, capture_output=True, text=True, check=False)
    sound(tmp_path / "runs/lineage.git")
    rows = json.loads((tmp_path / "runs/suites/killed/report.json").read_text())["rows"]
    poor = [row for row in rows if row["state"] == "failed"]
    assert {row["state"] for row in rows} <= {"finished", "left", "failed"}
    assert all("loop.usd=" in row["why"] for row in poor), rows  # so little is left that no call can be paid
    assert command_again.returncode == int(bool(poor)), command_again.stderr
    paid = []
    for name in ("softmax", "fp8_gemm"):
        opened = Lineage(tmp_path / "runs/lineage.git", name, "killed", create=False)
        paid.append(opened.total_cost().usd)
        opened.close()
    assert sum(row["usd"] for row in rows) == pytest.approx(sum(paid))
    assert 0 < sum(paid) <= 4
