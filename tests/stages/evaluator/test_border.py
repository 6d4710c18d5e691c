"""What crosses a border is data: numbers that are none, archives without end, answers that make no sense."""

import os

import pytest

from ksflow.evaluation.judge.__main__ import tell
from ksflow.evaluation.judge.evaluator import _nonsense
from ksflow.evaluation.processes import wire
from ksflow.records import Evidence, Json, misfits, parse


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_is_none_is_named_and_ends_nobody(number: float) -> None:
    answer = {"id": 7, "verdict": "accept", "timings": [{"us": 1.0}, {"us": number}]}
    reader, writer = os.pipe()
    tell(writer, answer)
    told = wire.receive(reader)
    assert told["id"] == 7
    assert told["verdict"] == "harness-error"
    assert f"timings.1.us: {number}" in told["reason"]
    for fd in (reader, writer):
        os.close(fd)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"us": -1e300}, "finite and positive"),
        ({"us": "fast"}, ""),
    ],
)
def test_an_answer_that_makes_no_sense_is_the_judges_fault(row: Json, why: str) -> None:
    """No exception in whoever asked."""
    timing = {"case": "a", "us": 1.0, "samples_us": [1.0], "cpu_us": None, **row}
    assert why in _nonsense({"verdict": "accept", "timings": [timing], "evidence": {}})
    assert _nonsense({"verdict": "accept", "timings": [timing], "evidence": {}})
    assert not _nonsense({"verdict": "accept", "timings": [{**timing, "us": 1.0}], "evidence": {}})


def test_a_comparison_that_does_not_fit_is_told_and_not_dropped() -> None:
    """One ratio of 0 would cost all comparisons and the claim: whoever reads them must be told."""
    good = {"id": "00001", "speedup": 1.2, "low": 1.1, "high": 1.3}
    bad = {**good, "low": 0.0}
    answer = {"verdict": "accept", "timings": [], "evidence": {"against": [good, bad], "claim": {**good, "faster": 1}}}
    assert "finite and positive" in _nonsense(answer)
    wrong = list(misfits(parse(Evidence, answer["evidence"])))
    assert sorted(line.partition(":")[0] for line in wrong) == ["Evidence.against", "Evidence.claim"]
    assert not _nonsense({**answer, "evidence": {"against": [good], "of a later version": 1}})
