"""A recorded run happens again, in its order: with its verdicts, or with kernels that are judged anew."""

import subprocess
import threading
from pathlib import Path

import pytest
from conftest import accepted, plant
from test_cli import ksflow

from ksflow.errors import BudgetError, ConfigError, LineageError
from ksflow.lineage import Lineage
from ksflow.lineage.history import RecordedRun
from ksflow.lineage.locks import Turns
from ksflow.notes.knowledge import write
from ksflow.records import Note

SOFTMAX = "problem=softmax"
LIVE = ["recipe=dry_run", SOFTMAX, "llm=dummy", "loop.repairs=1", "loop.rounds_in_flight=3"]
AGAIN = [SOFTMAX, "llm=replay", "recorded.run=dry", "loop.repairs=1"]


def story(folder: Path, run: str) -> list[tuple[str, ...]]:
    """What a run wrote, in the order in which it did: rounds, plans, kernels, verdicts and notes, each with its files.

    Selections and model calls are left out: nothing waits for its turn with them.
    """
    refs = [f"refs/heads/softmax/{run}/*", *(f"refs/ksflow/softmax/{run}/{chain}" for chain in ("rounds", "notes"))]
    form = "--format=%(trailers:key=Step,valueonly,separator=)%x00%T%x00%s"
    command = ["git", "-C", folder / "runs/lineage.git", "log", form, *(f"--glob={ref}" for ref in refs)]
    rows = [row.split("\0") for row in subprocess.run(command, capture_output=True, text=True).stdout.splitlines()]
    steps = sorted((tuple(map(int, step.split("."))), tree, subject) for step, tree, subject in rows)
    return [(str(step[0]), tree, subject) for step, tree, subject in steps if not subject.startswith("select ")]


@pytest.mark.slow
def test_rounds_in_flight_are_the_same_again_whatever_was_learnt_since(tmp_path: Path) -> None:
    assert ksflow(tmp_path, *LIVE, "loop.evaluations=9").returncode == 0
    assert len(story(tmp_path, "dry")) > 13
    write(Note("Softmax since then", "It is known now.", ("a book",)), tmp_path / "runs" / "knowledge" / "cpu")
    done = ksflow(tmp_path, *AGAIN)
    assert done.returncode == 0, done.stderr
    assert story(tmp_path, "replay") == story(tmp_path, "dry")


@pytest.mark.slow
@pytest.mark.soak
def test_so_are_several_sessions_one_of_which_judged_nothing(tmp_path: Path) -> None:
    for evaluations in (9, 0, 4):
        done = ksflow(tmp_path, *LIVE, f"loop.evaluations={evaluations}", "loop.confirm=false")
        assert done.returncode == 0, done.stderr
    for _ in range(3):
        done = ksflow(tmp_path, *AGAIN)
        assert done.returncode == 0, done.stderr
    assert story(tmp_path, "replay") == story(tmp_path, "dry")
    third = ksflow(tmp_path, *AGAIN)
    assert third.returncode == 2
    assert "all 3 sessions of run dry of softmax" in third.stderr
    assert "name a new one with run=" in third.stderr


@pytest.mark.slow
@pytest.mark.soak
def test_so_are_the_sessions_of_a_run_that_inherits(tmp_path: Path) -> None:
    """It asks for the judge's machine before a session is open; each session judges its winner once more."""
    assert ksflow(tmp_path, *LIVE, "run=parent", "loop.evaluations=3", "loop.confirm=false").returncode == 0
    for evaluations in (3, 0):
        done = ksflow(tmp_path, *LIVE, "inherit=parent", f"loop.evaluations={evaluations}")
        assert done.returncode == 0, done.stderr
    for _ in range(2):
        done = ksflow(tmp_path, *AGAIN, "inherit=parent")
        assert done.returncode == 0, done.stderr
    assert story(tmp_path, "replay") == story(tmp_path, "dry")


@pytest.mark.slow
@pytest.mark.soak
def test_rules_are_replayed_too_and_other_settings_are_noticed(tmp_path: Path) -> None:
    rules = ["selector=tournament", "designer=rules", "writer=tune", "digester=rules"]
    live = ["recipe=dry_run", SOFTMAX, *rules, "loop.evaluations=9", "loop.rounds_in_flight=2"]
    assert ksflow(tmp_path, *live).returncode == 0
    assert ksflow(tmp_path, *AGAIN[:3], *rules).returncode == 0
    assert story(tmp_path, "replay") == story(tmp_path, "dry")
    other = ksflow(tmp_path, *AGAIN[:3], *rules, "selector=fastest", "run=other")
    assert other.returncode == 2
    assert "that session was made with recipe=dry_run problem=softmax selector=tournament" in other.stderr
    settings = ["git", "-C", tmp_path / "runs/lineage.git", "show", "refs/ksflow/softmax/dry/sessions:session.yaml"]
    assert "- selector=tournament" in subprocess.run(settings, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_recorded_kernels_are_judged_anew(tmp_path: Path) -> None:
    """Their times are others, so the questions are, and still each kernel gets its id and its parents."""
    assert ksflow(tmp_path, *LIVE, "loop.evaluations=9").returncode == 0
    done = ksflow(tmp_path, *AGAIN, "evaluator=fake", "evaluator.seed=3", "run=anew")
    assert done.returncode == 0, done.stderr

    def kernels(run: str) -> dict[str, tuple[object, ...]]:
        lineage = Lineage(tmp_path / "runs/lineage.git", "softmax", run)
        trials = lineage.all_trials()
        lineage.close()
        return {t.id: (t.kernel, t.parents, t.cost, t.score_us) for t in trials if t.origin.value == "experiment"}

    before, now = kernels("dry"), kernels("anew")
    assert len(now) >= len(before) // 2
    same = [name for name in now if now[name][0] is not None]
    assert same
    assert all(now[name][:3] == before[name][:3] for name in same)
    assert any(now[name][3] != before[name][3] for name in same)


@pytest.mark.slow
def test_without_a_recording_it_is_one_line(tmp_path: Path) -> None:
    done = ksflow(tmp_path, *AGAIN)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "no lineage at runs/lineage.git" in done.stderr


def test_a_step_waits_for_its_turn_and_an_unknown_one_ends_the_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ksflow.lineage.locks._WAIT_S", 0.01)
    monkeypatch.setattr("ksflow.lineage.locks._DIVERGED_S", 0.05)
    turns, changed = Turns({}, 1, ["first", "second", "third", "fourth"], "a=b"), threading.Condition()
    seen: list[str] = []

    def write(step: str) -> None:
        with changed, turns.turn(step, changed):
            seen.append(step)

    threads = [threading.Thread(target=write, args=(step,)) for step in ("third", "second")]
    for thread in threads:
        thread.start()
    write("first")
    for thread in threads:
        thread.join()
    assert seen == ["first", "second", "third"]
    with pytest.raises(BudgetError, match="the recording has no step 'fifth'"):
        write("fifth")
    assert turns.missing_step == "fourth"
    other = Turns({}, 1, ["first", "second"], "a=b")
    with changed, pytest.raises(BudgetError), other.turn("third", changed):
        pass
    said = "came to step 0 of 2, before 'first'; it takes the stages .* made with a=b"
    with changed, pytest.raises(LineageError, match=said), other.turn("second", changed):
        pass


def test_a_recording_whose_branch_was_removed_lacks_that_kernel_and_no_other(lineage: Lineage) -> None:
    """As the advice on a branch that cannot be read says: `git branch -D`."""
    lineage.open_session("arguments:\n- a=b\n")
    for text, us in (("int a;", 20.0), ("int b;", 10.0)):
        trial = plant(lineage, text, us)
        assert trial.evaluation
        lineage.record_verdict(trial, trial.evaluation)
    lineage.open_session("arguments:\n- a=b\n")
    first, _ = lineage.all_trials()
    lineage.record_verdict(first, accepted(30.0))
    lineage.evaluate(first, "confirmed")
    remove = ["git", "-C", lineage.store.path, "branch", "-q", "-D", "toy/main/00002"]
    subprocess.run(remove, check=True)
    past = RecordedRun(lambda: Lineage(lineage.store.path, "toy"), "run main")
    assert [said.score_us for _, said in past.evaluations()] == [20.0, 20.0, 30.0]
    with pytest.raises(ConfigError, match="has lost commits: evaluator=local judges what is left"):
        past.open(1)
    past.open(2)
    assert [said.score_us for _, said in past.evaluations()] == [30.0]
