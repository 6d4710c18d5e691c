"""One scale: what is said of any two kernels agrees with what is said of all the others."""

import io
import math
import random
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
from conftest import accepted, draft, kernel
from rich.console import Console
from test_session import Run, shown

from ksflow import report
from ksflow.kernels.problem.loader import load
from ksflow.lineage import Lineage
from ksflow.lm.prompts import render
from ksflow.loop.schedule import RunOutcome
from ksflow.records import (
    Claim,
    Comparison,
    Cost,
    Evaluation,
    Evidence,
    Kernel,
    Origin,
    Population,
    Problem,
    Repeat,
    RooflineCase,
    Scale,
    Trial,
    base_of,
)
from ksflow.records.comparisons import RESOLVED
from ksflow.report import tables
from ksflow.report.headline import headline, of_outcome
from ksflow.report.page.facts import run_facts
from ksflow.report.tracking import _rows as tracking_rows

_SHOWN = 200
"""Populations that are made at random."""


def trial(
    number: int, us: float, *rows: Comparison, seed: bool = False, baseline: bool = False, **more: object
) -> Trial:
    """An accepted kernel with what it was timed beside."""
    claim = Claim(**{f: getattr(rows[0], f) for f in ("id", "speedup", "low", "high", "ranked", "why", "moment")},
                  faster=rows[0].ahead) if rows else None  # fmt: skip
    evidence = Evidence(against=rows, claim=claim, **more)  # type: ignore[arg-type]
    name = f"{number:05}"
    made = replace(draft("00001"), id=name, kernel=kernel(name), evaluation=replace(accepted(us), evidence=evidence))
    return (
        replace(made, origin=Origin.SEED, experiment=None, parents=(), baseline=baseline) if seed or baseline else made
    )


def row(other: int, speedup: float, half: float = 0.005, ranked: bool = True, moment: int = 0) -> Comparison:
    """`half`: of the interval, as a natural logarithm."""
    low, high = speedup * math.exp(-half), speedup * math.exp(half)
    why = "" if ranked else "replicates disagree"
    return Comparison(id=f"{other:05}", speedup=speedup, low=low, high=high, ranked=ranked, why=why, moment=moment)


def drawn(seed: int) -> Iterator[Trial]:
    """A search as it comes about: each kernel is timed beside the leader, now and then beside others. Raw times are of
    moments that differ by a third; some comparisons are not ranked, some kernels are timed beside nothing."""
    rng = random.Random(seed)
    true = {1: 100.0}
    population = Population((trial(1, 100.0, baseline=True),))
    yield from population.trials
    for number in range(2, rng.randint(4, 25)):
        true[number] = 100.0 * math.exp(rng.gauss(-0.05 * number, 0.3))
        leader = int(population.leader.id) if population.leader else 1
        beside = {leader} if rng.random() < 0.95 else set()
        beside |= (
            set(rng.sample(sorted(true)[:-1], rng.randint(1, min(3, len(true) - 1)))) if rng.random() < 0.3 else set()
        )
        rows = []
        for other in beside:
            half = rng.choice((0.003, 0.01, 0.03))
            read = true[other] / true[number] * math.exp(rng.gauss(0, half / 2))
            rows.append(row(other, read, half, rng.random() < 0.85, rng.choice((0, 0, 1))))
        confirmed = rng.choice((0, 1)) if number > 3 and rows and rows[0].ranked else 0
        made = trial(number, true[number] * math.exp(rng.gauss(0, 0.3)), *rows, baseline=rng.random() < 0.1)
        made = replace(made, evaluation=made.evaluation and made.evaluation.with_evidence(confirmed=confirmed))
        population = population.with_trial(made)
        yield made


@pytest.fixture(scope="module")
def populations() -> list[Population]:
    return [Population(tuple(drawn(seed))) for seed in range(_SHOWN)]


def test_ratios_are_consistent(populations: list[Population]) -> None:
    for population in populations:
        ids, scale = [trial.id for trial in population.ranked], population.scale
        for a, b, c in zip(ids, ids[1:], ids[2:], strict=False):
            ab, bc, ac, ba = scale.ratio(a, b), scale.ratio(b, c), scale.ratio(a, c), scale.ratio(b, a)
            if ab and bc and ac and ba:
                assert ab.ratio * bc.ratio == pytest.approx(ac.ratio)
                assert (ba.ratio, ba.low, ba.high) == pytest.approx((1 / ab.ratio, 1 / ab.high, 1 / ab.low))
                assert ab.low <= ab.ratio <= ab.high
            else:
                assert sum(found is None for found in (ab, bc, ac)) >= 2


def test_times_follow_from_the_ratios(populations: list[Population]) -> None:
    for population in populations:
        for trial in population.ranked:
            over = population.scale.ratio(trial.id, population.scale.anchor)
            if over:
                assert population.time_us(trial) == pytest.approx(
                    (population.scale.time_us(population.scale.anchor) or 0) / over.ratio
                )
            else:
                assert population.time_us(trial) == trial.score_us


def test_what_is_grown_is_what_is_read_to_the_last_digit(populations: list[Population]) -> None:
    """Two processes, one of which saw the trials come in another order, state the same figures."""
    for population in populations:
        grown = Population(())
        for trial in random.Random(1).sample(population.trials, len(population.trials)):
            grown = grown.with_trial(trial)
        for one in (grown, Population(population.trials)):
            assert [t.id for t in one.ranked] == [t.id for t in population.ranked]
            assert one.best_so_far == population.best_so_far
            assert (one.leader, one.best) == (population.leader, population.best)
            for a in population.ranked:
                assert one.time_us(a) == population.time_us(a)
                assert one.scale.ratio(a.id, one.scale.anchor) == population.scale.ratio(a.id, one.scale.anchor)


def test_a_far_slower_kernel_never_changes_the_leader(populations: list[Population]) -> None:
    for population in populations:
        assert population.leader
        beside = int(population.leader.id)
        worse = trial(90, 1.0, row(beside, 0.01))  # whatever its raw time says
        assert population.with_trial(worse).leader == population.leader
        assert population.with_trial(worse).best == population.best


def test_the_best_so_far_never_gets_slower(populations: list[Population]) -> None:
    for population in populations:
        times = [population.time_us(best) or 0.0 for best in population.best_so_far if best]
        assert times == sorted(times, reverse=True)


def test_what_is_not_ranked_never_leads(populations: list[Population]) -> None:
    for population in populations:
        assert population.leader
        hopeful = trial(90, 1.0, row(int(population.leader.id), 50.0, 0.4, ranked=False))
        grown = population.with_trial(hopeful)
        assert grown.leader == population.leader
        ratio = grown.speedup(hopeful, population.leader)
        assert ratio
        assert not ratio.ranked
        assert grown.ranked[-1].score_us
        assert "00090" not in {best.id for best in grown.best_so_far if best}


def test_a_confirmed_winner_is_replaced_only_by_what_was_confirmed_ahead_of_it_side_by_side() -> None:
    """As a run that goes on: raw times of another day, a comparison that could not be ranked, a new leader."""
    start = trial(1, 830.0, baseline=True)
    won = trial(7, 298.0, row(1, 1.48, moment=1), confirmed=1)
    slower = trial(12, 547.0, row(7, 0.49))
    unsure = trial(21, 140.0, row(7, 1.03, 0.42, ranked=False))
    population = Population((start, won, slower, unsure))
    assert [best and best.id for best in population.best_so_far] == ["00001", "00007", "00007", "00007"]
    assert population.best is won
    ahead = trial(22, 900.0, row(7, 1.2))
    grown = population.with_trial(ahead)
    assert (grown.leader, grown.best) == (ahead, won)
    claimed = headline(grown, (start,))
    assert claimed
    assert claimed.best is won
    assert "00022 leads, x1.2 " in claimed.why_unconfirmed
    assert "00007 stays the winner" in claimed.why_unconfirmed
    barely = trial(23, 1.0, row(7, RESOLVED, 0.001, moment=2), confirmed=2)
    assert grown.with_trial(barely).best is won
    confirmed = replace(ahead, evaluation=replace(ahead.evaluation, evidence=Evidence(against=(row(7, 1.2, moment=2),), confirmed=2)))  # type: ignore[type-var] # noqa: E501 # fmt: skip
    assert Population((start, won, slower, unsure, confirmed)).best is confirmed


def test_an_approved_kernel_keeps_its_place_like_a_confirmed_one() -> None:
    start, approved = trial(1, 100.0, baseline=True), trial(2, 50.0, row(1, 2.0))
    leads = trial(3, 10.0, row(2, 1.5))
    trials = (start, approved, leads)
    assert Population(trials).best is leads
    assert Population(trials, approved=frozenset({"00002"})).best is approved


def test_a_confirmed_winner_gives_way_to_a_baseline_that_is_ahead_of_it() -> None:
    start, won = trial(1, 100.0, baseline=True), trial(2, 50.0, row(1, 2.0, moment=1), confirmed=1)
    other = trial(3, 10.0, row(2, 1.5), baseline=True)
    assert Population((start, won, other)).best is other


def test_two_that_never_met_are_compared_through_a_third() -> None:
    population = Population(
        (trial(1, 100.0, baseline=True), trial(2, 5.0, row(1, 2.0, 0.03)), trial(3, 7.0, row(1, 3.0, 0.04)))
    )
    ratio = population.scale.ratio("00003", "00002")
    assert ratio
    assert ratio.ratio == pytest.approx(1.5)
    assert math.log(ratio.high / ratio.ratio) == pytest.approx(0.05)  # the root of the sum of squares


def test_a_measurement_of_one_s_own_keeps_its_interval() -> None:
    population = Population((trial(1, 100.0, baseline=True), trial(2, 5.0, row(1, 2.0, 0.03))))
    ratio, read = population.scale.ratio("00002", "00001"), row(1, 2.0, 0.03)
    assert ratio
    assert (ratio.ratio, ratio.low, ratio.high) == pytest.approx((read.speedup, read.low, read.high))


def test_what_nothing_connects_has_no_ratio_and_says_so() -> None:
    lonely = trial(3, 7.0)
    start = trial(1, 100.0, baseline=True)
    population = Population((start, trial(2, 5.0, row(1, 2.0)), lonely))
    assert population.speedup(lonely, start) is None
    assert population.time_us(lonely) == 7.0
    assert population.ranked[-1] is lonely
    claimed = headline(population, (start,), lonely)
    assert claimed
    assert "not timed beside a baseline" in str(claimed)


def test_a_contradiction_is_said_and_widens_what_rests_on_it() -> None:
    first = (trial(1, 100.0, baseline=True), trial(2, 50.0, row(1, 2.0)), trial(3, 25.0, row(2, 2.0)))
    agree, versus = (Population((*first, trial(4, 12.0, row(3, 2.0), row(1, ratio)))).scale for ratio in (8.0, 12.0))
    assert agree.contradictions == ()
    (found, *_) = versus.contradictions
    assert "one of them was disturbed" in str(found)
    narrow, wide = (scale.ratio("00004", scale.anchor) for scale in (agree, versus))
    assert narrow
    assert wide
    assert math.log(wide.high / wide.low) > 5 * math.log(narrow.high / narrow.low)


def test_a_repeat_is_where_its_original_is() -> None:
    start, made = trial(1, 100.0, baseline=True), trial(2, 50.0, row(1, 2.0))
    evidence = Evidence(repeat=Repeat(of="00002"))
    again = replace(trial(3, 50.0), evaluation=replace(accepted(50.0), evidence=evidence))
    population = Population((start, made, again))
    assert population.speedup(again, start) == population.speedup(made, start)
    assert again not in population.ranked


def test_the_newest_confirmation_says_what_time_it_is() -> None:
    """Times are those of the newest confirmation: what the baseline takes now, whatever it took when it was judged."""
    start = trial(1, 100.0, baseline=True)
    won = trial(2, 30.0, row(1, 2.0, moment=3), confirmed=3)
    population = Population((start, won))
    assert (population.time_us(won), population.time_us(start)) == pytest.approx((30.0, 60.0))
    assert population.scale.times_us("00001") == pytest.approx({"8x8": 60.0})


def test_cycles_are_solved_by_weight() -> None:
    """Against the textbook: the estimate of a triangle is the mean of the direct and the indirect way, by variance."""
    trials = (
        trial(1, 1.0, baseline=True),
        trial(2, 1.0, row(1, 2.0, 0.02)),
        trial(3, 1.0, row(1, 3.0, 0.01), row(2, 1.51, 0.02)),
    )
    direct, by_way = (math.log(3.0), 0.01**2), (math.log(2.0 * 1.51), 2 * 0.02**2)
    weights = 1 / direct[1], 1 / by_way[1]
    expected = (direct[0] * weights[0] + by_way[0] * weights[1]) / sum(weights)
    scale = Scale.from_trials(trials)
    found = scale.ratio("00003", scale.anchor)
    assert found
    assert math.log(found.ratio) == pytest.approx(expected)
    assert math.log(found.high / found.ratio) == pytest.approx(1 / math.sqrt(sum(weights)))


def judge_of_another_moment(problem: Problem, made: Kernel, versus: tuple[Trial, ...]) -> Evaluation:
    """Longer is faster; raw times are of moments that differ by up to a half, ratios are right within 0.5 %."""
    rng = random.Random(f"{made.main} {len(versus)}")
    us = 1000.0 / len(made.main)
    read = {t.id: len(made.main) / len(t.kernel.main) * rng.uniform(0.998, 1.002) for t in versus if t.kernel}
    rows = tuple(Comparison(id=id, speedup=x, low=x / 1.005, high=x * 1.005) for id, x in read.items())
    return accepted(us * rng.uniform(1.0, 1.5)).with_evidence(against=rows)


def test_terminal_lineage_page_and_trackers_state_the_same_figures(lineage: Lineage) -> None:
    outcome = Run(lineage, evaluate=judge_of_another_moment)(evaluations=9)
    population, baselines, claimed = outcome.population, outcome.baselines, of_outcome(outcome)
    page = run_facts(lineage)
    ending = shown(outcome, lineage)
    summary = tables.summary(outcome, load("softmax"), lineage)
    console = Console(file=io.StringIO(), width=250)
    report.show_tree(console, population.trials, population, headline(population, baselines), {})
    tree = console.file.getvalue()  # type: ignore[attr-defined]
    assert page["headline"] == summary["headline"] == str(claimed)
    assert str(claimed) in ending
    assert summary["score_us"] == population.time_us(outcome.best)
    assert page["over"][0]["speedup"] == summary["speedup"] == claimed.speedup
    assert page["story"][-1]["came"][-1] == claimed.claim
    tracked = {row.step: row.metrics for row in tracking_rows(population, baselines, set())}
    for trial, best, row in zip(population.trials, population.best_so_far, page["trials"], strict=True):
        time, over = population.time_us(trial), population.speedup(trial, baselines[0])
        assert time
        assert over
        assert row["us"] == tracked[int(trial.id)]["score_us"] == time
        assert row["best_us"] == tracked[int(trial.id)]["best_us"] == (population.time_us(best) if best else None)
        (line,) = [line for line in tree.splitlines() if f"{trial.id} accept" in line]
        if trial not in baselines:
            assert tracked[int(trial.id)]["speedup_over_baseline"] == over.ratio
            assert str(over) in line
            base = base_of(trial, population.by_id)
            gain = population.speedup(trial, base)
            assert row["gain"] == (round(gain.gain_percent, 2) if gain else None)
            assert render.outcome(trial, population).startswith(trial.id)
            assert f"{time:.4g} us" in render.outcome(trial, population)
    shown_times = [population.time_us(trial) or 0.0 for trial in (outcome.best, *baselines)]
    assert all(f"{time:.4g}" in ending for time in shown_times)


def test_of_two_that_were_judged_at_the_same_time_the_faster_one_leads() -> None:
    """Each was timed beside the leader of before, and never beside the other."""
    population = Population((trial(1, 100.0, baseline=True), trial(2, 5.0, row(1, 2.0)), trial(3, 70.0, row(1, 3.0))))
    assert [best and best.id for best in population.best_so_far] == ["00001", "00002", "00003"]
    close = Population((*population.trials[:2], trial(3, 1.0, row(1, 2.02))))  # within what is known of the two
    assert close.leader is close.trials[1]


def test_a_remark_never_contradicts_the_claim() -> None:
    """A confirmation beside a baseline that was not ranked, where other measurements tell the two apart; a tie; and a
    kernel that reads faster and was not ranked ahead."""
    trials = [
        trial(1, 100.0, baseline=True),
        trial(2, 70.0, row(1, 1.4)),
        trial(
            3,
            50.0,
            *(row(2, 2.0, moment=1), row(1, 1.2, 0.4, ranked=False, moment=1), row(4, 1.0, moment=1)),
            roofline=(RooflineCase(case="8x8", bound_us=42.0, share=0.84),),
        ),
        trial(4, 50.0, row(2, 2.0)),
        trial(5, 49.0, row(2, 2.01, 0.2)),
    ]
    population = Population(tuple(trials))
    claimed = headline(population, trials[:1])
    assert claimed
    assert claimed.best is trials[2]
    assert re.fullmatch(r"winner 00003: x2\.8 \[2\.\d+, 2\.\d+\] over 00001; a tie with 00004", str(claimed))
    assert claimed.roofline == "00003 is at 84 % of the roofline"
    assert [claimed.standing(trial) for trial in trials] == [
        *("", "", "winner", "a tie with 00003", "not ranked ahead of 00003")
    ]
    busy = [replace(t, evaluation=t.evaluation.with_evidence(unranked="busy")) for t in trials[3:] if t.evaluation]
    claimed = headline(Population((*trials[:3], *busy)), trials[:1])
    assert claimed
    assert [claimed.why_unranked(trial) for trial in busy] == ["", "not ranked: busy"]
    console = Console(file=io.StringIO(), width=200)
    report.show_tree(console, population.trials[:3] + tuple(busy), claimed.known, claimed, {})
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert re.search(r"00004 .* a tie with 00003 .*\n\S* *00005 ", shown), shown
    assert shown.count("not ranked: busy") == 1


@pytest.mark.parametrize(
    ("start", "beside", "said"),
    [
        (3, row(3, 8.0, moment=1), r"x8 \[7\.\d+, 8\.\d+\] over its start, 00003"),
        (3, row(1, 2.0), r"x8 \[7\.\d+, 8\.\d+\] over its start, 00003 \(not timed side by side\)"),
        (1, row(1, 2.0), ""),
    ],
)
def test_the_speed_up_over_the_start_has_its_interval_and_says_how_it_was_measured(
    start: int, beside: Comparison, said: str
) -> None:
    trials = trial(1, 100.0, baseline=True), trial(3, 400.0, row(1, 0.25), seed=True), trial(4, 50.0, beside)
    made = replace(trials[-1], origin=Origin.EXPERIMENT, parents=(f"{start:05}",))
    claimed = headline(Population((*trials[:2], made)), trials[:1], made)
    assert claimed
    assert re.fullmatch(said, claimed.start), claimed.start


def test_the_table_says_why_kernels_that_read_faster_follow_the_winner() -> None:
    problem = load("softmax", "cpu")
    trials = trial(1, 100.0, baseline=True), trial(2, 50.0, row(1, 2.0, moment=1)), trial(3, 49.0, row(2, 1.02, 0.2))
    claimed = headline(Population(trials), trials[:1])
    assert claimed
    table = tables._scores(Console(width=200), problem, [trials[1], trials[0], trials[2]], claimed, {}, 0)
    assert "00003 read faster than 00002; none was ranked ahead of it" in str(table.caption)
    table = tables._scores(Console(width=200), problem, list(trials[1::-1]), claimed, {}, 0)
    assert "faster" not in str(table.caption)


def test_ties_come_before_kernels_that_were_not_ranked_ahead(lineage: Lineage) -> None:
    won = trial(2, 50.0, row(1, 2.0, moment=1), row(9, 1.0, moment=1))
    unsure = [trial(number, 40.0, row(2, 1.05, 0.2)) for number in (3, 4, 5)]
    start = trial(1, 100.0, baseline=True)
    population = Population((start, won, *unsure, trial(9, 50.0, row(1, 2.0))))
    outcome = RunOutcome(population, won, (start,), "", 4, 0, "", {"search": 1.0}, 0.0, Cost())
    console = Console(file=io.StringIO(), width=200)
    tables.show_outcome(console, outcome, load("softmax", "cpu"), lineage)
    said = console.file.getvalue()  # type: ignore[attr-defined]
    assert re.findall(r"^ *(0000\d) ", said, re.MULTILINE) == ["00002", "00001", "00009", "00003", "00004"]
    assert "00003, 00004 read faster than 00002; none was ranked ahead of it; 1 other kernel not shown" in " ".join(
        said.split()
    )
    report.show_trial(console, won, population, {})
    said = console.file.getvalue()  # type: ignore[attr-defined]
    assert f"{of_outcome(outcome)} (the speed-ups below are of its own judgement)" in said


def test_a_winner_that_was_confirmed_before_that_was_kept_is_one() -> None:
    start, won = trial(1, 100.0, baseline=True), trial(2, 50.0, row(1, 2.0, moment=1))
    beaten = trial(3, 40.0, row(2, 0.9, moment=2))
    population = Population((start, won, beaten, trial(4, 30.0, row(2, 1.5))))
    assert population.best is won


def test_a_part_of_a_population_is_led_by_one_of_its_own() -> None:
    """Also where one that was left out is ahead of all of them: it is wrong on a held-out shape, say."""
    population = Population((trial(1, 100.0, baseline=True), trial(2, 5.0, row(1, 9.0)), trial(3, 50.0, row(2, 0.5))))
    assert population.leader is population.trials[1]
    assert population.without_trials({"00002"}).leader is population.trials[2]
