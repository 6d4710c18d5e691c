"""What prompts are compiled from: rounds in the order of commits, and parts that do not know of each other."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import accepted, draft, kernel, over, plant

from ksflow.errors import ConfigError
from ksflow.kernels.problem.loader import load
from ksflow.lineage import Lineage
from ksflow.lineage.rounds import RoundSnapshot, RunHistory, RunReader, read_histories
from ksflow.lm.program import Inquiry
from ksflow.lm.prompts.render import outcome
from ksflow.records import (
    Evaluation,
    Experiment,
    Note,
    Plan,
    Population,
    Problem,
    Selection,
    Trial,
    name_without_precision,
)
from ksflow.training.optimize.examples import PARTS, Case, ExampleSource, gather, shown, split_rounds

PLANTED, IDEA = 0.0123, "keep the whole row in registers"
PROBLEM = load("softmax")


@pytest.fixture
def lineage(tmp_path: Path) -> Iterator[Lineage]:
    """A run that takes a second for each commit."""
    ticks = iter(range(1_700_000_000, 1_800_000_000))
    made = Lineage(tmp_path / "lineage.git", "softmax", clock=lambda: next(ticks))
    made.open_session("")
    yield made
    made.close()


def run_round(lineage: Lineage, base: str, us: float, idea: str = "unroll the loop") -> Trial:
    """A round with one experiment on a base, written and judged."""
    turn = lineage.begin_round()
    lineage.select(lineage.population().choose(base, base, "it is fast"), turn.name)
    experiment = Experiment(idea, "it is done", (1.0, 5.0), 10.0)
    (trial,) = lineage.dispatch([draft(base, idea=idea)], Plan(("a",), (experiment,), (0,)), turn.name)
    trial = replace(trial, kernel=kernel(f"kernel {trial.id}"))
    lineage.write(trial)
    trial = replace(trial, evaluation=over("00001", 100.0 / us, us))
    lineage.evaluate(trial)
    lineage.population()
    return trial


def read(lineage: Lineage) -> RunHistory:
    """What `optimize` reads."""
    (found,) = read_histories(partial(Lineage, lineage.store.path), PROBLEM)
    return found


def selector(problem: Problem, known: Population) -> Inquiry[Any]:
    text = f"{len(known.trials)} trials\n" + "\n".join(outcome(trial, known) for trial in known.trials)
    return Inquiry({"text": text}, dict)


def designer(problem: Problem, known: Population, selection: Selection, notes: tuple[Note, ...]) -> Inquiry[Any]:
    return Inquiry({"base": selection.base.id, **selector(problem, known).inputs}, dict)


@pytest.mark.parametrize("stage", [selector, designer])
def test_no_feedback_on_a_train_round_tells_an_outcome_that_is_held_out(
    lineage: Lineage, stage: Callable[..., Any]
) -> None:
    seed, slow = plant(lineage, "seed", 100.0), plant(lineage, "slow", 200.0)
    lineage.evaluate(replace(slow, evaluation=over(seed.id, 0.5, 200.0)))
    for number in range(9):
        run_round(lineage, (seed, slow)[number % 2].id, 90.0 - number, f"idea number {number}")
    planted = run_round(lineage, slow.id, PLANTED, IDEA)
    history = read(lineage)
    source = ExampleSource(stage.__name__, SimpleNamespace(question=stage))
    (train, validation, held_out), split = gather(source, [history], 60, 0)
    assert history.final.by_id[planted.id].score_us == PLANTED
    answers = [
        (history.final.choose(base, base, ""), Plan(("a",), (Experiment(IDEA, "r", (1.0, 5.0), 1.0),), (0,)))
        for base in (seed.id, slow.id)
    ]

    def told(case: Case) -> str:
        said = [case.grade(selection if stage is selector else plan)[1] for selection, plan in answers]
        return "\n".join([shown(case.inquiry), *said])

    assert len(train) == 4
    for case in (*train, *validation):
        assert planted.id not in told(case)
        assert "0.0123" not in told(case)
    assert any("0.0123" in told(case) or planted.id in told(case) for case in held_out)
    assert split.how.startswith("held out by time (from round softmax/main/1.8 on")


def moment(problem: str, run: str, number: int, began: int) -> RoundSnapshot:
    return RoundSnapshot(problem, run, f"1.{number}", Population(()), began=began)


def test_whole_problems_are_held_out_where_there_are_several_and_precisions_are_one_problem() -> None:
    names = ("gemm", "gemm-bf16", "sort", "scan")
    known = [moment(name, "main", number, number) for name in names for number in range(4)]
    for seed in range(5):
        division = split_rounds(known, seed, "designer")
        homes: dict[str, set[str]] = {}
        for one in known:
            homes.setdefault(name_without_precision(one.problem), set()).update(
                p for p in PARTS if one.name in division.parts[p]
            )
        assert all(len(parts) == 1 for parts in homes.values()), homes
        assert division.how.startswith("held out by problem (")
    assert len({split_rounds(known, seed, "designer").parts["held out"] for seed in range(9)}) > 1


def test_of_several_runs_of_a_problem_the_last_ones_are_held_out() -> None:
    known = [
        moment("gemm", run, number, begin + number) for begin, run in ((200, "b"), (0, "a")) for number in range(6)
    ]
    division = split_rounds(known, 0, "designer")
    assert division.parts["held out"] == {f"gemm/b/1.{number}" for number in range(6)}
    assert division.how == (
        "held out by run (gemm/b); validation by time (from round gemm/a/1.2 on; "
        "what came later is out of reach of what was earlier)"
    )


def test_a_grade_looks_as_far_as_the_first_round_of_a_later_part() -> None:
    known = tuple(
        replace(moment("gemm", "a", number, number), population=Population((Trial(f"{number:05}", "seed"),)))  # type: ignore[arg-type]
        for number in range(10)
    )
    history = RunHistory(PROBLEM, "a", known, Population((Trial("99999", "seed"),)))  # type: ignore[arg-type]
    division = split_rounds(known, 0, "selector")
    ends = [division.visible_history(history, one).final.trials[0].id for one in known]
    assert ends == ["00004"] * 4 + ["00007"] * 3 + ["99999"] * 3


def test_too_few_rounds_are_counted_and_parts_share_none() -> None:
    few = [moment("gemm", "a", number, number) for number in range(5)]
    with pytest.raises(ConfigError, match="5 rounds to learn from for writer, and at least 6 are needed"):
        split_rounds(few, 0, "writer")
    many = [moment("gemm", "a", number, number) for number in range(20)]
    division = split_rounds(many, 3, "writer")
    assert sorted(name for part in division.parts.values() for name in part) == sorted(one.name for one in many)
    assert [len(division.parts[name]) for name in PARTS] == [8, 6, 6]


# -- the order of commits --------------------------------------------------------------------------


def by(judge: str, us: float) -> Evaluation:
    return replace(accepted(us), judge=judge)


def test_after_a_change_of_the_judge_the_old_trials_are_stale_and_the_seeds_judged_again_are_not(
    lineage: Lineage,
) -> None:
    seed = plant(lineage, "seed", 100.0)
    old = run_round(lineage, seed.id, 50.0)
    lineage.evaluate(replace(seed, evaluation=by("judge-2", 101.0)))
    turn = lineage.begin_round()
    lineage.select(lineage.population().choose(seed.id, seed.id, "again"), turn.name)
    history = read(lineage)
    for known in (history.final, history.rounds[-1].population):
        assert [trial.id for trial in known.trials] == [seed.id]
        assert known.by_id[seed.id].score_us == 101.0
        assert known.by_id[old.id].stale == "judge"
    key = RunReader(lineage.store, "softmax", "main").read().key
    assert key is not None
    assert key.judge == "judge-2"


def test_a_verdict_that_holds_again_is_the_one_that_counts(lineage: Lineage) -> None:
    seed, other = plant(lineage, "seed", 100.0), plant(lineage, "other", 90.0)
    lineage.evaluate(replace(seed, evaluation=by("judge-2", 101.0)))
    lineage.evaluate(replace(other, evaluation=accepted(91.0)))  # the first judge once more
    final = read(lineage).final
    assert {trial.id: trial.score_us for trial in final.trials} == {seed.id: 100.0, other.id: 91.0}


def test_a_single_note_is_read_back(lineage: Lineage) -> None:
    seed = plant(lineage, "seed", 100.0)
    run_round(lineage, seed.id, 50.0)
    lineage.learn((Note("Unrolling helps", "It gained.", (seed.id,)),), 2)
    run_round(lineage, seed.id, 40.0)
    first, second = read(lineage).rounds
    assert first.learnt
    assert [note.title for note in second.notes] == ["Unrolling helps"]
