"""Records that cannot contradict themselves, and files that cannot hold what a record refuses."""

import json
from dataclasses import replace

import pytest
from conftest import accepted, draft, kernel
from pydantic import TypeAdapter, ValidationError

from ksflow import schema
from ksflow.errors import LineageError
from ksflow.home import shipped
from ksflow.records import (
    Evaluation,
    Experiment,
    Kernel,
    Origin,
    Plan,
    Population,
    Trial,
    Verdict,
    geomean,
    portfolio,
)


def experiment(innovation: float, low: float, high: float) -> Experiment:
    return Experiment("x", "y", (low, high), innovation)


def test_the_pick_of_three_is_the_papers() -> None:
    five = tuple(experiment(*row) for row in [(10, 9, 10), (90, 0, 99), (50, 5, 80), (20, 8, 9), (30, 1, 2)])
    assert portfolio(five) == (1, 2, 0)  # most innovative, then highest maximum, then highest minimum of the rest
    assert portfolio(five[:2]) == (1, 0)
    assert portfolio(()) == ()


@pytest.mark.parametrize("row", [(101, 0, 1), (-1, 0, 1), (5, 2, 1), (5, float("nan"), 1), (5, 0, float("inf"))])
def test_an_experiment_that_makes_no_sense_is_refused(row: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match=r"innovation|gain range"):
        experiment(*row)


def test_timings_and_accept_go_together() -> None:
    with pytest.raises(ValueError, match="timings and score belong"):
        Evaluation(Verdict.ACCEPT)
    with pytest.raises(ValueError, match="timings and score belong"):
        replace(accepted(1.0), verdict=Verdict.INCORRECT)
    with pytest.raises(ValueError, match="finite and positive"):
        accepted(float("nan"))


@pytest.mark.parametrize("name", ["../x.cpp", "a/b.cpp", "trial.json", ".git", "-rf", "", "a b.cpp", "x\n.cpp"])
def test_a_file_name_that_could_do_harm_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="file name"):
        Kernel("cpp", {name: "int x;"})


def test_a_plan_picks_what_it_has() -> None:
    with pytest.raises(ValueError, match="picked"):
        Plan((), (experiment(1, 1, 2),), (1,))
    with pytest.raises(ValueError, match="picked"):
        Plan((), (experiment(1, 1, 2),), (0, 0))


def test_the_population_ranks_and_explains() -> None:
    first = Trial("00001", Origin.SEED, kernel=kernel("a"), evaluation=accepted(20.0))
    second = replace(draft("00001"), id="00002", kernel=kernel("b"), evaluation=accepted(10.0))
    population = Population((first,)).plus(second)
    assert population == Population((first, second))
    assert population.ranked == Population((first, second)).ranked == (second, first)
    choice = population.choose("00002", "00001", "why")
    assert (choice.base_step.before_us, choice.base_step.after_us) == ({"8x8": 20.0}, {"8x8": 10.0})
    assert choice.base_step.report == "says what it did"
    with pytest.raises(KeyError, match="00007"):
        population.choose("00007", "00001", "why")


def test_the_geometric_mean_is_one() -> None:
    assert geomean([1.0, 100.0]) == pytest.approx(10.0)


@pytest.mark.parametrize("kind", schema.KINDS)
def test_the_schemas_on_disk_are_the_records(kind: str) -> None:
    assert json.loads(shipped("schemas", f"{kind}.json").read_text()) == schema.export(kind)


def test_files_are_checked_when_read() -> None:
    good = schema.dump("evaluation", accepted(3.0))
    assert schema.load("evaluation", good, Evaluation) == accepted(3.0)
    for bad in (
        good.replace(b'"version": 1', b'"version": 2'),
        good.replace(b"3.0", b"NaN"),
        good.replace(b'"reason"', b'"raison"'),
        good.replace(b"accept", b"reject-incorrect"),
        good[:-20],
        b"\xff",
        b"[]",
    ):
        assert bad != good
        with pytest.raises(LineageError, match="is not valid"):
            schema.load("evaluation", bad, Evaluation)


@pytest.mark.parametrize(
    "text",
    [
        '{"description": "d", "rubric": "r", "gain_percent": [1, 2], "innovation": true}',
        '{"description": "d", "rubric": "r", "gain_percent": ["1", 2], "innovation": 5}',
        '{"description": "d", "rubric": "r", "gain_percent": [1, 2], "innovation": 5, "extra": 1}',
        '{"description": "d", "rubric": "r", "gain_percent": [1, NaN], "innovation": 5}',
        '{"description": "d", "rubric": "r", "gain_percent": [1], "innovation": 5}',
    ],
)
def test_a_models_answer_is_parsed_strictly(text: str) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Experiment).validate_json(text)
