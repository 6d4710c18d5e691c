"""`digester=rules`: every note is true to the data and bounded."""

import re

from conftest import paired

from ksflow.kernels.source.families import structure_of
from ksflow.records import (
    Evaluation,
    Experiment,
    Kernel,
    Material,
    Note,
    Origin,
    Problem,
    Status,
    Timing,
    Trial,
    Verdict,
    geomean,
)
from ksflow.stages.digester.none import Nothing
from ksflow.stages.digester.rules import RulesDigester

PROBLEM = Problem("toy", "", "", "", "", "", ("cpp",), (), (), (), (), ())
TEXT = "int FORM = {};  // tune: naive tiles | form: how it is done\nint MR = {};  // tune: 1 2 4 | tile: rows\n"
FOREIGN = Note("Cache lines", "64 bytes", ("manual",))


def trial(index: int, form: str, rows: int, *times: float, experiment: Experiment | None = None) -> Trial:
    """No times: wrong."""
    timings = tuple(Timing(f"case{n}", us) for n, us in enumerate(times))
    evaluation = (
        Evaluation(Verdict.ACCEPT, "", geomean(times), timings, target="chip-1")
        if times
        else Evaluation(Verdict.INCORRECT, "c[0] is off", target="chip-1")
    )
    kernel = Kernel("cpp", {"k.cpp": TEXT.format(form, rows) if form else "int x;"})
    parents = ("00000",) if index else ()
    return Trial(f"{index:05d}", Origin.EXPERIMENT, parents, experiment, kernel, evaluation=evaluation)


TRIALS = (
    trial(0, "naive", 1, 100.0, 400.0),
    trial(1, "tiles", 1, 50.0, 100.0),
    trial(2, "tiles", 2, 50.5, 50.0),
    trial(3, "tiles", 4),
    trial(4, "naive", 4),
    trial(5, "", 0, 40.0, 90.0, experiment=Experiment("by a library", "", (0.0, 1.0), 1.0)),
)


def notes(*old: Note) -> dict[str, Note]:
    made = RulesDigester()(PROBLEM, Material((), paired(TRIALS), old))
    return {note.title: note for note in made}


def test_a_step_says_what_gained_where() -> None:
    note = notes()["Measured: FORM (form), 1 gained, 0 lost"]
    assert note.text.startswith("FORM naive→tiles gained 183 % [00000→00001] on 2 of 2 shapes.")
    assert note.sources == ("00000", "00001")
    assert note.targets == ("chip-1",)
    assert note.problems == (PROBLEM.name,)
    assert note.status is Status.MEASURED


def test_a_gain_on_some_shapes_only_says_so() -> None:
    note = notes()["Measured: MR (tile), 1 gained, 0 lost"]
    assert "MR 1→2 gained 41 % [00001→00002] on 1 of 2 shapes" in note.text


def test_a_value_that_never_worked_is_a_dead_end() -> None:
    note = notes()["Measured: MR=4 never worked"]
    of = structure_of(TRIALS[3].kernel)  # type: ignore[arg-type]
    assert note.text == f"All 2 kernels with MR=4 (structure {of}) failed: 2 reject-incorrect. c[0] is off"
    assert note.sources == note.closes == ("00003", "00004")
    assert not any(note.closes for title, note in notes().items() if "never" not in title)
    assert not [title for title in notes() if "FORM" in title and "never" in title]


def test_the_best_configuration_is_kept() -> None:
    note = notes()["Measured: lowest time with 2 tunables is of 00002"]
    assert "lowest time of 5 kernels" in note.text
    assert "FORM=tiles MR=2" in note.text
    assert "4.0x as fast as 00000" in note.text


def test_one_kernel_alone_is_no_lesson() -> None:
    assert RulesDigester()(PROBLEM, Material((), paired(TRIALS[:1]))) == ()


def test_a_loss_is_a_share_of_the_speed_as_predictions_have_it() -> None:
    slower = (TRIALS[1], trial(2, "tiles", 2, 100.0, 200.0))
    (note,) = (note for note in RulesDigester()(PROBLEM, Material((), paired(slower))) if "MR (tile)" in note.title)
    assert "MR 1→2 lost 50 % [00001→00002] on 2 of 2 shapes" in note.text


def test_experiments_without_tunables_count_too() -> None:
    assert "by a library" in notes()["Measured: 00005 gained 233 %"].text


def test_its_own_old_notes_are_replaced_and_others_kept() -> None:
    first = notes(FOREIGN)
    assert first["Cache lines"] == FOREIGN
    again = notes(*first.values())
    assert list(again) == list(first)


def test_a_note_of_its_own_that_was_refuted_is_kept_as_such() -> None:
    gone = Note("Measured: 00009 gained 9 %", "Contradicted: ...", ("00009@0123456789",), (), Status.REFUTED)
    first = notes(gone)
    kept = first["Measured once: 00009 gained 9 %"]
    assert (kept.text, kept.sources, kept.status) == (gone.text, gone.sources, Status.REFUTED)
    assert notes(*first.values()) == first


def test_notes_are_bounded() -> None:
    text = "".join(f"int T{n} = {{}};  // tune: 0 1 2 3\n" for n in range(30))
    trials = []
    for index in range(60):
        values = [0] * 30
        values[index % 30] = index // 30 + 1
        kernel = Kernel("cpp", {"k.cpp": text.format(*values)})
        us = 100.0 + index
        evaluation = Evaluation(Verdict.ACCEPT, "", us, (Timing("c", us),))
        trials.append(Trial(f"{index:05d}", Origin.EXPERIMENT, kernel=kernel, evaluation=evaluation))
    made = RulesDigester(most=8)(PROBLEM, Material((), paired(tuple(trials))))
    assert 0 < len(made) <= 8
    assert all(len(note.text) <= 600 for note in made)


def test_every_figure_can_be_computed_from_its_sources() -> None:
    times = {t.id: t.score_us for t in TRIALS if t.score_us}
    for note in notes().values():
        for percent, before, after in re.findall(r"gained (\d+) % \[(\d+)→(\d+)\]", note.text):
            assert round(100 * (times[before] / times[after] - 1)) == int(percent)


def test_nothing_to_learn_gives_no_notes_and_none_keeps_the_old() -> None:
    assert RulesDigester()(PROBLEM, Material()) == ()
    assert Nothing()(PROBLEM, Material((), paired(TRIALS), (FOREIGN,))) == (FOREIGN,)


def test_kernels_with_other_dispatch_lines_are_no_step_apart() -> None:
    """Such a kernel's time is not that of the values it declares."""
    line = "// launch: f [1] [64] (a)\n// dispatch: if m <= 8: MR=4\n"
    other = trial(1, "tiles", 1, 10.0, 10.0)
    assert other.kernel
    lined = Kernel("cpp", {"k.cpp": other.kernel.main + line})
    population = paired((TRIALS[0], Trial("00001", Origin.EXPERIMENT, kernel=lined, evaluation=other.evaluation)))
    titles = [note.title for note in RulesDigester()(PROBLEM, Material((), population, ()))]
    assert not [title for title in titles if "gained" in title]
