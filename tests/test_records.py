"""Records that cannot contradict themselves, and files that cannot hold what a record refuses."""

import json
import math
import random
import re
import sys
from dataclasses import astuple, dataclass, replace
from typing import Any

import pytest
from conftest import accepted, draft, kernel, paired
from jsonschema import Draft202012Validator
from pydantic import TypeAdapter, ValidationError

from ksflow.errors import LineageError
from ksflow.home import shipped_path
from ksflow.records import (
    Call,
    Evaluation,
    Evidence,
    Experiment,
    Kernel,
    Key,
    Origin,
    Plan,
    Population,
    Record,
    Timing,
    Trial,
    Verdict,
    geomean,
    parse,
    portfolio,
    schema,
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
    first, second = paired(
        (
            Trial("00001", Origin.SEED, kernel=kernel("a"), evaluation=accepted(20.0)),
            replace(draft("00001"), id="00002", kernel=kernel("b"), evaluation=accepted(10.0)),
        )
    ).trials
    population = Population((first,)).with_trial(second)
    assert population == Population((first, second))
    assert population.ranked == Population((first, second)).ranked == (second, first)
    selection = population.choose("00002", "00001", "why")
    assert (selection.base_step.before_us, selection.base_step.after_us) == ({"8x8": 20.0}, {"8x8": 10.0})
    assert selection.base_step.report == "says what it did"
    with pytest.raises(KeyError, match="00007"):
        population.choose("00007", "00001", "why")


def judged(name: str, us: float, row: float | None = None, of: str = "00001", **claim: Any) -> Trial:
    """A trial, `row` times as fast as another one beside which it was timed."""
    rows = [{"id": of, "speedup": row, "low": row * 0.98, "high": row * 1.02}] if row else []
    claims = {"claim": {**rows[0], "ranked": True, "why": "", **claim}} if claim else {}
    evidence = parse(Evidence, {"against": rows, **claims})
    return Trial(name, Origin.SEED, kernel=kernel(name), evaluation=replace(accepted(us), evidence=evidence))


@pytest.mark.parametrize(
    ("newer", "wins"),
    [
        (judged("00002", 1.0), False),  # never beside it, whatever the scores say
        (judged("00002", 5.0, 1.01), False),  # beside it a tie
        (judged("00002", 5.0, 1.029), False),  # ahead by less than the margin
        (judged("00002", 11.0, 1.2), True),
        (judged("00002", 5.0, 1.2, faster=False), False),  # the claim knows of the control
        (judged("00002", 11.0, 1.1, faster=True), True),
        (judged("00002", 5.0, 1.5, faster=True, ranked=False, why="the control was off"), False),
        (judged("00002", 1.0, 1.5, of="00000", faster=True), False),  # about another one
    ],
)
def test_a_new_best_needs_more_than_noise(newer: Trial, wins: bool) -> None:
    first = judged("00001", 10.0)
    for population in (Population((first, newer)), Population((first,)).with_trial(newer)):
        assert population.best == population.leader == (newer if wins else first)


def test_a_best_that_was_judged_again_and_lost_is_none() -> None:
    first, second = judged("00001", 10.0), judged("00002", 5.0, 2.0, faster=True)
    assert Population((first, second)).leader == second
    third = judged("00003", 6.0, 0.9, of="00002", faster=False)
    assert Population((first, second, third)).leader == second
    again = at(judged("00002", 7.0, 0.8, of="00003", faster=False), 1)
    assert Population((first, again, third)).leader == first  # nothing says that the third is ahead of the first
    beside = at(judged("00003", 6.0, 1.5, of="00001", faster=True), 1)
    assert Population((first, again, beside)).leader == beside
    assert Population(()).best is None


def test_a_leader_that_fails_as_a_rival_leads_no_more() -> None:
    first, king = judged("00001", 10.0), at(judged("00002", 5.0, 2.0, faster=True), 1)
    challenger = judged("00003", 6.0, 1.5, of="00001", faster=True)
    assert challenger.evaluation
    failed = challenger.evaluation.with_evidence(failed_rivals={"00002": "killed by SIGABRT"})
    assert Population((first, king, challenger)).best == king
    deposed = replace(challenger, evaluation=failed)
    for population in (Population((first, king, deposed)), Population((first, king)).with_trial(deposed)):
        assert population.leader == population.best == deposed
        assert population.best_so_far == (first, first, deposed)


def at(trial: Trial, moment: int) -> Trial:
    """The trial, where all that it was timed beside was so in a confirmation."""
    assert trial.evaluation
    evidence = trial.evaluation.evidence
    rows = tuple(replace(row, moment=moment) for row in evidence.against)
    claim = evidence.claim and replace(evidence.claim, moment=moment)
    return replace(trial, evaluation=trial.evaluation.with_evidence(against=rows, claim=claim))


def test_the_newest_comparison_of_two_decides_whichever_of_them_was_judged_then() -> None:
    """A leader that its own older record calls slower leads by the newer one, and no other way round."""
    first, leader = judged("00001", 10.0), judged("00002", 7.0, 2.0, faster=True)
    slower = judged("00003", 5.0, 0.9, of="00002", faster=False)
    assert Population((first, leader, slower)).leader == leader
    overtaken = at(judged("00001", 9.0, 1.1, of="00002", faster=True), 1)  # the older one's own record says it
    population = Population((overtaken, leader))
    assert population.leader == overtaken
    gain = population.speedup(leader, overtaken)
    assert gain
    assert astuple(gain) == pytest.approx((1 / 1.1, 1 / 1.122, 1 / 1.078, True), rel=1e-3)


def test_two_that_a_confirmation_saw_each_behind_the_other_are_a_tie() -> None:
    first, older = judged("00001", 10.0), at(judged("00002", 7.0, 0.95, of="00003", faster=False), 1)
    lucky = at(judged("00003", 5.0, 0.943, of="00002", faster=False), 1)
    population = Population((first, older, lucky))
    row = population.side_by_side("00003", "00002")
    assert row is not None
    assert row.tie
    assert not population.scale.is_ahead("00003", "00002")
    assert not population.scale.is_ahead("00002", "00003")


def test_what_could_not_be_ranked_decides_nothing() -> None:
    first = judged("00001", 10.0)
    newer = judged("00002", 5.0, 1.5)
    assert newer.evaluation
    (row,) = newer.evaluation.evidence.against
    doubted = newer.evaluation.with_evidence(against=(replace(row, ranked=False, why="replicates disagree"),))
    assert Population((first, newer)).best == newer
    assert Population((first, replace(newer, evaluation=doubted))).best == first


def test_a_population_that_grew_is_the_one_that_was_read() -> None:
    dice, trials = random.Random(3), []
    grown = Population(())
    order = sorted(range(1200), key=lambda number: number + dice.uniform(0, 4))  # a few finish out of order
    snapshots = []
    for number in order:
        row = dice.uniform(0.9, 1.05) if number else None
        trials.append(judged(f"{number:05d}", dice.uniform(1, 100), row, of=f"{dice.randrange(number or 1):05d}"))
        grown = grown.with_trial(trials[-1])
        if number % 400 == 7:
            snapshots.append((grown, Population(tuple(sorted(trials, key=lambda t: t.id)))))
    assert len(snapshots) == 3
    for one, read in snapshots:
        assert one == read
        assert (one.ranked, one.best, one.best_so_far) == (read.ranked, read.best, read.best_so_far)
        assert dict(one.by_id) == read.by_id
        assert one.trials[-3:] == read.trials[-3:]
        assert "99999" not in one.by_id


def timed_trial(number: int, score: float) -> Trial:
    timed = Evaluation(Verdict.ACCEPT, score_us=score, timings=(Timing("a", score, (score,) * 40),))
    code = Kernel("cpp", {"kernel.cpp": f"// kernel {number}"})
    return Trial(f"{number:05d}", Origin.SEED, kernel=code, evaluation=timed)


def test_another_trial_costs_the_same_in_a_large_population() -> None:
    def calls(count: int) -> int:
        population = Population(tuple(timed_trial(number, 1 + number * 7919 % count) for number in range(count)))
        population = population.with_trial(timed_trial(count, 5.5))
        seen = 0

        def saw(*event: object) -> None:
            nonlocal seen
            seen += 1

        sys.setprofile(saw)
        try:
            grown = population.with_trial(timed_trial(count + 1, count / 2 + 0.5))
            assert grown.ranked[0].id in grown.by_id
            assert grown.best
        finally:
            sys.setprofile(None)
        return seen

    assert calls(10_000) < 2 * calls(100)  # searches by halves take a few steps more


def test_a_record_from_before_keys_is_read_and_stale() -> None:
    old = json.loads(schema.dump("evaluation", accepted(3.0)))
    del old["evaluation"]["judge"], old["evaluation"]["problem"]
    found = schema.load("evaluation", json.dumps(old).encode(), Evaluation)
    assert found == accepted(3.0)
    assert Key("p", "local-3", "t").describe_changes(found) == "problem, judge"


def test_evidence_of_another_version_is_read_without_loss() -> None:
    found = {
        "said": [1, {"by": "an evaluator"}],
        "clocks": "unknown",  # not what it is now
        "timed": [{"case": "8x8", "us": 3.0, "samples_us": [3.0, 3.1], "later": None}],
        "against": [{"speedup": 1.5, "id": "00001", "high": 1.6, "low": 1.4}],
        "log": "",
    }
    old = json.loads(schema.dump("evaluation", accepted(3.0)))
    old["evaluation"]["evidence"] = found
    evaluation = schema.load("evaluation", json.dumps(old).encode(), Evaluation)
    assert evaluation.evidence.more == {"said": found["said"], "clocks": "unknown"}
    assert evaluation.evidence.timed[0].more == {"samples_us": [3.0, 3.1], "later": None}
    assert str(evaluation.versus("00001")) == "x1.5 [1.4, 1.6]"
    written = schema.dump("evaluation", evaluation)
    assert schema.load("evaluation", written, Evaluation) == evaluation
    kept = json.loads(written)["evaluation"]["evidence"]
    assert {name: kept[name] for name in ("said", "clocks")} == {name: found[name] for name in ("said", "clocks")}
    assert kept["against"] == found["against"]


def test_a_ratio_that_is_none_is_kept_and_decides_nothing() -> None:
    for row in ({"id": "00001", "speedup": -1.0, "low": 1.0, "high": 2.0}, {"id": "00001", "speedup": 2.0}):
        evidence = parse(Evidence, {"against": [row], "claim": row})
        assert (evidence.against, evidence.claim) == ((), None)
        assert evidence.more == {"against": [row], "claim": row}


def test_the_geometric_mean_is_one() -> None:
    assert geomean([1.0, 100.0]) == pytest.approx(10.0)


@pytest.mark.parametrize("kind", schema.KINDS)
def test_the_schemas_on_disk_are_the_records(kind: str) -> None:
    assert json.loads(shipped_path("schemas", f"{kind}.json").read_text()) == schema.export(kind)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("evaluation", accepted(3.0)),
        ("plan", Plan(("a",), (Experiment("x", "y", (0.0, 1.0), 5.0),), (0,))),
        ("call", Call("writer", "m", ())),
    ],
)
def test_what_is_written_fits_the_schema_for_other_tools(kind: str, value: object) -> None:
    Draft202012Validator(schema.export(kind)).validate(json.loads(schema.dump(kind, value)))


def test_what_is_no_record_is_not_written() -> None:
    for wrong in ({"wall_s": math.nan}, {"wall_s": "long"}):
        with pytest.raises(ValueError, match=r"cannot be written|not JSON compliant"):
            schema.dump("evaluation", replace(accepted(3.0), **wrong))


def test_files_are_checked_when_read() -> None:
    good = schema.dump("evaluation", accepted(3.0))
    assert schema.load("evaluation", good, Evaluation) == accepted(3.0)
    for bad in (
        good.replace(b'"version": 1', b'"version": 2'),
        good.replace(b"3.0", b"NaN"),
        good.replace(b'"evidence": {', b'"evidence": {"x": -Infinity, ').replace(b", }", b"}"),
        good.replace(b'"reason"', b'"raison"'),
        good.replace(b"accept", b"reject-incorrect"),
        good[:-20],
        b"\xff",
        b"[]",
    ):
        assert bad != good
        with pytest.raises(LineageError, match="is not valid"):
            schema.load("evaluation", bad, Evaluation)
    with pytest.raises(LineageError, match=r"\$\.evaluation\.wall_s: 'x' is not of type 'number'"):
        schema.load("evaluation", re.sub(rb'"wall_s": [0-9.]+', b'"wall_s": "x"', good), Evaluation)


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


@dataclass(frozen=True)
class _Inner(Record):
    name: str

    def __post_init__(self) -> None:
        {}[self.name]


@dataclass(frozen=True)
class _Outer(Record):
    inner: _Inner


def test_a_key_error_within_a_record_is_not_taken_for_an_unknown_key() -> None:
    with pytest.raises(KeyError, match="absent"):
        parse(_Outer, {"inner": {"name": "absent"}})
    with pytest.raises(ValueError, match="_Outer has no other"):
        parse(_Outer, {"other": 1})


def test_a_number_that_no_float_can_hold_is_not_valid() -> None:
    data = schema.dump("evaluation", replace(accepted(3.0), wall_s=123.0)).replace(b"123.0", b"1" + b"0" * 400)
    with pytest.raises(LineageError, match=r"evaluation.json is not valid: Evaluation.wall_s is not finite"):
        schema.load("evaluation", data, Evaluation)
