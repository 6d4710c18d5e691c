"""Which kernel a trial was made from, and how many times as fast it is: one answer, whoever asks."""

import re
from dataclasses import replace

import pytest
from conftest import accepted, draft, kernel, paired, rejected

from ksflow.kernels.problem.loader import load
from ksflow.lineage.rounds import RoundSnapshot, RunHistory
from ksflow.lm.prompts import render
from ksflow.lm.prompts.tried import tried_experiments
from ksflow.notes.calibration import predictions
from ksflow.records import (
    Evaluation,
    Evidence,
    Json,
    Material,
    Origin,
    Population,
    Trial,
    base_of,
    first_attempt,
    parse,
)
from ksflow.report.headline import headline
from ksflow.report.spending import improvements
from ksflow.stages.digester.rules import RulesDigester
from ksflow.training.optimize import metrics

IDEA = "unroll the inner loop by four"


def judged(name: str, us: float, *rows: tuple[str, float, float, float], claim: Json | None = None) -> Trial:
    """An accepted experiment on the seed; `rows`: id, speed-up, low, high of what it was timed beside."""
    versus = [dict(zip(("id", "speedup", "low", "high"), row, strict=True)) for row in rows]
    evidence = parse(Evidence, {"against": versus, **({"claim": claim} if claim else {})})
    return replace(draft("00001"), id=name, kernel=kernel(name), evaluation=replace(accepted(us), evidence=evidence))


SEED = Trial("00001", Origin.SEED, kernel=kernel("base"), evaluation=accepted(100.0), name="seed.cpp")
FAILED = replace(
    draft("00001", idea=IDEA), id="00002", kernel=kernel("wrong"), evaluation=rejected(), by="designer=llm"
)
AGAIN = replace(FAILED, id="00003", origin=Origin.REPAIR, parents=("00002", "00001"), kernel=kernel("still wrong"))
REPAIRED = replace(
    AGAIN, id="00004", parents=("00003", "00002"), kernel=kernel("right"), evaluation=judged("00004", 10.0).evaluation
)
KNOWN = paired((SEED, FAILED, AGAIN, REPAIRED))


def test_a_repair_has_the_base_of_the_attempt_that_it_repairs() -> None:
    assert [base_of(trial, KNOWN.by_id) for trial in KNOWN.trials] == [None, SEED, SEED, SEED]
    assert [first_attempt(trial, KNOWN.by_id) for trial in KNOWN.trials] == [SEED, FAILED, FAILED, FAILED]
    assert base_of(REPAIRED, {"00001": SEED}) is None


def test_a_branch_that_claims_to_repair_itself_has_no_base() -> None:
    loop = replace(REPAIRED, parents=("00004",))
    assert base_of(loop, {"00004": loop}) is None


def test_prompts_show_what_a_repair_gained_over_its_base() -> None:
    step = KNOWN.step(REPAIRED)
    assert (step.parent, step.before_us, step.after_us) == ("00001", {"8x8": 100.0}, pytest.approx({"8x8": 10.0}))
    assert "+900.0 %" in render.analysis(REPAIRED, step)
    assert render.outcome(REPAIRED, KNOWN) == f"00004 from 00001: {IDEA} -> 10 us, +900.0 %"
    shown = tried_experiments(KNOWN, KNOWN.choose("00001", "00001", ""), 4000)
    assert shown.startswith("On the base 00001:\nFaster:\n- 00004: ")
    assert shown.count("base") == 1


def test_a_note_is_kept_of_an_experiment_that_a_repair_made_right() -> None:
    notes = RulesDigester()(load("softmax"), Material(population=KNOWN))
    assert any("00004 gained 900 %" in note.title and note.sources == ("00001", "00004") for note in notes)


def test_an_experiment_is_graded_by_what_its_repair_came_to() -> None:
    problem = load("softmax")
    moment = RoundSnapshot(problem.name, "dry", "1.1", paired((SEED,)), selection=KNOWN.choose("00001", "00001", ""))
    history = RunHistory(problem, "dry", (moment,), KNOWN)
    assert [trial.id for trial in history.children("00001")] == ["00002", "00003", "00004"]
    attempt = metrics.recorded_attempt(history)
    assert moment.selection is not None
    assert FAILED.experiment is not None
    found = attempt(moment, moment.selection, FAILED.experiment)
    assert (found.what, found.gain_percent) == ("as recorded in 00004, accept", pytest.approx(900.0))
    score, said = metrics.selector(history, moment)(moment.selection)
    assert (score, "took 10 us" in said) == (1.0, True)


def test_a_baseline_is_no_winner_and_what_could_not_be_ranked_is_named() -> None:
    faster = judged("00002", 50, ("00001", 2.0, 1.9, 2.1))
    assert faster.evaluation is not None
    busy = replace(faster, evaluation=faster.evaluation.with_evidence(unranked="most of its calls were preempted"))
    claimed = headline(paired((SEED, busy)), (SEED,))
    assert claimed is not None
    assert re.fullmatch(
        r"no winner: none is ranked ahead of .+; 00002 reads x2 \[1.9, 2.11?\] and could not be ranked", str(claimed)
    )
    assert (claimed.claim, claimed.unproven) == ("", busy)


@pytest.mark.parametrize(
    "changes",
    [{"stale": "judge"}, {"evaluation": rejected()}, {"evaluation": replace(accepted(50.0), judge="other-2")}],
)
def test_what_cannot_be_compared_has_no_speedup(changes: dict[str, str | Evaluation]) -> None:
    first, other = judged("00001", 100), judged("00002", 50, ("00001", 2.0, 1.9, 2.1))
    population = Population((first, other))
    assert population.speedup(other, first)
    changed = replace(other, **changes)  # type: ignore[arg-type]
    population = Population((first, changed))
    assert population.speedup(changed, first) is None
    assert population.speedup(first, changed) is None


def test_everybody_gives_the_paired_answer() -> None:
    """The scores say +100 %, but side by side it was +50 %."""
    faster = replace(judged("00002", 50, ("00001", 1.5, 1.45, 1.55)), by="designer=llm")
    population = paired((SEED, faster))
    assert "+50.0 %" in render.outcome(faster, population)
    assert [one.gain_percent for one in predictions(population)] == [pytest.approx(50.0)]
    attempt = metrics.recorded_attempt(RunHistory(load("softmax"), "dry", (), population))
    snapshot, selection = RoundSnapshot("softmax", "dry", "1.1", population), population.choose("00001", "00001", "")
    assert faster.experiment is not None
    found = attempt(snapshot, selection, faster.experiment)
    assert (found.what, found.gain_percent) == ("as recorded in 00002, accept", pytest.approx(50.0))
    assert [row.gain_percent for row in improvements(population)] == [pytest.approx(50.0)]
    claimed = headline(population, (SEED,))
    assert claimed is not None
    assert claimed.speedup == pytest.approx(1.5)
    assert "cores" not in claimed.claim
    assert faster.evaluation is not None
    several = replace(faster, evaluation=faster.evaluation.with_evidence(cores={"judge": [0], "box": [1, 2]}))
    told = headline(paired((SEED, several)), (SEED,))
    assert told is not None
    assert told.claim.endswith(", 2 cores each")
    assert any(
        "gained 50 %" in note.title for note in RulesDigester()(load("softmax"), Material(population=population))
    )
