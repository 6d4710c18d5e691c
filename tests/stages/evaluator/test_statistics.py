"""Replicates together: an interval that holds what lies between them, as a published implementation has it."""

import math

import pytest

from ksflow.judge import statistics
from ksflow.judge.outcome import CaseResult, CaseResults, Outcome
from ksflow.judge.samples import Samples
from ksflow.records import Evidence, misfits, parse

_LOGS = [math.log(value) for value in (1.05, 1.04, 1.07, 0.99, 1.055)]
_ERRORS = [error**2 for error in (0.01, 0.012, 0.008, 0.015, 0.01)]


def test_replicates_are_taken_together_as_statsmodels_does() -> None:
    """`combine_effects(..., method_re="chi2", use_t=True)` of statsmodels 0.14, the row `random effect wls`."""
    found = statistics.random_effects(_LOGS, _ERRORS)
    assert found.mean == pytest.approx(0.042015, abs=1e-6)
    assert found.tau**2 == pytest.approx(0.000493, abs=1e-6)
    assert found.p == pytest.approx(0.000219, abs=1e-6)
    assert (found.mean - found.half, found.mean + found.half) == pytest.approx((0.006673, 0.077357), abs=5e-5)


def test_replicates_that_agree_by_chance_are_as_uncertain_as_each_of_them() -> None:
    found = statistics.random_effects([0.05, 0.05, 0.05], [0.01**2] * 3)
    assert found.tau == 0
    assert found.half == pytest.approx(4.30 * 0.01 / math.sqrt(3))


@pytest.mark.parametrize(("count", "t"), [(9, 2.306), (13, 2.179), (24, 2.069), (33, 2.037)])
def test_many_replicates_have_students_t(count: int, t: float) -> None:
    found = statistics.random_effects([0.05] * count, [0.01**2] * count)
    assert found.half == pytest.approx(t * 0.01 / math.sqrt(count), rel=0.005)


def test_a_single_replicate_does_not_pass_for_all_of_them() -> None:
    assert statistics.random_effects([0.05], [0.0]).half == pytest.approx(1.96 * statistics.SINGLE)


def compared(*replicates: tuple[float, float], busy: int = -1) -> dict[str, object]:
    """A kernel beside another one on one case, from the time of each in every replicate, in µs. In one of them, where
    so asked, all calls but two were preempted."""
    results = []
    for number, pair in enumerate(replicates):
        samples = {}
        for name, us in zip(("", "00001"), pair, strict=True):
            row = [us * (1 + 0.001 * (turn % 5)) for turn in range(24)]
            wall = [us * 40 if number == busy and turn > 1 else us for turn, us in enumerate(row)]
            samples[name] = Samples(wall, wall, row)
        results.append(CaseResult(samples, frozenset(samples), 24, 1, 0.0, [], 0))
    outcome = Outcome([CaseResults({"name": "only"}, results)])
    row = outcome.ratio("", "00001")
    assert row is not None
    return {**row, "case": outcome.cases[0].row(""), "doubt": outcome.doubt("")}


def test_readings_that_contradict_each_other_rank_nothing() -> None:
    row = compared((100.0, 104.6), (100.0, 57.5))
    assert not row["ranked"]
    assert "replicates disagree: x1.05, x0.575" in str(row["why"])
    assert float(str(row["heterogeneity_p"])) < 0.01
    assert float(str(row["low"])) < 0.575
    assert float(str(row["high"])) > 1.046


def test_readings_that_agree_rank_a_small_gain() -> None:
    row = compared((100.0, 103.1), (100.0, 102.9), (100.0, 103.0))
    assert row["ranked"]
    assert 1.02 < float(str(row["low"])) < 1.03 < float(str(row["high"])) < 1.04


def test_two_like_kernels_are_a_tie_and_not_in_doubt() -> None:
    row = compared((100.0, 100.4), (100.0, 99.7), (100.0, 100.1))
    assert row["ranked"]
    assert float(str(row["low"])) < 1 < float(str(row["high"]))


def test_a_replicate_whose_calls_were_preempted_is_no_reading() -> None:
    row = compared((1000.0, 1100.0), (1000.0, 1101.0), (1000.0, 1099.0), busy=2)
    assert len(row["replicates"]) == 2  # type: ignore[arg-type]
    assert row["case"]["us"] == pytest.approx(1001, abs=2)  # type: ignore[index]
    assert not row["doubt"]
    alone = compared((1000.0, 1100.0), busy=0)
    assert not alone["ranked"]
    assert "preempted" in str(alone["why"])
    assert "preempted" in str(alone["doubt"])


def test_a_kernel_far_behind_has_a_ratio_that_is_recorded() -> None:
    """Twenty thousand times slower, and by readings that differ: no end of the interval rounds to 0."""
    found = compared((200_000.0, 8.0), (400_000.0, 8.0))
    row = {key: value for key, value in found.items() if key not in ("case", "doubt")}
    evidence = parse(Evidence, {"against": [{**row, "id": "00001"}]})
    assert not list(misfits(evidence))
    (ratio,) = evidence.against
    assert ratio.speedup == pytest.approx(8 / 200_000 / 2**0.5, rel=1e-5)
    assert ratio.inverse.replicates == pytest.approx((25_000, 50_000), rel=1e-5)
