"""Predicted beside measured gains: from trials to figures, to a table, to words in the designer's prompt."""

import json
from dataclasses import replace
from io import StringIO

import pytest
from conftest import paired
from rich.console import Console

from ksflow.notes.calibration import FEW, advice, calibrations, predictions, share
from ksflow.records import Evaluation, Evidence, Experiment, Kernel, Origin, Population, Timing, Trial, Verdict, parse
from ksflow.report import show_calibration

BY = "designer=llm some/model"
KERNEL = Kernel("cpp", {"k.cpp": "x"})


def timed(us: float, **row: float | str) -> Evaluation:
    """Accepted; `row`: how it did beside another."""
    return Evaluation(Verdict.ACCEPT, "", us, (Timing("a", us),), parse(Evidence, {"against": [row]} if row else {}))


def trial(index: int, low: float, high: float, evaluation: Evaluation | None, by: str = BY) -> Trial:
    experiment = Experiment(f"idea {index}", "r", (low, high), 10.0)
    return Trial(f"{index:05}", Origin.EXPERIMENT, ("00000",), experiment, KERNEL, evaluation=evaluation, by=by)


def repair(index: int, failed: int, evaluation: Evaluation) -> Trial:
    first = trial(index, 1.0, 2.0, evaluation)
    return replace(first, origin=Origin.REPAIR, parents=(f"{failed:05}", "00000"))


SEED = Trial("00000", Origin.SEED, kernel=KERNEL, evaluation=timed(100.0))
WRONG = Evaluation(Verdict.INCORRECT, "c[0] is off")


def world(*trials: Trial) -> Population:
    return paired((SEED, *trials))


def gains(*trials: Trial) -> list[float | None]:
    return [None if one.gain_percent is None else round(one.gain_percent, 6) for one in predictions(world(*trials))]


def test_a_gain_is_what_was_timed_side_by_side_else_what_the_scores_say() -> None:
    row = {"id": "00000", "speedup": 1.1, "low": 1.05, "high": 1.15}
    assert gains(trial(1, 0, 9, timed(80.0)), trial(2, 0, 9, timed(80.0, **row))) == [25.0, 10.0]


def test_what_failed_has_no_gain_and_what_nobody_knows_does_not_count() -> None:
    harness = Evaluation(Verdict.HARNESS, "no compiler")
    noisy = replace(timed(50.0), evidence=Evidence(unranked="busy"))
    unwritten = replace(trial(5, 0, 9, None), kernel=None, failure="writer: no answer")
    unpredicted = trial(6, 0, 0, timed(50.0))
    foreign = replace(trial(7, 0, 9, timed(50.0)), parents=("00099",))
    assert gains(trial(1, 0, 9, WRONG), trial(2, 0, 9, harness), trial(3, 0, 9, noisy), unwritten) == [None, None]
    assert gains(unpredicted, foreign) == []


def test_a_repaired_experiment_counts_once_against_its_own_base() -> None:
    found = predictions(world(trial(1, 10, 30, WRONG), repair(2, 1, WRONG), repair(3, 2, timed(80.0))))
    assert [(one.trial, one.gain_percent, one.came_true) for one in found] == [("00001", 25.0, True)]


def test_stale_trials_do_not_count() -> None:
    old = replace(trial(1, 0, 9, timed(50.0)), stale="judge")
    assert calibrations(paired((SEED,), (old,))) == ()


def record(count: int, by: str = BY, start: int = 1) -> list[Trial]:
    """Half of what was predicted, ten points too high; the range is four wide; every fifth is wrong."""
    made = []
    for index in range(start, start + count):
        middle = 10.0 + index
        gain = middle / 2 - 10
        made.append(
            trial(index, middle - 2, middle + 2, WRONG if index % 5 == 0 else timed(100 / (1 + gain / 100)), by)
        )
    return made


def test_figures_say_how_far_ranges_are_off() -> None:
    (found,) = calibrations(world(*record(20)))
    assert (found.by, found.experiments, found.accepted, found.held) == (BY, 20, 16, 0)
    assert found.predicted_percent == pytest.approx(20.0)
    assert found.measured_percent == pytest.approx(0.0)
    assert found.shift_points == pytest.approx(-20.0)
    assert found.width_factor is not None
    moved = [
        abs(one.gain_percent + 20 - one.midpoint)
        for one in predictions(world(*record(20)))
        if one.gain_percent is not None
    ]
    inside = sum(off <= 2 * found.width_factor + 1e-9 for off in moved)
    assert inside / len(moved) >= 0.8
    assert sum(off < 2 * found.width_factor - 1e-9 for off in moved) / len(moved) < 0.8


def test_a_small_sample_says_so() -> None:
    trials = record(FEW - 1)
    (found,) = calibrations(world(*trials))
    assert found.accepted < FEW
    assert found.shift_points is found.width_factor is None
    assert "too few to say how your ranges should change" in advice(world(*trials), BY)
    assert share(0, 3)[1] > 0.5
    assert share(3, 3)[0] < 0.5


def test_the_prompt_hears_its_own_record_bounded() -> None:
    population = world(*record(15), *record(9, "designer=rules", 16))
    text = advice(population, BY)
    assert text.startswith("Of 15 experiments that you predicted, 12 were right and timed, 3 failed.")
    assert "held 0 of these 12; the median of their middles was +17.5 %, of the measured gains -1.2 %." in text
    assert (
        "- 00015: predicted 23 to 27 %, failed: idea 15\n- 00014: predicted 22 to 26 %, measured +2.0 %: idea 14"
        in text
    )
    assert "00016" not in text
    many = [replace(t, experiment=replace(t.experiment, description="long\nwords " * 99)) for t in record(500)]
    assert len(advice(world(*many), BY)) < 1500
    assert advice(population, "designer=llm another") == advice(world(), BY) == ""


def shown(population: Population) -> str:
    text = StringIO()
    show_calibration(Console(file=text, width=160), population)
    return text.getvalue()


def test_the_table_has_a_row_for_each_designer_and_is_not_there_without_one() -> None:
    text = shown(world(*record(20), *record(4, "designer=rules", 21)))
    lines = [line for line in text.splitlines() if "designer=" in line]
    assert lines[0].split()[:2] == BY.split()
    assert "80% [58%, 92%]" in lines[0]
    assert "move -20.0, x" in lines[0]
    assert lines[1].count("too few") == 1
    assert shown(world()) == ""
    assert shown(world(trial(1, 0, 0, timed(50.0)))) == ""


def test_a_designer_without_a_single_success_is_shown_too() -> None:
    text = shown(world(trial(1, 5, 9, WRONG)))
    assert "0% [0%, 79%]" in text


def test_figures_are_json() -> None:
    from dataclasses import asdict

    rows = json.loads(json.dumps([asdict(row) for row in calibrations(world(*record(20)))]))
    assert rows[0]["experiments"] == 20
