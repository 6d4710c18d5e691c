"""A run as a user meets it: it starts from seeds, keeps budgets, survives failures, interruption and bad luck."""

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import accepted, kernel, rejected

from ksflow.errors import ConfigError, StageError
from ksflow.lineage import Lineage
from ksflow.loop import Lab
from ksflow.problem import load
from ksflow.records import (
    Choice,
    Cost,
    Evaluation,
    Experiment,
    Kernel,
    Material,
    Note,
    Origin,
    Plan,
    Population,
    Problem,
    Seed,
    Trial,
    Verdict,
    portfolio,
)
from ksflow.schedule import Outcome, Schedule, Session
from ksflow.transcript import Transcript

Notes = tuple[Note, ...]


def select(problem: Problem, population: Population) -> Choice:
    return population.choose(population.ranked[0].id, population.ranked[-1].id, "best and worst")


def design(problem: Problem, population: Population, choice: Choice, notes: Notes) -> Plan:
    number = len(population.trials)
    experiments = tuple(Experiment(f"idea {number}.{n}", "it ran", (float(n), 50.0 - n), 20.0) for n in range(5))
    return Plan(tuple("abcdefghij"), experiments, portfolio(experiments))


def write(
    problem: Problem, choice: Choice, experiment: Experiment, notes: Notes, failed: Trial | None = None
) -> Kernel:
    return kernel(f"// {experiment.description}{' repaired' if failed else ''}\n{choice.base.kernel.main}")  # type: ignore[union-attr]


def evaluate(problem: Problem, kernel: Kernel, against: tuple[Trial, ...]) -> Evaluation:
    """Longer is faster."""
    us = 1000.0 / len(kernel.main)
    return replace(accepted(us), evidence=beside({t.id: t.score_us / us for t in against if t.score_us}))


def beside(speedups: dict[str, float]) -> dict[str, Any]:
    """Evidence of a race, as exact as a percent."""
    rows = [{"id": name, "speedup": x, "low": x * 0.99, "high": x * 1.01} for name, x in speedups.items()]
    claims = [{**row, "faster": row["low"] > 1.01, "ranked": True, "why": ""} for row in rows[:1]]
    return {"against": rows, **({"claim": claims[0]} if claims else {})}


def digest(problem: Problem, material: Material) -> Notes:
    return (Note("count", f"{len(material.population.trials)} trials", ("00001",)),)


SEEDS = (Seed("00_base.cpp", kernel("// base"), baseline=True), Seed("01_naive.cpp", kernel("// x")))


class Run:
    """One process's worth of a run over a given lineage."""

    def __init__(self, lineage: Lineage, **parts: Callable[..., object]) -> None:
        self.events: list[tuple[str, str]] = []
        stages = {"select": select, "design": design, "write": write, "evaluate": evaluate, "digest": digest}
        self.lab = Lab(load("softmax", "cpu"), lineage, Transcript(lineage), **{**stages, **parts})  # type: ignore[arg-type]

    def __call__(self, **budget: int) -> Outcome:
        return Session(Schedule(**budget), self.lab, self.show).run(SEEDS)

    def show(self, what: str, trial: Trial | None, session: Session) -> None:
        self.events.append((what, trial.id if trial else ""))


def test_it_starts_from_the_seeds_and_stops_at_the_budget(lineage: Lineage) -> None:
    outcome = Run(lineage)(evaluations=7)
    assert outcome.judged == 7
    assert outcome.reason == "evaluations=7 used up"
    assert [t.id for t in outcome.baselines] == ["00001"]
    assert outcome.best.score_us == min(t.score_us for t in outcome.population.trials if t.score_us)
    assert outcome.best.parents[0] in outcome.population.by_id
    assert len(outcome.population.trials) == 9


def test_running_again_goes_on(lineage: Lineage) -> None:
    first = Run(lineage)(evaluations=3)
    second = Run(lineage)(evaluations=3)
    assert len(second.population.trials) == len(first.population.trials) + 3  # no seed is judged again
    assert second.best.score_us is not None
    assert first.best.score_us is not None
    assert second.best.score_us < first.best.score_us


def test_rounds_are_a_budget_too(lineage: Lineage) -> None:
    assert Run(lineage)(evaluations=None, rounds=2).judged == 6
    assert Run(lineage)(rounds=0).judged == 0


def test_the_winner_is_judged_again_and_luck_does_not_win(lineage: Lineage) -> None:
    lucky = []

    def judge(problem: Problem, kernel: Kernel, against: tuple[Trial, ...]) -> Evaluation:
        if "idea" in kernel.main and not lucky:
            lucky.append(kernel.main)
            return accepted(0.001)
        us = 1000.0 / len(kernel.main)
        true = {t.id: len(kernel.main) / len(t.kernel.main) for t in against if t.kernel}
        return replace(accepted(us), evidence=beside(true))

    outcome = Run(lineage, evaluate=judge)(evaluations=6)
    assert outcome.best.kernel is not None
    assert outcome.best.kernel.main != lucky[0]
    subjects = [lineage.store.header(lineage.commit_of(t.id))[1] for t in outcome.population.trials]
    assert sum("confirmed" in subject.split("\n")[0] for subject in subjects) == 1  # the rest lost beside another
    beaten = {row["id"] for row in outcome.best.evaluation.evidence["against"]}  # type: ignore[union-attr]
    assert "00001" in beaten  # the baseline


def test_a_kernel_that_turns_out_wrong_at_the_end_is_not_the_winner(lineage: Lineage) -> None:
    turned: list[str] = []
    judged: list[str] = []

    def judge(problem: Problem, kernel: Kernel, against: tuple[Trial, ...]) -> Evaluation:
        judged.append(kernel.main)
        at_the_end = judged.count(kernel.main) > 1
        if "idea" in kernel.main and at_the_end and (not turned or kernel.main == turned[0]):
            turned.append(kernel.main)
            return rejected()
        return evaluate(problem, kernel, against)

    outcome = Run(lineage, evaluate=judge)(evaluations=5)
    assert outcome.best.kernel is not None
    assert outcome.best.kernel.main != turned[0]
    assert next(t for t in outcome.population.trials if t.kernel and t.kernel.main == turned[0]).score_us is None
    ids = {row["id"] for row in outcome.best.evaluation.evidence["against"]}  # type: ignore[union-attr]
    assert "00001" in ids


def test_a_writer_that_fails_costs_a_trial_not_the_run(lineage: Lineage) -> None:
    def sulk(*arguments: object) -> Kernel:
        raise RuntimeError("no answer\nat all")

    outcome = Run(lineage, write=sulk)(evaluations=4)
    failed = [t for t in outcome.population.trials if t.failure]
    assert len(failed) == 4
    assert failed[0].failure == "writer: RuntimeError: no answer\nat all"
    assert outcome.best.name == "00_base.cpp"


def test_a_designer_that_always_fails_ends_the_run_cleanly(lineage: Lineage) -> None:
    def sulk(*arguments: object) -> Plan:
        raise StageError("designer", "malformed answer after 3 attempts")

    run = Run(lineage, design=sulk)
    outcome = run(evaluations=30)
    assert outcome.reason == "3 rounds in a row brought no trial"
    assert ("no plan: designer: malformed answer after 3 attempts", "") in run.events


def test_failures_go_back_to_the_writer_as_often_as_asked(lineage: Lineage) -> None:
    def judge(problem: Problem, kernel: Kernel, against: tuple[Trial, ...]) -> Evaluation:
        broken = "idea" in kernel.main and "repaired" not in kernel.main
        return rejected() if broken else evaluate(problem, kernel, against)

    outcome = Run(lineage, evaluate=judge)(evaluations=2, repairs=1)
    repairs = [t for t in outcome.population.trials if t.origin is Origin.REPAIR]
    assert len(repairs) == 1  # the attempt and its repair both count
    assert repairs[0].score_us is not None
    assert outcome.population.by_id[repairs[0].parents[0]].verdict == "reject-incorrect"


def test_ctrl_c_finishes_the_trial_at_hand_and_the_next_run_the_rest(lineage: Lineage) -> None:
    calls = []

    def judge(problem: Problem, kernel: Kernel, against: tuple[Trial, ...]) -> Evaluation:
        calls.append(kernel.main)
        if len(calls) == 4:  # the second experiment
            os.kill(os.getpid(), signal.SIGINT)
        return evaluate(problem, kernel, against)

    outcome = Run(lineage, evaluate=judge)(evaluations=30)
    assert outcome.reason == "interrupted"
    assert outcome.judged == 2
    assert [t.id for t in lineage.unfinished()] == ["00005"]
    again = Run(lineage)(evaluations=1)
    assert again.population.by_id["00005"].score_us is not None
    assert again.judged == 1  # the one that was left, and no other


def test_what_was_learnt_is_kept(lineage: Lineage) -> None:
    Run(lineage)(evaluations=4, digest_every=3)
    assert lineage.notes()[0].text == "6 trials"


def test_costs_of_calls_reach_the_trials(lineage: Lineage) -> None:
    from ksflow.protocols import transcribe
    from ksflow.records import Call

    def paid(*arguments: Any, **rest: Any) -> Kernel:
        transcribe(Call("writer", "m", (), "x", cost=Cost(usd=0.5, tokens_in=10, tokens_out=4, calls=1)))
        return write(*arguments, **rest)

    outcome = Run(lineage, write=paid)(evaluations=2)
    assert [t.cost.usd for t in outcome.population.trials[2:]] == [0.5, 0.5]
    assert outcome.cost.usd == 1.0
    assert Run(lineage, write=paid)(evaluations=50, usd=1).cost.usd == 1.0


def test_secrets_in_the_environment_do_not_reach_the_transcript(
    lineage: Lineage, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ksflow.records import Call

    monkeypatch.setenv("SOME_API_KEY", "sk-very-secret")
    Transcript(lineage).keep(Call("writer", "m", ({"role": "user", "content": "sk-very-secret"},), "sk-very-secret"))
    stored = lineage.store.read("refs/ksflow/toy/main/calls:call.json")
    assert b"very-secret" not in stored
    assert b"[secret]" in stored


def test_no_seed_that_works_is_an_error_with_the_reasons(lineage: Lineage) -> None:
    with pytest.raises(ConfigError, match=r"no seed is accepted.*00_base.cpp: reject-incorrect element 3 is off"):
        Run(lineage, evaluate=lambda *a: rejected())(evaluations=1)


def test_a_harness_error_at_the_end_leaves_the_winner_its_verdict(lineage: Lineage) -> None:
    judged: list[str] = []

    def judge(problem: Problem, kernel: Kernel, against: tuple[Trial, ...]) -> Evaluation:
        judged.append(kernel.main)
        if judged.count(kernel.main) > 1:
            return Evaluation(Verdict.HARNESS, "the judge died", target="t")
        return evaluate(problem, kernel, against)

    run = Run(lineage, evaluate=judge)
    outcome = run(evaluations=3)
    assert outcome.best.origin is Origin.EXPERIMENT
    assert outcome.best.score_us is not None
    assert ("not confirmed: the judge died", "") in run.events
    assert "harness-error" not in {t.verdict for t in outcome.population.trials}


def test_where_times_cannot_be_trusted_nothing_new_is_called_best(lineage: Lineage) -> None:
    def judge(problem: Problem, kernel: Kernel, against: tuple[Trial, ...]) -> Evaluation:
        found = evaluate(problem, kernel, against)
        claim = {**found.claim, "faster": False, "ranked": False, "why": "the control read x1.4"} if found.claim else {}
        return replace(found, evidence={**found.evidence, "claim": claim} if claim else found.evidence)

    outcome = Run(lineage, evaluate=judge)(evaluations=4)
    assert outcome.judged == 4  # the search went on
    assert outcome.best.id == "00001"  # the first, though its score is not the lowest
    assert outcome.population.ranked[0].evaluation.unranked == "the control read x1.4"  # type: ignore[union-attr]


def test_a_second_process_waits_for_the_first_ones_seeds(lineage: Lineage, tmp_path: Path) -> None:
    import threading

    other = Lineage(lineage.store.path, "toy")
    reached, results = threading.Event(), []

    def slow(problem: Problem, kernel: Kernel, against: tuple[Trial, ...]) -> Evaluation:
        reached.set()
        threading.Event().wait(0.3)
        return evaluate(problem, kernel, against)

    def second() -> None:
        reached.wait()
        results.append(Run(other)(evaluations=2))

    thread = threading.Thread(target=second)
    thread.start()
    Run(lineage, evaluate=slow)(evaluations=2)
    thread.join()
    trials = lineage.population().trials
    assert sum(t.origin is Origin.SEED for t in trials) == 2
    assert len(trials) == 6
    other.close()
