"""Notes in a real lineage: git shows the trials they cite, and a later measurement refutes what it contradicts."""

import subprocess
from dataclasses import replace

import pytest
from conftest import accepted, again, draft, kernel, plant, rejected

from ksflow.lineage import Lineage
from ksflow.loop.queue import map_parallel
from ksflow.notes.lessons import refute_contradicted, trial_of
from ksflow.records import Evaluation, Evidence, Key, Material, Note, Problem, Status, Trial, Verdict, parse
from ksflow.stages.digester.rules import RulesDigester

PROBLEM = Problem("toy", "", "", "", "", "", ("cpp",), (), (), (), (), ())


def git(lineage: Lineage, *arguments: str) -> str:
    command = ["git", "-C", str(lineage.store.path), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def tried(lineage: Lineage, text: str, evaluation: Evaluation, base: str = "00001") -> Trial:
    """A judged experiment on a base."""
    (trial,) = lineage.dispatch([draft(base)])
    trial = replace(trial, kernel=kernel(text))
    lineage.write(trial)
    lineage.evaluate(replace(trial, evaluation=evaluation))
    return replace(trial, evaluation=evaluation)


def over_first(speedup: float) -> Evaluation:
    """So many times as fast as a first kernel of 20 µs, beside which it was timed."""
    return beside(20.0 / speedup, "00001", speedup)


def beside(us: float, other: str, speedup: float) -> Evaluation:
    """Timed side by side with another trial."""
    row = {"id": other, "speedup": speedup, "low": speedup - 0.02, "high": speedup + 0.02}
    return replace(accepted(us), evidence=parse(Evidence, {"against": [row]}))


def measured(*sources: str) -> Note:
    return Note("Unrolling", "it helps", sources, status=Status.MEASURED)


def relearn(lineage: Lineage) -> Note:
    """The only note, after another look at the record."""
    (note,) = lineage.learn(lineage.notes())
    assert lineage.notes() == (note,)
    return note


def test_git_shows_the_trial_that_a_note_cites(lineage: Lineage) -> None:
    plant(lineage, "int a;", 20.0)
    trial = tried(lineage, "int b;", accepted(10.0))
    lineage.learn((Note("T", "x", ("00002", "manual.pdf#page 3", "00099"), status=Status.MEASURED),))
    cite, document, unknown = lineage.notes()[0].sources
    assert trial_of(cite) == trial.id
    assert (document, unknown) == ("manual.pdf#page 3", "00099")
    commit = cite.partition("@")[2]
    assert len(commit) == 10
    assert git(lineage, "show", f"{commit}:kernel.cpp") == "int b;"
    assert "00002 accept 10 µs" in git(lineage, "show", commit)


def test_what_digester_rules_writes_is_cited_and_stays_the_same_when_nothing_changed(lineage: Lineage) -> None:
    text = "int MR = {};  // tune: 1 2 | tile\n"
    plant(lineage, text.format(1), 20.0)
    tried(lineage, text.format(2), over_first(2.0))
    for _ in range(2):
        lineage.learn(RulesDigester()(PROBLEM, Material((), lineage.last_population, lineage.notes())))
        move = next(note for note in lineage.notes() if "MR (" in note.title)
        assert [trial_of(source) for source in move.sources] == ["00001", "00002"]
        assert all(git(lineage, "cat-file", "-t", source.partition("@")[2]) == "commit\n" for source in move.sources)
        assert move.status is Status.MEASURED


@pytest.mark.parametrize(
    ("first", "later", "label", "words"),
    [
        (accepted(10.0), rejected(), "refuted", "00002 was accept"),
        (rejected(), accepted(10.0), "renewed", "00002 was reject-incorrect"),
        (over_first(2.0), over_first(0.9), "verified", "00002 was x2 as fast as 00001"),
        (over_first(2.0), over_first(0.995), "confirmed", "it is x0.995"),
        (beside(19.0, "00001", 1.2), beside(19.0, "00001", 0.9), "confirmed", "00002 was x1.2 as fast as 00001"),
        (beside(19.0, "00001", 1.2), beside(19.0, "00001", 1.01), "confirmed", "it is x1.01"),
    ],
)
def test_a_note_is_refuted_when_its_trial_is_judged_again_and_says_something_else(
    lineage: Lineage, first: Evaluation, later: Evaluation, label: str, words: str
) -> None:
    plant(lineage, "int a;", 20.0)
    trial = tried(lineage, "int b;", first)
    lineage.learn((measured("00002"),))
    was = lineage.commit_of("00002")[:10]
    lineage.evaluate(replace(trial, evaluation=later), label)
    note = relearn(lineage)
    assert note.status is Status.REFUTED
    assert note.text.startswith("it helps\n\nContradicted: ")
    assert words in note.text
    assert f"00002@{was}" in note.text
    assert f"00002@{lineage.commit_of('00002')[:10]}" in note.text
    assert note.sources == (f"00002@{was}",)
    assert relearn(lineage) == note


@pytest.mark.parametrize(
    ("first", "later"),
    [
        (accepted(10.0), accepted(30.0)),  # two times that were never read side by side
        (over_first(2.0), over_first(1.6)),
        (accepted(10.0), Evaluation(Verdict.HARNESS, "no compiler", target="t")),
        (accepted(10.0), Evaluation(Verdict.TIMEOUT, "the machine was busy", target="t")),
        (accepted(10.0), replace(accepted(30.0), evidence=Evidence(unranked="busy"))),
        (accepted(10.0), replace(accepted(30.0), target="another machine")),
        (accepted(20.1), accepted(19.0)),
        (beside(19.0, "00001", 1.2), replace(beside(19.1, "00001", 1.2), wall_s=3.0)),
        (beside(19.0, "00001", 1.04), beside(19.0, "00001", 1.015)),
    ],
)
def test_what_says_the_same_or_nothing_leaves_a_note_as_it_is(
    lineage: Lineage, first: Evaluation, later: Evaluation
) -> None:
    plant(lineage, "int a;", 20.0)
    trial = tried(lineage, "int b;", first)
    (kept,) = lineage.learn((measured("00002"),))
    lineage.evaluate(replace(trial, evaluation=later), "confirmed")
    assert relearn(lineage) == kept


def test_a_base_that_is_judged_again_refutes_too(lineage: Lineage) -> None:
    base = plant(lineage, "int a;", 20.0)
    tried(lineage, "int b;", over_first(2.0))
    lineage.learn((measured("00001", "00002"),))
    lineage.evaluate(replace(base, evaluation=beside(8.0, "00002", 1.25)), "confirmed")
    note = relearn(lineage)
    assert note.status is Status.REFUTED
    assert f"00001@{lineage.commit_of('00001')[:10]}" in note.text


def test_a_stale_result_refutes_nothing_until_it_is_measured_again(lineage: Lineage) -> None:
    plant(lineage, "int a;", 20.0)
    trial = tried(lineage, "int b;", replace(accepted(10.0), judge="one"))
    (kept,) = lineage.learn((measured("00002"),))
    lineage.expect(Key(judge="two"))
    assert [trial.id for trial in lineage.population().stale] == ["00001", "00002"]
    assert relearn(lineage) == kept
    lineage.evaluate(replace(trial, evaluation=replace(rejected(), judge="two")), "renewed")
    assert relearn(lineage).status is Status.REFUTED


def test_a_corrected_note_rests_on_what_is_measured_now(lineage: Lineage) -> None:
    plant(lineage, "int a;", 20.0)
    trial = tried(lineage, "int b;", accepted(10.0))
    lineage.learn((measured("00002"),))
    lineage.evaluate(replace(trial, evaluation=accepted(30.0)), "confirmed")
    note = relearn(lineage)
    lineage.learn((replace(note, text="it does not help", status=Status.MEASURED),))
    assert relearn(lineage).status is Status.MEASURED
    assert relearn(lineage).sources == (f"00002@{lineage.commit_of('00002')[:10]}",)


def test_a_commit_that_nobody_kept_is_not_believed(lineage: Lineage) -> None:
    plant(lineage, "int a;", 20.0)
    lineage.learn((Note("T", "x", ("00001@ffffffffff",), status=Status.REFUTED),))
    assert lineage.notes()[0].sources == (f"00001@{lineage.commit_of('00001')[:10]}",)


def titles(lineage: Lineage) -> list[str]:
    return [note.title for note in lineage.notes()]


def test_what_others_learnt_while_a_digest_went_on_stays(lineage: Lineage) -> None:
    plant(lineage, "int a;", 20.0)
    one, two, old, gone = (Note(title, "x", ("00001",)) for title in ("one", "two", "old", "gone"))
    lineage.learn((old, gone))
    began = lineage.begin_round().notes
    other = again(lineage)  # another process
    other.population()
    assert other.begin_round().notes == began
    lineage.learn((*began, one), 1, began)
    other.learn((began[0], two), 2, began)
    assert titles(lineage) == ["old", "two", "one"]
    lineage.learn((replace(began[0], text="better"), began[1]), 3, began)
    assert titles(other) == ["old", "two", "one"]
    assert other.notes()[0].text == "better"


def test_notes_of_two_processes_at_the_same_time_are_all_kept(lineage: Lineage) -> None:
    plant(lineage, "int a;", 20.0)
    writers = [again(lineage) for _ in range(3)]

    def learn(number: int) -> None:
        for count in range(5):
            before = writers[number].notes()
            writers[number].learn((*before, Note(f"{number}.{count}", "x", ("manual.pdf",))), count, before)

    map_parallel(learn, range(3))
    assert sorted(titles(lineage)) == [f"{number}.{count}" for number in range(3) for count in range(5)]


def test_a_doubt_that_came_while_a_digest_went_on_stays(lineage: Lineage) -> None:
    plant(lineage, "int a;", 20.0)
    lineage.learn((measured("manual.pdf"),))
    began = lineage.notes()
    (doubted,) = lineage.learn((replace(began[0], challenge="I saw 128"),), 0, began)
    (kept,) = lineage.learn((replace(began[0], text="it helps much"),), 1, began)
    assert (kept.text, kept.challenge) == ("it helps much", "I saw 128")
    (settled,) = lineage.learn((replace(kept, challenge=""),), 1, (kept,))
    assert doubted.challenge
    assert not settled.challenge


def test_documented_notes_are_no_measurements(lineage: Lineage) -> None:
    plant(lineage, "int a;", 20.0)
    trial = tried(lineage, "int b;", accepted(10.0))
    (kept,) = lineage.learn((replace(measured("00002"), status=Status.ASSUMED),))
    lineage.evaluate(replace(trial, evaluation=rejected()), "refuted")
    assert relearn(lineage) == kept


def test_a_commit_that_is_gone_does_not_stop_a_run(lineage: Lineage) -> None:
    plant(lineage, "int a;", 20.0)
    tried(lineage, "int b;", accepted(10.0))
    (kept,) = lineage.learn((measured("00002"),))
    gone = (replace(kept, sources=("00002@0123456789",)),)
    assert (
        refute_contradicted(gone, lineage.last_population, {"00002": lineage.commit_of("00002")}, lineage.trial_at)
        == gone
    )


def test_rules_keep_their_refuted_notes_bounded(lineage: Lineage) -> None:
    plant(lineage, "int a;", 20.0)
    for index in range(8):
        tried(lineage, f"int b = {index};", over_first(20 / (10.0 - index / 10)))
    rules = RulesDigester(most=12)
    lineage.learn(rules(PROBLEM, Material((), lineage.last_population, lineage.notes())))
    assert len(lineage.notes()) > 1
    for trial in lineage.last_population.trials[1:]:
        lineage.evaluate(replace(trial, evaluation=rejected()), "refuted")
    lineage.learn(rules(PROBLEM, Material((), lineage.last_population, lineage.learn(lineage.notes()))))
    notes = lineage.notes()
    assert [note.title.startswith("Measured once: ") for note in notes if note.status is Status.REFUTED] == [True, True]
    assert len(notes) <= 12


def test_a_dead_end_closes_its_trials_until_it_is_refuted(lineage: Lineage) -> None:
    text = "int MR = {};  // tune: 1 2\nint NR = {};  // tune: 1 2 4\n"
    plant(lineage, text.format(1, 1), 20.0)
    dead = [tried(lineage, text.format(2, columns), rejected()) for columns in (1, 2)]
    notes = lineage.learn(RulesDigester()(PROBLEM, Material((), lineage.last_population)))
    assert lineage.last_population.prune(notes).pruned == {trial.id for trial in dead}
    lineage.evaluate(replace(dead[0], evaluation=accepted(9.0)), "renewed")
    refuted = lineage.learn(lineage.notes())
    assert lineage.last_population.prune(refuted).pruned == frozenset()
    assert git(lineage, "show", f"toy/main/{dead[1].id}:kernel.cpp") == text.format(2, 2)
