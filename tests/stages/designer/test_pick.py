"""Which experiments are run: the paper's three, or what a record of predictions lets expect."""

import math
import random
from collections.abc import Callable
from functools import partial

import pytest
from lm.scripted import dummy

from ksflow.errors import ConfigError
from ksflow.notes.calibration import Prediction
from ksflow.records import Experiment, Population, portfolio
from ksflow.search.pick import LEAST, calibrated, picked
from ksflow.stages.designer.llm import LlmDesigner
from ksflow.stages.designer.rules import Rules

Idea = tuple[Experiment, float, float]
"""An experiment, its chance of being right, and its gain in percent if it is."""


def overconfident(rng: random.Random) -> Idea:
    """The more it promises, the less it holds; what is called innovative is the same."""
    promise = rng.uniform(5, 100)
    experiment = Experiment("idea", "r", (promise / 2, promise), min(100.0, promise * rng.uniform(0.8, 1.2)))
    return experiment, 0.95 - 0.008 * promise, max(0.0, 15 - 0.1 * promise + rng.gauss(0, 3))


def uninformative(rng: random.Random) -> Idea:
    """Ranges say nothing; innovation says what fails."""
    low, innovation = rng.uniform(-10, 20), rng.uniform(0, 100)
    experiment = Experiment("idea", "r", (low, low + rng.uniform(5, 60)), innovation)
    return experiment, 0.95 - 0.8 * innovation / 100, max(0.0, rng.gauss(8, 4))


def good(rng: random.Random) -> Idea:
    """Ranges hold what was measured, and innovation costs nothing."""
    gain = rng.uniform(-5, 40)
    middle = gain + rng.gauss(0, 3)
    return Experiment("idea", "r", (middle - 5, middle + 5), rng.uniform(0, 100)), 0.7, gain


def expected(designer: Callable[[random.Random], Idea], seed: int) -> tuple[float, float]:
    """What the paper's picks and the calibrated ones gain over 40 rounds of five, on the same experiments."""
    rng = random.Random(seed)
    record: list[Prediction] = []
    paper = fitted = 0.0
    for turn in range(40):
        ideas = [designer(rng) for _ in range(5)]
        worth = [chance * max(gain, 0.0) for _, chance, gain in ideas]
        experiments = tuple(experiment for experiment, _, _ in ideas)
        chosen = calibrated(experiments, record)
        paper += sum(worth[index] for index in portfolio(experiments))
        fitted += sum(worth[index] for index in chosen)
        for index in chosen:
            experiment, chance, gain = ideas[index]
            record.append(Prediction(f"{turn}", "d", experiment, gain if rng.random() < chance else None))
    return paper, fitted


def total(designer: Callable[[random.Random], Idea]) -> float:
    """Calibrated over paper, in 6 runs."""
    runs = [expected(designer, seed) for seed in range(6)]
    return sum(fitted for _, fitted in runs) / sum(paper for paper, _ in runs)


@pytest.mark.parametrize(("designer", "least"), [(overconfident, 1.25), (uninformative, 1.1), (good, 0.99)])
def test_calibrated_gains_where_predictions_mislead_and_loses_nothing_where_they_are_good(designer, least) -> None:
    assert total(designer) >= least


def some(count: int, right: int) -> list[Prediction]:
    rng = random.Random(1)
    ideas = [overconfident(rng) for _ in range(count)]
    return [Prediction(f"{i}", "d", idea[0], idea[2] if i < right else None) for i, idea in enumerate(ideas)]


FIVE = tuple(
    Experiment(f"{i}", "r", (low, high), innovation)
    for i, (low, high, innovation) in enumerate(
        [(0.0, 90.0, 50.0), (10.0, 20.0, 20.0), (5.0, 10.0, 90.0), (2.0, 15.0, 10.0), (1.0, 5.0, 5.0)]
    )
)


def test_a_short_record_leaves_the_papers_pick() -> None:
    assert calibrated(FIVE, some(LEAST - 1, LEAST - 1)) == portfolio(FIVE) == (2, 0, 1)
    assert calibrated(FIVE, some(LEAST, 3)) == portfolio(FIVE)


@pytest.mark.parametrize("right", [4, 20, 40])
def test_the_most_innovative_always_has_a_place(right: int) -> None:
    chosen = calibrated(FIVE, some(40, right))
    assert chosen[0] == 2
    assert len(set(chosen)) == 3
    assert calibrated(FIVE, some(40, right)) == chosen


def test_a_record_without_any_variety_gives_a_pick() -> None:
    same = [Prediction(str(i), "d", Experiment("x", "r", (5.0, 5.0), 50.0), math.e) for i in range(20)]
    assert len(set(calibrated(FIVE, same))) == 3
    assert calibrated(FIVE[:1], same) == (0,)


def test_predicted_takes_those_that_promise_most() -> None:
    assert picked("predicted", FIVE, Population(()), "d") == (0, 1, 3)
    assert picked("paper", FIVE, Population(()), "d") == picked("calibrated", FIVE, Population(()), "d") == (2, 0, 1)
    assert picked("predicted", FIVE[:1], Population(()), "d") == (0,)


def test_an_unknown_pick_is_refused_with_those_that_exist() -> None:
    for designer in (Rules, partial(LlmDesigner, dummy())):
        with pytest.raises(
            ConfigError, match=r"designer\.pick='best' is unknown; choose one of calibrated, paper, pre"
        ):
            designer(pick="best")
