"""Replicates together: an interval that holds what lies between them, as a published implementation has it."""

import math
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from ksflow.evaluation.judge import statistics
from ksflow.evaluation.judge.outcome import CaseResult, CaseResults, Outcome, Reading
from ksflow.evaluation.judge.samples import Samples
from ksflow.evaluation.judge.timing import CaseBenchmark, Replicate, TimedKernel
from ksflow.records import Evidence, Json, Ratio, misfits, parse

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
    found = statistics.random_effects([0.05, 0.05, 0.05], [0.01**2] * 3, 0.0)
    assert found.tau == 0
    assert found.half == pytest.approx(4.30 * 0.01 / math.sqrt(3))


@pytest.mark.parametrize(("count", "t"), [(9, 2.306), (13, 2.179), (24, 2.069), (33, 2.037)])
def test_many_replicates_have_students_t(count: int, t: float) -> None:
    found = statistics.random_effects([0.05] * count, [0.01**2] * count)
    assert found.half == pytest.approx(t * 0.01 / math.sqrt(count), rel=0.005)


def test_a_single_replicate_does_not_pass_for_all_of_them() -> None:
    assert statistics.random_effects([0.05], [0.0], 0.01).half == pytest.approx(1.96 * 0.01)


def test_few_replicates_claim_no_more_than_was_to_be_foreseen() -> None:
    """Two that agree by chance make the interval no narrower than two of the known spread do, and two that differ make
    it no wider than is likely, as long as it holds 0."""
    agree = statistics.random_effects([-0.03, -0.0301], [1e-6] * 2, 0.02)
    assert agree.high == pytest.approx(-0.03005 + 1.96 * 0.02 / math.sqrt(2), abs=1e-3)
    differ = statistics.random_effects([-0.01, 0.02], [1e-6] * 2, 0.02)
    assert differ.half < 0.05 < 12.7 * 0.015
    assert statistics.random_effects([0.2, 0.3], [1e-6] * 2, 0.02).half == pytest.approx(12.71 * 0.05, rel=0.01)


def test_a_kernel_that_is_behind_is_left_early_and_a_claim_that_is_out_of_reach_too() -> None:
    assert statistics.random_effects([-0.05], [1e-6], 0.02).reach < math.log(1.01)
    assert statistics.random_effects([-0.01], [1e-6], 0.02).reach > math.log(1.01)
    level, ahead = (statistics.random_effects([mean - 0.005, mean, mean + 0.005], [1e-6] * 3) for mean in (0.0, 0.06))
    assert level.chance(3, 24, math.log(1.01)) < 0.05 < 0.9 < ahead.chance(3, 24, math.log(1.01))


def test_what_a_kernel_differs_from_itself_is_in_the_interval() -> None:
    """As a component of the variance with one degree of freedom: 0.04 of which 0.01 is the control's own error."""
    found = statistics.RandomEffects(mean=0.05, error=0.01, free=8, tau=0.0, p=1.0, foreseen=0.01)
    steady = replace(found, mean=0.009)
    assert found.with_control(steady) == found
    widened = found.with_control(replace(found, mean=0.04))
    assert widened.mean == 0.05
    assert widened.error**2 == pytest.approx(0.01**2 + (0.04**2 - 0.01**2))
    assert widened.free == pytest.approx(0.04**4 / (0.01**4 / 8 + 0.0015**2))
    assert 4.30 * 0.04 < replace(widened, mean=0.5).half < 12.71 * 0.04
    assert found.half == pytest.approx(2.306 * 0.01, rel=0.005)
    assert found.reach == pytest.approx(0.05 + 1.761 * 0.01, abs=1e-4)  # 8 degrees of freedom and 6 foreseen ones
    assert replace(found, foreseen=0.0).reach == pytest.approx(0.05 + 1.860 * 0.01, abs=1e-4)
    assert replace(found, mean=0.5, free=1.5).half == pytest.approx(6.07 * 0.01, rel=0.03)


def test_rounds_that_follow_each_other_are_not_taken_for_as_many_measurements() -> None:
    """The machine is slower for some rounds at a time: the error of the mean is larger than that of single rounds."""
    own = [100.0] * 24
    drifting = [100.0 + 4 * (turn // 8 % 2) for turn in range(24)]
    generator = torch.Generator().manual_seed(1)
    window = (0.0, 1.0)
    together = statistics.ratio_logs(drifting, own, [True] * 24, generator, window).std()
    assert float(together) > 1.3 * 0.02 / math.sqrt(24)


def test_a_kernel_that_pays_for_four_calls_in_one_is_charged_for_all_of_them() -> None:
    """It clears four tables in every fourth call: by the usual call it is faster, by the mean over all calls slower.
    One that sleeps in the dear call, so that it looks preempted, gains nothing by it."""

    def row(asleep_us: float, dear_us: float) -> Json:
        results = []
        for number in range(3):
            cpu = [100.0 + (dear_us if (turn + number) % 4 == 0 else 0) + turn % 3 for turn in range(12)]
            wall = [us + (asleep_us if us > 150 else 0) for us in cpu]
            plain = [120.0 + (turn + number) % 3 for turn in range(12)]
            samples = {"": Samples(wall, wall, cpu), "00001": Samples(plain, plain, plain)}
            results.append(CaseResult(samples, frozenset(samples), 12, 1, 0.0, [number], 0))
        row = Outcome([CaseResults({"name": "only"}, results)]).ratio("", "00001")
        assert row is not None
        return row

    for asleep_us in (0.0, 900.0):
        found = row(asleep_us, 88.0)
        assert found["mean"][0] == pytest.approx(121 / 123, abs=0.01)
        assert found["low"] < 1.01 or not found["ranked"]
    honest = row(0.0, 0.0)
    assert honest["ranked"]
    assert honest["low"] > 1.15
    assert honest["mean"][1] > 1.15


def test_a_case_counts_in_a_speed_up_by_its_weight() -> None:
    """A kernel is x1.5 on one case and x0.9 on another. Equal weights, of whatever size, change no digit."""

    def reading(*weights: float) -> Reading:
        cases = []
        for (case, us), weight in zip((("a", 150.0), ("b", 90.0)), weights, strict=True):
            results = []
            for number in range(4):
                own, rival = ([level + (turn * 7 + number) % 3 for turn in range(12)] for level in (100.0, us))
                samples = {"": Samples(own, own, own), "00001": Samples(rival, rival, rival)}
                results.append(CaseResult(samples, frozenset(samples), 12, 1, 0.0, [number], 0, weight))
            cases.append(CaseResults({"name": case, "weight": weight}, results))
        found = Outcome(cases).reading("", "00001")
        assert found
        return found

    plain, heavy, first, second = (reading(*two) for two in ((1, 1), (0.9, 0.3), (1, 1e-9), (1e-9, 1)))
    assert reading(0.3, 0.3).row() == plain.row() == reading(7, 7).row()
    assert plain.effect.mean == pytest.approx((first.effect.mean + second.effect.mean) / 2)
    spread = statistics.SPREAD**2 / 4  # of the prior, which no weight changes
    for kind in ("effect", "mean"):
        ends = (getattr(one, kind) for one in (heavy, first, second))
        whole, a, b = (one.mean for one in ends)
        assert whole == pytest.approx(0.75 * a + 0.25 * b, abs=1e-6)
        errors = (getattr(one, kind).foreseen ** 2 - spread for one in (heavy, first, second))
        whole, a, b = errors
        assert whole == pytest.approx(0.75**2 * a + 0.25**2 * b, rel=0.02)


@pytest.mark.parametrize(("us", "said"), [(100.0, "a tie"), (3000.0, "slower"), (90.0, "not ranked")])
def test_on_a_busy_machine_cpu_time_says_that_no_claim_is_to_come(us: float, said: str) -> None:
    """All calls were preempted. Nobody is faster by CPU time, which waiting and sleeping take nothing of."""
    results = []
    for number in range(3):
        samples = {}
        for name in ("", "00001"):
            cpu = [(100.0 if name else us) + (turn * 7 + number + len(name)) % 3 for turn in range(12)]
            wall = [took * (5 + (turn + number * len(name)) % 4) for turn, took in enumerate(cpu)]
            samples[name] = Samples(wall, wall, cpu)
        results.append(CaseResult(samples, frozenset(samples), 12, 1, 0.0, [number], 0))
    reading = Outcome([CaseResults({"name": "only"}, results)]).reading("", "00001")
    assert reading
    row = parse(Ratio, reading.row())
    assert ("slower" if row.slower else "a tie" if row.tie else "not ranked") == said
    assert ("preempted" in reading.doubt) is (said == "not ranked")
    assert reading.clear(claimed=False, patient=True, most=9) is (said != "not ranked")


def _taking_turns(count: int) -> tuple[CaseBenchmark, list[list[str]]]:
    """A benchmark of so many kernels, and who is called in each of its rounds. Who comes first, after new contents
    have been made, needs 60 % more."""
    rounds: list[list[str]] = []

    class Called(TimedKernel):
        def run_batch(self, entries: Any) -> float:
            self.samples.add(160e-6 if not rounds[-1] else 100e-6, 100e-6)
            rounds[-1].append(self.name)
            return 0.0

    class Played(CaseBenchmark):
        def _contents(self, count: int) -> Any:
            rounds.append([])
            return []

        def _null_batch(self, null: object, entries: object) -> None:
            rounds[-1].append("null")

    kernels: list[TimedKernel] = [Called(str(index), cast(Any, None), 60.0) for index in range(count)]
    backend, case = SimpleNamespace(), SimpleNamespace(large=False, name="only", feed=lambda: iter(()))
    return Played(cast(Any, backend), cast(Any, case), kernels, Replicate(0, min(count, 3))), rounds


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_everyone_comes_first_equally_often_and_before_and_after_each_other(count: int) -> None:
    benchmark, rounds = _taking_turns(count)
    for _ in range(2 * (count + 1)):
        benchmark._round(None)
        benchmark.rounds += 1
        if benchmark.rounds % 2 == 0:
            assert rounds[-1] == rounds[-2][::-1]
    for index in range(count + 1):
        assert {*Counter(order[index] for order in rounds).values()} == {2}
    assert len(rounds[0]) == count + 1
    follows = Counter(pair for order in rounds for pair in pairwise(order))
    assert len(follows) == count * (count + 1)
    assert {*follows.values()} == {2}


def test_every_second_replicate_has_the_first_two_kernels_change_their_parts() -> None:
    """What is left of who follows whom from one round to the next is the same for both."""
    changed = {"0": "1", "1": "0"}
    for count in (2, 3):
        played = [_taking_turns(count) for _ in range(2)]
        for number, (benchmark, _) in enumerate(played):
            benchmark.replicate = Replicate(number, count)
            for benchmark.rounds in range(16):
                benchmark._round(None)
        first, second = (rounds for _, rounds in played)
        assert [[changed.get(name, name) for name in order] for order in first] == second


def test_a_kernel_beside_itself_is_not_given_up_for_coming_first() -> None:
    benchmark, rounds = _taking_turns(2)
    started = len(rounds)
    while not benchmark._enough(4, 0.0):
        benchmark._round(None)
        benchmark.rounds += 1
    assert benchmark.rounds - started == benchmark.wanted_rounds
    assert benchmark.rounds % 2 == 0
    own, other = (kernel.samples.low_mean() for kernel in benchmark.kernels)
    assert own == pytest.approx(other)


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


def test_many_readings_are_told_by_their_range_and_count() -> None:
    doubt = str(compared(*((100.0, 100.0 * x) for x in (1.4, 0.6, 1.3, 0.7, 1.2)))["why"])
    assert "x0.6 to x1.4 in 5 comparisons" in doubt


def test_readings_that_contradict_each_other_rank_nothing() -> None:
    row = compared((100.0, 104.6), (100.0, 57.5))
    assert not row["ranked"]
    assert "replicates disagree: x1.05, x0.575" in str(row["why"])
    assert float(str(row["heterogeneity_p"])) < 0.01
    assert float(str(row["low"])) < 0.575
    assert float(str(row["high"])) > 1.046


@pytest.mark.parametrize(
    ("pairs", "busy", "said"),
    [
        (((100.0, 95.0), (100.0, 95.0)), -1, "a tie"),
        (((100.0, 95.0),) * 4, -1, "slower"),
        (((100.0, 80.0),), -1, "slower"),
        (((100.0, 80.0), (100.0, 80.1), (100.0, 80.0)), 0, "a tie"),
        (((100.0, 80.0), (100.0, 80.1), (100.0, 80.0)), -1, "slower"),
        (((100.0, 20.0), (100.0, 20.1), (100.0, 20.0)), 0, "slower"),
        (((100.0, 50.0), (100.0, 48.0), (100.0, 52.0)), 0, "slower"),
    ],
)
def test_few_replicates_claim_only_what_is_a_tenth_apart_on_a_machine_of_their_own(
    pairs: tuple[tuple[float, float], ...], busy: int, said: str
) -> None:
    row = compared(*pairs, busy=busy)
    ratio = parse(Ratio, {name: row[name] for name in row if name not in ("case", "doubt")})
    assert ("slower" if ratio.slower else "a tie" if ratio.tie else "not ranked") == said


def test_readings_that_agree_rank_a_small_gain() -> None:
    row = compared((100.0, 103.1), (100.0, 102.9), (100.0, 103.0), (100.0, 103.0))
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
