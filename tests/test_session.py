"""A run as a user meets it: it starts from seeds, keeps budgets, survives failures, interruption and bad luck."""

import io
import os
import shutil
import signal
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import accepted, again, draft, kernel, rejected, until
from rich.console import Console

from ksflow import report
from ksflow.errors import BudgetError, ConfigError, StageError
from ksflow.home import shipped_path
from ksflow.kernels.problem.loader import load
from ksflow.kernels.source.tunables import assign
from ksflow.lineage import Lineage
from ksflow.lineage.history import RunReader
from ksflow.lineage.store import ZERO
from ksflow.lineage.transcript import Transcript
from ksflow.loop import startup
from ksflow.loop.assistant import AskTell
from ksflow.loop.estimate import first_questions
from ksflow.loop.events import Event
from ksflow.loop.queue import ThreadJob, map_parallel
from ksflow.loop.run import Run as RunOfTheLoop
from ksflow.loop.run import Stages
from ksflow.loop.schedule import RunOutcome, Schedule
from ksflow.loop.search import search
from ksflow.protocols import Answerer, Context, Evaluator, record, reserve
from ksflow.records import (
    Call,
    Cost,
    Evaluation,
    Evidence,
    Experiment,
    Kernel,
    Material,
    Note,
    Origin,
    Plan,
    Population,
    Problem,
    Question,
    Seed,
    Selection,
    Trial,
    Verdict,
    parse,
    portfolio,
)
from ksflow.report import spending
from ksflow.report.headline import headline
from ksflow.report.page import as_markdown, run_facts
from ksflow.report.words import describe_changes as changed_in
from ksflow.search.space import exhausted_error
from ksflow.stages.designer.mix import MixDesigner
from ksflow.stages.evaluator.local import LocalEvaluator

Notes = tuple[Note, ...]


def select(problem: Problem, population: Population) -> Selection:
    return population.choose(population.ranked[0].id, population.ranked[-1].id, "best and worst")


def design(problem: Problem, population: Population, selection: Selection, notes: Notes) -> Plan:
    number = len(population.trials)
    experiments = tuple(Experiment(f"idea {number}.{n}", "it ran", (float(n), 50.0 - n), 20.0) for n in range(5))
    return Plan(tuple("abcdefghij"), experiments, portfolio(experiments))


def write(
    problem: Problem, selection: Selection, experiment: Experiment, notes: Notes, failed: Trial | None = None
) -> Kernel:
    return kernel(f"// {experiment.description}{' repaired' if failed else ''}\n{selection.base.kernel.main}")  # type: ignore[union-attr]


def evaluate(problem: Problem, kernel: Kernel, versus: tuple[Trial, ...]) -> Evaluation:
    """Longer is faster."""
    us = 1000.0 / len(kernel.main)
    return replace(accepted(us), evidence=beside({t.id: t.score_us / us for t in versus if t.score_us}))


def beside(speedups: dict[str, float]) -> Evidence:
    """Evidence of a race, as exact as a percent."""
    rows = [{"id": name, "speedup": x, "low": x * 0.99, "high": x * 1.01} for name, x in speedups.items()]
    claims = [{**row, "faster": row["low"] > 1.01, "ranked": True, "why": ""} for row in rows[:1]]
    return parse(Evidence, {"against": rows, **({"claim": claims[0]} if claims else {})})


def digest(problem: Problem, material: Material) -> Notes:
    return (Note("count", f"{len(material.population.trials)} trials", ("00001",)),)


SEEDS = (Seed("00_base.cpp", kernel("// base"), baseline=True), Seed("01_naive.cpp", kernel("// x")))


Show = Callable[[Event, RunOfTheLoop], None]


class Run:
    """One process's worth of a run over a given lineage."""

    def __init__(self, lineage: Lineage, **parts: Callable[..., object]) -> None:
        self.events: list[tuple[str, str]] = []
        self.interrupted = threading.Event()
        stages = {"select": select, "design": design, "write": write, "evaluate": evaluate, "digest": digest}
        self.lineage, self.stages = lineage, Stages(**{**stages, **parts})  # type: ignore[arg-type]

    def __call__(self, **budget: Any) -> RunOutcome:
        return search(self.made(**budget), SEEDS)

    def made(self, show: Show | None = None, models: Sequence[Answerer] = (), **budget: Any) -> RunOfTheLoop:
        """One call of the run, which has not begun."""
        problem, schedule = load("softmax", "cpu"), Schedule(**budget)
        return RunOfTheLoop(problem, self.lineage, self.stages, schedule, (show or self.show,), models=models)

    def show(self, event: Event, run: RunOfTheLoop) -> None:
        self.events.append((event.name, event.trial.id if event.trial else ""))
        if event.name == "interrupt":
            self.interrupted.set()

    def interrupt(self) -> None:
        """Ctrl-C, from any thread. Returns once the main thread has noticed."""
        os.kill(os.getpid(), signal.SIGINT)
        assert self.interrupted.wait(300)


def shown(outcome: RunOutcome, lineage: Lineage) -> str:
    """The end of a run as it is printed, in one line."""
    console = Console(file=io.StringIO(), width=200)
    report.show_outcome(console, outcome, load("softmax", "cpu"), lineage)
    report.show_ending(console, outcome, lineage, ())
    return " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]


def test_it_starts_from_the_seeds_and_stops_at_the_budget(lineage: Lineage) -> None:
    outcome = Run(lineage)(evaluations=7)
    assert outcome.judged == 7
    assert outcome.reason == "evaluations=7 used up"
    assert [t.id for t in outcome.baselines] == ["00001"]
    assert outcome.best.score_us == min(t.score_us for t in outcome.population.trials if t.score_us)
    assert outcome.best.parents[0] in outcome.population.by_id
    assert len(outcome.population.trials) == 9


def test_the_time_of_a_call_is_that_of_its_parts_from_the_command_on(lineage: Lineage) -> None:
    run = Run(lineage).made(evaluations=3)
    outcome = search(run, SEEDS, began=time.monotonic() - 50)
    assert list(outcome.took) == ["set-up", "seeds", "search", "confirmation"]
    assert 50 <= outcome.took["set-up"] <= outcome.wall_s == sum(outcome.took.values())
    assert outcome.search_s == outcome.took["search"]
    assert [spending.duration(seconds) for seconds in (50.2, 150.3)] == ["50 s", "2 min 30 s"]


@pytest.mark.parametrize(
    ("cost", "said"),
    [
        (Cost(tokens_in=4000, calls=1), "4.0k tokens"),
        (Cost(0.5, 4000, calls=1), "$0.5000, 4.0k tokens"),
        (Cost(0.5, 4000, calls=1, untold=1), "at most $0.5000, 4.0k tokens"),
        (Cost(), ""),
    ],
)
def test_no_dollars_are_told_where_no_price_is_known(cost: Cost, said: str) -> None:
    assert spending.price(cost) == said
    assert bool(cost.dollars()) is ("$" in said)


@pytest.mark.slow
def test_a_budget_in_minutes_names_what_used_it_up(lineage: Lineage) -> None:
    def slow(*given: Any) -> Any:
        time.sleep(0.2)
        return evaluate(*given) if isinstance(given[1], Kernel) else design(*given)

    budget = {"minutes": 0.1 / 60, "confirm": False}
    assert Run(lineage, evaluate=slow)(**budget).reason == f"{_used(budget)} while seeds were judged"
    run = Run(lineage).made(**budget)  # all seeds are judged
    time.sleep(0.2)
    assert search(run, SEEDS).reason == f"{_used(budget)} before the first round"
    budget["minutes"] = 2 / 60
    assert Run(lineage, design=slow)(**budget).reason == _used(budget)


def _used(budget: dict[str, Any]) -> str:
    return f"minutes={budget['minutes']:g} used up"


def test_running_again_goes_on(lineage: Lineage) -> None:
    first = Run(lineage)(evaluations=3)
    second = Run(lineage)(evaluations=3)
    assert len(second.population.trials) == len(first.population.trials) + 3  # no seed is judged again
    assert second.best.score_us is not None
    assert first.best.score_us is not None
    assert second.best.score_us < first.best.score_us


def test_digests_that_overlap_lose_no_notes(lineage: Lineage) -> None:
    made: set[str] = set()

    def slow_at_first(problem: Problem, material: Material) -> Notes:
        count = len(material.population.trials)
        if count == len(SEEDS):
            until(lineage.notes)
        made.add(f"from {count}")
        return (*material.notes, Note(f"from {count}", "what was seen", ("00001",)))

    Run(lineage, digest=slow_at_first)(evaluations=9, rounds_in_flight=2, digest_every=1)
    assert len(made) > 1
    assert {note.title for note in lineage.notes()} == made


def test_rounds_are_a_budget_too(lineage: Lineage) -> None:
    assert Run(lineage)(evaluations=None, rounds=2).judged == 6
    assert Run(lineage)(rounds=0).judged == 0


def test_a_judge_that_always_fails_ends_the_run(lineage: Lineage) -> None:
    def broken(problem: Problem, kernel: Kernel, versus: tuple[Trial, ...]) -> Evaluation:
        if "idea" in kernel.main:
            raise OSError("the card fell off the bus")
        return evaluate(problem, kernel, versus)

    outcome = Run(lineage, evaluate=broken)(evaluations=100)
    assert outcome.judged < 20
    assert outcome.reason.startswith("the judge failed ")
    assert "the card fell off the bus" in outcome.reason


def test_where_nothing_is_left_to_vary_the_ending_says_once_what_can_be_done(lineage: Lineage) -> None:
    def exhausted(problem: Problem, population: Population, selection: Selection, notes: Notes) -> Plan:
        if len(population.trials) > 2:
            raise exhausted_error("designer=rules", selection.base)
        return design(problem, population, selection, notes)

    outcome = Run(lineage, design=exhausted)(evaluations=9)
    said = shown(outcome, lineage)
    assert f"; stopped: nothing is left to vary in {outcome.best.id}; " in said
    assert "to go on: have a model write (llm=NAME), add `tune:` values, or add a seed" in said
    assert "every configuration" not in said  # a line of the search has said so


def test_the_winner_is_judged_again_and_luck_does_not_win(lineage: Lineage) -> None:
    lucky = []

    def judge(problem: Problem, kernel: Kernel, versus: tuple[Trial, ...]) -> Evaluation:
        if "idea" in kernel.main and not lucky:
            lucky.append(kernel.main)
            return replace(accepted(0.001), evidence=beside({t.id: 1000.0 for t in versus}))
        us = 1000.0 / len(kernel.main)
        true = {t.id: len(kernel.main) / len(t.kernel.main) for t in versus if t.kernel}
        return replace(accepted(us), evidence=beside(true))

    outcome = Run(lineage, evaluate=judge)(evaluations=6)
    assert outcome.best.kernel is not None
    assert outcome.best.kernel.main != lucky[0]

    def subject(trial: Trial) -> str:
        return lineage.store.header(lineage.commit_of(trial.id)).text.partition("\n")[0]

    (beaten_again,) = [t for t in outcome.population.trials if t.kernel and t.kernel.main == lucky[0]]
    assert "confirmed" not in subject(beaten_again)  # refuted there, or beside a later one before
    assert "confirmed" in subject(outcome.best)
    beaten = {row.id for row in outcome.best.evaluation.evidence.against}  # type: ignore[union-attr]
    assert "00001" in beaten  # the baseline


def test_a_winner_is_sent_out_beside_its_rival_the_baselines_and_on_held_out_shapes_at_once(lineage: Lineage) -> None:
    """Whoever carries the jobs to a machine and back goes once."""

    class Away:
        devices = 3
        all_out = threading.Barrier(3)
        judged: list[str] = []  # noqa: RUF012

        def __call__(self, problem: Problem, kernel: Kernel, versus: tuple[Trial, ...]) -> Evaluation:
            if kernel.main in self.judged:
                self.all_out.wait(300)
            self.judged.append(kernel.main)
            true = {t.id: len(kernel.main) / len(t.kernel.main) for t in versus if t.kernel}
            return replace(accepted(1000.0 / len(kernel.main)), evidence=beside(true))

    outcome = Run(lineage, evaluate=Away())(evaluations=3)
    assert outcome.best.evaluation is not None
    rows = {row.id for row in outcome.best.evaluation.evidence.against}
    assert "00001" in rows  # the baseline
    assert rows - {"00001"}  # the rival
    assert outcome.best.evaluation.evidence.heldout


def test_a_winner_that_the_last_timing_refutes_is_none(lineage: Lineage) -> None:
    """While the search goes on the lucky one looks faster than whatever it is beside; in the end it is not."""
    lucky: list[str] = []
    judged: list[str] = []

    def judge(problem: Problem, kernel: Kernel, versus: tuple[Trial, ...]) -> Evaluation:
        again = kernel.main in judged
        judged.append(kernel.main)
        if "idea" in kernel.main and not lucky:
            lucky.append(kernel.main)
        mine = kernel.main in lucky
        faster = {t.id: mine or ("idea" in kernel.main and "idea" not in t.kernel.main) for t in versus if t.kernel}
        ratio = {
            t.id: 0.943 if mine and again and "idea" in t.kernel.main else 1.2 if faster[t.id] else 0.93
            for t in versus
            if t.kernel
        }
        if again and not mine:
            ratio = {t.id: 1.06 for t in versus}
        us = 50.0 if mine else 60.0 if "idea" in kernel.main else 100.0
        return replace(accepted(us), evidence=beside(ratio))

    outcome = Run(lineage, evaluate=judge)(evaluations=6)
    assert outcome.best.kernel is not None
    assert outcome.best.kernel.main not in lucky
    assert outcome.best.origin is Origin.EXPERIMENT


def test_a_kernel_that_turns_out_wrong_at_the_end_is_not_the_winner(lineage: Lineage) -> None:
    turned: list[str] = []
    judged: list[str] = []

    def judge(problem: Problem, kernel: Kernel, versus: tuple[Trial, ...]) -> Evaluation:
        judged.append(kernel.main)
        at_the_end = judged.count(kernel.main) > 1
        if "idea" in kernel.main and at_the_end and (not turned or kernel.main == turned[0]):
            turned.append(kernel.main)
            return rejected()
        return evaluate(problem, kernel, versus)

    outcome = Run(lineage, evaluate=judge)(evaluations=5)
    assert outcome.best.kernel is not None
    assert outcome.best.kernel.main != turned[0]
    assert next(t for t in outcome.population.trials if t.kernel and t.kernel.main == turned[0]).score_us is None
    ids = {row.id for row in outcome.best.evaluation.evidence.against}  # type: ignore[union-attr]
    assert "00001" in ids


def test_a_writer_that_fails_costs_a_trial_not_the_run(lineage: Lineage) -> None:
    def sulk(*arguments: object) -> Kernel:
        raise RuntimeError("no answer\nat all")

    outcome = Run(lineage, write=sulk)(evaluations=4)
    failed = [t for t in outcome.population.trials if t.failure]
    assert len(failed) == 4
    line = sulk.__code__.co_firstlineno + 1
    assert failed[0].failure == f"writer: RuntimeError: no answer\nat all (test_session.py, line {line})"
    assert outcome.best.name == "00_base.cpp"


def test_a_designer_that_always_fails_ends_the_run_cleanly(lineage: Lineage) -> None:
    def sulk(*arguments: object) -> Plan:
        raise StageError("designer", "malformed answer after 3 attempts")

    run = Run(lineage, design=sulk)
    outcome = run(evaluations=30)
    assert outcome.reason == "3 rounds in a row brought no trial: designer: malformed answer after 3 attempts"
    assert ("no plan: designer: malformed answer after 3 attempts", "") in run.events


def test_a_part_that_returns_something_else_is_named(lineage: Lineage) -> None:
    run = Run(lineage, design=lambda *given: [1, 2])
    assert run(evaluations=2).judged == 0
    assert ("no plan: designer: TypeError: returned list, not a Plan", "") in run.events
    run = Run(lineage, write=lambda *given: "int main() {}")
    assert run(evaluations=1).population.trials[-1].failure == "writer: TypeError: returned str, not a Kernel"
    run = Run(lineage, write=lambda *given: Kernel("cu", {"kernel.cu": "int x;"}))
    failure = run(evaluations=1).population.trials[-1].failure
    assert failure.startswith("writer: ValueError: no language 'cu'; did you mean cuda? valid: cpp, cuda, ")


def test_failures_go_back_to_the_writer_as_often_as_asked(lineage: Lineage) -> None:
    def judge(problem: Problem, kernel: Kernel, versus: tuple[Trial, ...]) -> Evaluation:
        broken = "idea" in kernel.main and "repaired" not in kernel.main
        return rejected() if broken else evaluate(problem, kernel, versus)

    outcome = Run(lineage, evaluate=judge)(evaluations=4, repairs=1)
    repairs = [t for t in outcome.population.trials if t.origin is Origin.REPAIR]
    assert len(repairs) == 1  # three attempts and a repair: each counts
    assert repairs[0].score_us is not None
    assert outcome.population.by_id[repairs[0].parents[0]].verdict == "reject-incorrect"


def test_a_repair_of_a_repair_starts_from_the_same_base(lineage: Lineage) -> None:
    asked: list[tuple[str, str]] = []

    def mend(
        problem: Problem, selection: Selection, tried: Experiment, notes: Notes, failed: Trial | None = None
    ) -> Kernel:
        asked.append((selection.base.id, failed.id if failed else ""))
        return kernel(f"int broken = {len(asked)};")

    def judge(problem: Problem, kernel: Kernel, versus: tuple[Trial, ...]) -> Evaluation:
        return rejected() if "broken" in kernel.main else evaluate(problem, kernel, versus)

    Run(lineage, write=mend, evaluate=judge, design=one_idea)(evaluations=3, repairs=2)
    assert asked == [("00001", ""), ("00001", "00003"), ("00001", "00004")]


def one_idea(problem: Problem, population: Population, selection: Selection, notes: Notes) -> Plan:
    return Plan(("a",), (Experiment(f"idea {len(population.trials)}", "it ran", (0.0, 1.0), 1.0),), (0,))


def test_ctrl_c_finishes_what_has_begun_and_the_next_run_the_rest(lineage: Lineage) -> None:
    def interrupted(*arguments: Any) -> Plan:
        run.interrupt()
        return design(*arguments)

    run = Run(lineage, design=interrupted)
    outcome = run(evaluations=30)
    assert outcome.reason == "interrupted"
    assert outcome.judged == 0
    assert ("interrupt", "") in run.events
    assert [t.id for t in lineage.claim_unfinished()] == ["00003", "00004", "00005"]  # the plan is kept
    lineage.release_all()
    again = Run(lineage)(evaluations=1)
    assert again.judged == 1  # of those that were left, as many as there is room for
    again = Run(lineage)(evaluations=2)
    assert again.population.by_id["00005"].score_us is not None
    assert again.judged == 2  # the rest of them, and no other


def test_a_plan_for_which_no_evaluation_is_left_is_kept(lineage: Lineage) -> None:
    both = threading.Barrier(2)

    def plan(*arguments: Any) -> Plan:
        both.wait(300)
        made = design(*arguments)
        return replace(made, picked=(0, 1, 2, 3, 4))

    assert Run(lineage, design=plan)(evaluations=4, rounds_in_flight=2).judged == 4
    reader = RunReader(lineage.store, lineage.problem, lineage.run).read()
    assert [len(row.trials) for row in reader.rounds.values() if row.plan] in ([4, 0], [0, 4])
    for population in (lineage.last_population, again(lineage).population()):
        assert sorted(len(row.remaining_experiments) for row in population.plans) == [
            1,
            5,
        ]  # what a designer is offered as not run


def test_what_was_left_is_taken_up_as_many_at_a_time_as_rounds_bring(lineage: Lineage) -> None:
    def interrupted(*arguments: Any) -> Plan:
        if together.wait(300) == 0:
            first.interrupt()
        together.wait(300)
        return design(*arguments)

    together = threading.Barrier(3)
    first = Run(lineage, design=interrupted)
    first(evaluations=30, rounds_in_flight=3)
    lineage.release_all()
    writing, most, lock = 0, 0, threading.Lock()

    def slow(*arguments: Any) -> Kernel:
        nonlocal writing, most
        with lock:
            writing += 1
            most = max(most, writing)
        time.sleep(0.2)
        with lock:
            writing -= 1
        return write(*arguments)

    assert Run(lineage, write=slow)(evaluations=9).judged == 9
    assert most <= 3


def test_ctrl_c_lets_the_trials_of_a_round_come_to_their_verdicts(lineage: Lineage) -> None:
    calls, begun = [], threading.Barrier(3)

    def begin(*arguments: Any) -> Kernel:
        begun.wait(300)
        return write(*arguments)

    def judge(problem: Problem, kernel: Kernel, versus: tuple[Trial, ...]) -> Evaluation:
        calls.append(kernel.main)
        if len(calls) == 3:  # the first experiment
            run.interrupt()
        return evaluate(problem, kernel, versus)

    run = Run(lineage, write=begin, evaluate=judge)
    outcome = run(evaluations=30)
    assert outcome.reason == "interrupted"
    assert outcome.judged == 3
    assert not lineage.claim_unfinished()


def test_ctrl_c_stops_a_judge_that_can_be_stopped_and_the_next_run_judges_what_it_left(lineage: Lineage) -> None:
    class Slow(Evaluator):
        stopped = threading.Event()

        def __call__(self, problem: Problem, kernel: Kernel, versus: tuple[Trial, ...]) -> Evaluation:
            if "idea" not in kernel.main:
                return evaluate(problem, kernel, versus)
            if not self.stopped.is_set():
                run.interrupt()
            assert self.stopped.wait(300)
            return Evaluation(Verdict.HARNESS, "the judge was stopped")

        def stop(self) -> bool:
            self.stopped.set()
            return True

    run = Run(lineage, evaluate=Slow())
    outcome = run(evaluations=30)
    assert (outcome.reason, outcome.judged) == ("interrupted", 0)
    assert "stopped: interrupted (every verdict is kept, and the same command goes on)" in shown(outcome, lineage)
    lineage.release_all()
    again = Run(lineage)(evaluations=3)
    assert {trial.verdict for trial in again.population.trials[:5]} == {"accept"}
    assert len(again.population.trials) == 5


def test_what_was_learnt_is_kept(lineage: Lineage) -> None:
    Run(lineage)(evaluations=6, digest_every=3)
    assert lineage.notes()[0].text == "5 trials"  # those there were when a round began


class Ideas:
    """A designer that never has an idea twice, though several rounds know the same."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, problem: Problem, population: Population, selection: Selection, notes: Notes) -> Plan:
        self.count += 5
        experiments = tuple(
            Experiment(f"idea {number}", "it ran", (float(number), 1000.0 - number), 20.0)
            for number in range(self.count, self.count + 5)
        )
        return Plan(("a",), experiments, portfolio(experiments))


class Paid:
    """A writer whose calls take `seconds` and cost half a dollar, as any model's: admitted, then transcribed.

    The first wait for each other, until there are `company`.
    """

    def __init__(self, seconds: float = 0.0, company: int = 1) -> None:
        self.seconds, self.company, self.at_once = seconds, company, 0
        self.met = threading.Event()
        self.lock = threading.Lock()

    def __call__(self, *arguments: Any, **rest: Any) -> Kernel:
        with reserve(Question("writer", "m", 10, 4, 0.1, 0.5)):
            with self.lock:
                self.at_once += 1
                if self.at_once == self.company:
                    self.met.set()
            assert self.met.wait(300)
            time.sleep(self.seconds)
            with self.lock:
                self.at_once -= 1
            record(Call("writer", "m", (), "x", cost=Cost(usd=0.5, tokens_in=10, tokens_out=4, calls=1)))
        return write(*arguments, **rest)


def test_costs_of_calls_reach_the_trials(lineage: Lineage) -> None:
    outcome = Run(lineage, write=Paid())(evaluations=2)
    assert [t.cost.usd for t in outcome.population.trials[2:]] == [0.5, 0.5]
    assert outcome.cost.usd == 1.0


@pytest.mark.parametrize(
    ("caps", "reason", "calls"),
    [
        ({"usd": 1.9}, "usd=1.9 used up", 3),
        ({"tokens": 60}, "tokens=60 used up", 4),
        ({"stages": {"writer": {"calls": 2}}}, "stages.writer.calls=2 used up", 2),
        ({"stages": {"designer": {"calls": 2}}, "evaluations": 5}, "evaluations=5 used up", 5),
    ],
)
def test_no_cap_is_exceeded_and_what_was_paid_for_is_kept(
    lineage: Lineage, caps: dict[str, Any], reason: str, calls: int
) -> None:
    """Three writers at once: what the others may yet cost is reserved."""
    ideas = Ideas()
    outcome = Run(lineage, write=Paid(0.02), design=ideas)(**{"evaluations": 50, "rounds_in_flight": 2, **caps})
    assert outcome.reason == reason
    assert outcome.cost.calls == calls
    assert outcome.judged == calls
    again = Run(lineage, write=Paid(), design=ideas)(
        evaluations=50, usd=0.5
    )  # those without a kernel are written first
    assert again.judged == 1


def paid(stage: str) -> None:
    """A model call of a stage: three tokens, a quarter of a dollar."""
    record(Call(stage, "m", (), "x", cost=Cost(usd=0.25, tokens_in=2, tokens_out=1, calls=1)))


def test_what_led_to_no_experiment_was_paid_too(lineage: Lineage) -> None:
    """A plan that failed, a trial that was not written to its end: the run has cost what its calls have."""
    broken = []

    def plan(*arguments: Any) -> Plan:
        paid("designer")
        if not broken:
            broken.append(1)
            raise StageError("designer", "malformed answer")
        return design(*arguments)

    def writer(*arguments: Any) -> Kernel:
        paid("writer")
        raise BudgetError("no more")

    outcome = Run(lineage, design=plan, write=writer)(evaluations=3)
    assert outcome.cost.calls == 5
    found = report.summary(outcome, load("softmax", "cpu"), lineage)
    assert (found["usd"], found["tokens"]) == (1.25, 15)
    assert "cost of the run so far: $1.2500, 0.0k tokens" in shown(outcome, lineage)
    other = Lineage(lineage.store.path, "toy")
    assert other.total_cost() == lineage.total_cost() == outcome.cost
    other.close()


def test_the_picks_that_there_is_room_for_share_the_plans_cost(lineage: Lineage) -> None:
    def plan(*arguments: Any) -> Plan:
        paid("selector")
        paid("designer")
        return design(*arguments)

    trials = Run(lineage, design=plan)(evaluations=5).population.trials[2:]
    assert [t.cost.calls for t in trials] == [1, 1, 0, 1, 1]
    assert sum(t.cost.usd for t in trials) == pytest.approx(1.0)
    assert sum(t.cost.tokens for t in trials) == 12


def test_a_call_that_was_lost_counts_once(lineage: Lineage) -> None:
    """It is in the transcript with what it may have cost."""

    def lost(*arguments: Any, **rest: Any) -> Kernel:
        with reserve(Question("writer", "m", 10, 4, 0.1, 0.5)):
            record(Call("writer", "m", (), error="no answer", cost=Cost(0.5, 10, 4, calls=1, untold=1)))
        raise StageError("writer", "no answer")

    outcome = Run(lineage, write=lost, design=Ideas())(evaluations=50, stages={"writer": {"calls": 6}})
    assert outcome.cost.calls == 6
    assert outcome.reason == "stages.writer.calls=6 used up"
    outcome = Run(lineage, write=lost, design=Ideas())(evaluations=50, usd=2.0)
    assert outcome.cost.calls == 4  # of half a dollar at most


def test_stages_of_ones_own_are_not_called_for_an_estimate(lineage: Lineage) -> None:
    told: list[str] = []
    asked: list[str] = []

    class Asking:
        """As those that ship, it asks a model."""

        program = types.SimpleNamespace(first_call=lambda inquiry: question("designer=llm"))

        def question(self, *values: Any) -> str:
            return "inquiry"

    class Own(Asking):
        def __call__(self, problem: Problem, selection: Selection, experiment: Experiment, *rest: Any) -> Kernel:
            told.append(experiment.description)
            return write(problem, selection, experiment, *rest)

    class Shipped(Asking):
        __module__ = "ksflow.stages.designer.llm"

        def __call__(self, *values: Any) -> Plan:
            with reserve(question("designer=llm")):
                asked.append("sent")
            return design(*values)

    def question(stage: str) -> Question:
        return Question(stage, "m", 3, 3, usd_most=0.01)

    mixed = MixDesigner({"one": design, "two": Shipped()})
    run = Run(lineage, write=Own(), design=Shipped())
    search(run.made(models=[types.SimpleNamespace(greet=lambda: None)], evaluations=3), SEEDS)
    assert [text.partition(" ")[0] for text in told] == ["idea"] * 3
    assert asked == ["sent"]
    found = first_questions(Run(lineage, write=Own(), design=mixed).made())
    assert [one.stage for one in found] == ["designer=llm"]
    assert len(told) == 3


def test_the_writers_of_a_round_and_several_rounds_go_on_at_once(lineage: Lineage) -> None:
    writer, judging, most = Paid(company=4), [0], [0]

    def judge(problem: Problem, kernel: Kernel, versus: tuple[Trial, ...]) -> Evaluation:
        judging[0] += 1
        most[0] = max(most[0], judging[0])
        time.sleep(0.01)
        judging[0] -= 1
        return evaluate(problem, kernel, versus)

    outcome = Run(lineage, write=writer, evaluate=judge, design=Ideas())(evaluations=18, rounds_in_flight=3)
    assert outcome.judged == 18
    assert most == [1]  # one device


def test_seeds_are_judged_at_once_where_there_are_several_devices(lineage: Lineage) -> None:
    together = threading.Barrier(2)  # breaks, and fails the test, where the second of the two does not come

    class Several:
        devices = 2

        def __call__(self, problem: Problem, kernel: Kernel, versus: tuple[Trial, ...]) -> Evaluation:
            if versus:
                together.wait(timeout=30)
            return evaluate(problem, kernel, versus)

    seeds = tuple(Seed(f"{n}.cpp", kernel("// a\n" + "// longer\n" * n), baseline=n == 0) for n in range(3))
    startup.start(Run(lineage, evaluate=Several()).made(), seeds)
    assert [trial.evaluation.verdict for trial in lineage.last_population.trials if trial.evaluation] == [
        Verdict.ACCEPT
    ] * 3


def test_code_that_was_tried_before_is_answered_from_the_record(lineage: Lineage) -> None:
    judged: list[str] = []

    def same(
        problem: Problem, selection: Selection, tried: Experiment, notes: Notes, failed: Trial | None = None
    ) -> Kernel:
        return kernel(f"int   x = {7 if failed else 1};  // {tried.description}\n")

    def judge(problem: Problem, kernel: Kernel, versus: tuple[Trial, ...]) -> Evaluation:
        judged.append(kernel.main)
        return evaluate(problem, kernel, versus)

    outcome = Run(lineage, write=same, evaluate=judge)(evaluations=6, repeats="skip", confirm=False)
    trials = outcome.population.trials[2:]
    assert sum("int   x = 1" in text for text in judged) == 1
    assert outcome.judged == 1
    assert outcome.repeats == len(trials) - 1 > 0
    assert {t.evaluation.evidence.repeat.of for t in trials[1:] if t.evaluation} == {trials[0].id}
    assert {t.score_us for t in trials} == {trials[0].score_us}
    assert len(outcome.population.ranked) == 3  # two seeds and the first of the repeats
    page = run_facts(lineage)  # which counts as the terminal does
    assert " 1 experiment in " in shown(outcome, lineage)
    assert "\n1 experiment after 2 seeds: 1 accepted" in as_markdown(page)
    assert page["session"]["used"]["evaluations"] == outcome.judged
    another = Run(lineage, write=same, evaluate=judge)(evaluations=1, repeats="show", confirm=False)
    repaired = next(t for t in another.population.trials if t.origin is Origin.REPAIR)
    assert repaired.kernel is not None
    assert "x = 7" in repaired.kernel.main


COMPILED = """constexpr int FORM = 0;  // tune: 0 1
constexpr int PAD = 1;   // tune: 1 2 3 4 5 6 7 8
extern "C" void custom_kernel(const float *x, float *y, long rows, long cols, const long *strides) {
  if (FORM) y[PAD] = x[0];
  else y[0] = x[0];
}
"""


def test_what_compiles_to_the_same_code_is_judged_once(lineage: Lineage, evaluator: LocalEvaluator) -> None:
    judged: list[Kernel] = []

    class Compiling(Evaluator):
        def code(self, problem: Problem, kernel: Kernel) -> str:
            return evaluator.code(problem, kernel)

        def __call__(self, problem: Problem, kernel: Kernel, versus: tuple[Trial, ...]) -> Evaluation:
            judged.append(kernel)
            return evaluate(problem, kernel, versus).with_evidence(artefact=self.code(problem, kernel))

    def written(form: str) -> Callable[..., Kernel]:
        def pad(problem: Problem, selection: Selection, tried: Experiment, *rest: object) -> Kernel:
            number = int(tried.description.rpartition(".")[2])
            return kernel(assign(COMPILED, {"FORM": form, "PAD": str(number + 2)}))

        return pad

    judge, seeds = Compiling(), (Seed("00_base.cpp", kernel(COMPILED), baseline=True),)
    outcome = search(Run(lineage, write=written("0"), evaluate=judge).made(evaluations=2, confirm=False), seeds)
    seed, *repeats = outcome.population.trials
    assert len(judged) == 1
    assert outcome.judged == 0
    assert len(repeats) == outcome.repeats > 2
    assert {(t.repeats, t.compiles_alike, t.score_us) for t in repeats} == {(seed.id, True, seed.score_us)}
    assert changed_in(repeats[0], outcome.population.by_id, 60).startswith(f"same code as {seed.id} | ")
    other = again(lineage)  # another process
    anew = search(Run(other, write=written("0"), evaluate=judge).made(rounds=1, confirm=False), seeds)
    assert len(judged) == 1
    assert anew.repeats > 0
    read = search(Run(other, write=written("1"), evaluate=judge).made(evaluations=3, confirm=False), seeds)
    assert len(judged) == 1 + read.judged == 4
    more = kernel(COMPILED.replace("// tune: 0 1\n", "// tune: 0 1 2\n"))  # nothing but another value to try
    tuned = search(Run(other, write=lambda *asked: more, evaluate=judge).made(rounds=1, confirm=False), seeds)
    assert tuned.judged == 1
    assert more in [trial.kernel for trial in tuned.population.ranked]


def test_selector_and_designer_are_told_what_is_left_of_the_budget(lineage: Lineage) -> None:
    told: list[tuple[str, dict[str, float]]] = []

    def selector(problem: Problem, population: Population, context: Context) -> Selection:
        told.append(("selector", dict(context.left)))
        return select(problem, population)

    def designer(
        problem: Problem, population: Population, selection: Selection, notes: Notes, context: Context
    ) -> Plan:
        told.append(("designer", dict(context.left)))
        return design(problem, population, selection, notes)

    Run(lineage, select=selector, design=designer)(evaluations=6, rounds=2, confirm=False, repairs=0)
    left = [(name, each["evaluations"], each["rounds"]) for name, each in told]
    assert left[:2] == [("selector", 6, 1), ("designer", 6, 1)]
    assert left[2:] == [("selector", 3, 0), ("designer", 3, 0)]


def test_an_assistants_questions_are_counted_while_others_are_asked(lineage: Lineage) -> None:
    bench = AskTell(Run(lineage).made(evaluations=None), SEEDS)
    bench.begin()
    bench.wait_seeds(300)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        map_parallel(lambda n: [bench.result(bench.evaluate(kernel(f"// {n}.{i}"))) for i in range(150)], range(8))
    finally:
        sys.setswitchinterval(before)
    assert bench.run.tally.dispatched == 1200
    assert bench.ticket("e1200").over.is_set()
    assert bench.result("e1200").verdict == "accept"
    with pytest.raises(ConfigError, match="no ticket 'e1201'; tickets: e1, e2"):
        bench.ticket("e1201")
    bench.close()


@contextmanager
def assisted(run: RunOfTheLoop) -> Iterator[AskTell]:
    """A run's assistant, once the seeds are judged."""
    bench = AskTell(run, SEEDS)
    bench.begin()
    bench.wait_seeds(300)
    try:
        yield bench
    finally:
        bench.close()


def planned(bench: AskTell) -> list[str]:
    ideas = [Experiment(f"idea {n}", "it ran", (float(n), 9.0), 9.0 - n) for n in range(3)]
    return [trial.id for trial in bench.plan(ideas, "1", "2")]


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        ({"rounds": 0}, "rounds=0 used up"),
        ({"minutes": 0}, "minutes=0 used up"),
        ({"stages": {"evaluator": {"minutes": 0}}}, "stages.evaluator.minutes=0 used up"),
    ],
    ids=["rounds", "minutes", "evaluator"],
)
def test_an_assistant_keeps_the_budgets_of_a_run(lineage: Lineage, budget: dict[str, Any], said: str) -> None:
    with assisted(Run(lineage).made(**budget)) as bench:
        with pytest.raises(ConfigError, match=said):
            planned(bench)
        if "rounds" in budget:
            bench.result(bench.evaluate(kernel("// more")))
        else:
            with pytest.raises(ConfigError, match=said):
                bench.evaluate(kernel("// more"))


def test_an_assistants_kernels_are_counted_as_those_of_a_run(lineage: Lineage) -> None:
    evaluations = [evaluate, evaluate, lambda *given: Evaluation(Verdict.HARNESS, "the device is gone"), evaluate]

    def judge(*given: Any) -> Evaluation:
        return evaluations.pop(0)(*given) if evaluations else evaluate(*given)

    run = Run(lineage, evaluate=judge).made(evaluations=3, rounds=1)
    with assisted(run) as bench:
        first, second, third = planned(bench)
        bench.result(bench.submit(kernel("// fails"), first))
        assert (run.tally.judged, run.tally.harness_errors) == (1, 1)
        bench.result(bench.submit(kernel("// base"), second))  # the first seed
        assert (run.tally.repeats, run.tally.dispatched) == (1, 1)
        bench.result(bench.submit(kernel("// another"), third))
        assert (run.tally.judged, run.tally.harness_errors) == (2, 0)
        bench.result(bench.evaluate(kernel("// on no record")))
        assert (run.tally.judged, run.tally.checks, run.tally.dispatched) == (2, 1, 3)
        assert not run._judged_before  # the round is over when its last kernel is judged
        with pytest.raises(ConfigError, match="evaluations=3 used up, 1 of them as checks"):
            bench.evaluate(kernel("// one more"))
        with pytest.raises(ConfigError, match=r"used up.*: the run goes on when it is opened again"):
            planned(bench)


def test_secrets_in_the_environment_do_not_reach_the_transcript(
    lineage: Lineage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-very-secret")
    Transcript(lineage).keep(Call("writer", "m", ({"role": "user", "content": "sk-very-secret"},), "sk-very-secret"))
    stored = lineage.store.read("refs/ksflow/toy/main/calls:call.json")
    assert b"very-secret" not in stored
    assert b"[secret]" in stored


def test_no_seed_that_works_is_an_error_with_the_reasons(lineage: Lineage) -> None:
    with pytest.raises(ConfigError, match=r"no seed is accepted.*00_base.cpp: reject-incorrect element 3 is off"):
        Run(lineage, evaluate=lambda *a: rejected())(evaluations=1)


def test_a_raising_evaluator_costs_a_trial_which_the_next_run_has_judged_beside_its_own(lineage: Lineage) -> None:
    faults: list[Callable[[Kernel], Any]] = [lambda kernel: kernel.files["none"], lambda kernel: None]

    def fails(problem: Problem, kernel: Kernel, versus: tuple[Trial, ...]) -> Evaluation:
        if faults and "idea" in kernel.main:
            return faults.pop(0)(kernel)  # type: ignore[no-any-return]
        return evaluate(problem, kernel, versus)

    outcome = Run(lineage, evaluate=fails)(evaluations=6, repairs=1)
    assert (outcome.judged, outcome.reason) == (6, "evaluations=6 used up")
    lost = [t for t in outcome.population.trials if t.verdict == "harness-error"]
    raised, odd = sorted(t.evaluation.reason for t in lost if t.evaluation)  # whichever of the two came first
    assert "evaluator: KeyError: 'none' (test_session.py, line" in raised
    assert "returned NoneType, not a Evaluation" in odd
    assert not [t for t in outcome.population.trials if t.origin is Origin.REPAIR]  # the kernel is not to blame
    again = Run(lineage, evaluate=fails)(evaluations=2)
    assert (again.judged, again.reason) == (2, "evaluations=2 used up")
    assert all(again.population.by_id[trial.id].score_us for trial in lost)
    assert len(again.population.trials) == len(SEEDS) + 8


def test_a_writers_questions_to_the_judge_count_as_evaluations_and_that_is_said(lineage: Lineage) -> None:
    said: list[Trial | str] = []

    def asks(
        problem: Problem,
        selection: Selection,
        experiment: Experiment,
        notes: Notes,
        failed: Trial | None,
        context: Context,
    ) -> Kernel:
        assert context.check is not None
        said.append(context.check(kernel(f"// draft {experiment.description}")))
        return write(problem, selection, experiment, notes, failed)

    outcome = Run(lineage, write=asks, design=one_idea)(evaluations=6)
    assert outcome.judged == 3
    assert [isinstance(answer, Trial) for answer in said] == [True] * 3
    assert outcome.reason == "evaluations=6 used up, 3 of them as checks by the writer"


def test_a_harness_error_at_the_end_leaves_the_winner_its_verdict(lineage: Lineage) -> None:
    judged: list[str] = []

    def judge(problem: Problem, kernel: Kernel, versus: tuple[Trial, ...]) -> Evaluation:
        judged.append(kernel.main)
        if judged.count(kernel.main) > 1:
            return Evaluation(Verdict.HARNESS, "the judge died", target="t")
        return evaluate(problem, kernel, versus)

    run = Run(lineage, evaluate=judge)
    outcome = run(evaluations=3)
    assert outcome.best.origin is Origin.EXPERIMENT
    assert outcome.best.score_us is not None
    assert ("not confirmed: the judge died", "") in run.events
    assert "harness-error" not in {t.verdict for t in outcome.population.trials}


def _ends(verdict: Verdict, times: int) -> Callable[..., Evaluation]:
    """A judge that is right until an experiment is judged again: so many times its word is another one."""
    judged: list[str] = []
    bad: list[str] = []

    def judge(problem: Problem, kernel: Kernel, versus: tuple[Trial, ...]) -> Evaluation:
        judged.append(kernel.main)
        if "idea" in kernel.main and judged.count(kernel.main) > 1 and len(bad) < times:
            bad.append(kernel.main)
            return Evaluation(verdict, "no answer in 60 s", target="t")
        return evaluate(problem, kernel, versus)

    return judge


@pytest.mark.parametrize("verdict", [Verdict.TIMEOUT, Verdict.HARNESS])
def test_one_bad_moment_at_the_end_is_no_refutation(lineage: Lineage, verdict: Verdict) -> None:
    run = Run(lineage, evaluate=_ends(verdict, 1))
    outcome = run(evaluations=3)
    assert outcome.best.evaluation is not None
    assert outcome.best.score_us == min(t.score_us for t in outcome.population.trials if t.score_us)
    assert {row.moment for row in outcome.best.evaluation.evidence.against if row.id == "00001"} == {1}
    assert not [event for event in run.events if "not confirmed" in event[0]]


def test_a_leader_that_times_out_twice_is_dropped_and_that_is_said(lineage: Lineage) -> None:
    run = Run(lineage, evaluate=_ends(Verdict.TIMEOUT, 2))
    outcome = run(evaluations=3)
    (dropped,) = [t for t in outcome.population.trials if t.verdict == "contained-timeout"]
    assert dropped.evaluation is not None
    assert dropped.evaluation.reason == "timed out twice when it was judged again: no answer in 60 s"
    said = f"not confirmed: {dropped.id}, which led: contained-timeout, {dropped.evaluation.reason}"
    assert (said, "") in run.events
    assert outcome.best.origin is Origin.EXPERIMENT


def test_two_that_cannot_be_told_apart_are_called_a_tie_everywhere(lineage: Lineage) -> None:
    """In the search the newer one looked slower; judged again, each looks slower than the other."""
    judged: list[str] = []

    def judge(problem: Problem, kernel: Kernel, versus: tuple[Trial, ...]) -> Evaluation:
        judged.append(kernel.main)
        last = "idea" in kernel.main and judged.count(kernel.main) > 1
        rows = {t.id: 0.95 if t.kernel and "idea" in t.kernel.main else 2.0 for t in versus}
        if not last and "idea" in kernel.main:
            rows = {t.id: 0.976 if t.kernel and "idea" in t.kernel.main else 2.0 for t in versus}
        us = 100.0 if "idea" not in kernel.main else 50.0 - len(judged)
        return replace(accepted(us), evidence=beside(rows if "idea" in kernel.main else {}))

    outcome = Run(lineage, evaluate=judge)(evaluations=3)
    (other,) = outcome.population.ties
    population = outcome.population
    claim = population.speedup(outcome.best, outcome.baselines[0])
    text = f"winner {outcome.best.id}: {claim} over 00_base.cpp; a tie with {other.id}"
    assert text in shown(outcome, lineage)
    assert run_facts(lineage)["headline"] == text
    console = Console(file=io.StringIO(), width=200)
    report.show_tree(console, population.trials, population, headline(population, outcome.baselines), {})
    tree = console.file.getvalue()  # type: ignore[attr-defined]
    assert (tree.count(" winner "), tree.count(" a tie ")) == (1, 1)


def test_where_times_cannot_be_trusted_nothing_new_is_called_best(lineage: Lineage) -> None:
    def judge(problem: Problem, kernel: Kernel, versus: tuple[Trial, ...]) -> Evaluation:
        found = evaluate(problem, kernel, versus)
        if found.claim is None:
            return found
        claim = replace(found.claim, faster=False, ranked=False, why="the control read x1.4")
        return found.with_evidence(claim=claim)

    outcome = Run(lineage, evaluate=judge)(evaluations=4)
    assert outcome.judged == 4  # the search went on
    assert outcome.best.id == "00001"  # the first, though its score is not the lowest
    (*_, last) = outcome.population.ranked
    assert last.evaluation.why_unranked == "the control read x1.4"  # type: ignore[union-attr]
    said = shown(outcome, lineage)
    assert "no winner: none is ranked ahead of 00_base.cpp" in said
    assert "not ranked: the control read x1.4" in said


def test_a_kernel_whose_rival_fails_is_judged_beside_the_next_one(lineage: Lineage) -> None:
    """A best so far that fails beside a kernel, and beside itself, is out; times of two moments decide nothing."""
    beside_whom: list[list[str]] = []

    def judge(problem: Problem, kernel: Kernel, versus: tuple[Trial, ...]) -> Evaluation:
        beside_whom.append([trial.id for trial in versus])
        if any(trial.id == "00003" for trial in versus):
            failed = {"00003": "aborts when it finds that it is a rival"}
            return accepted(1.0).with_evidence(failed_rivals=failed)
        return evaluate(problem, kernel, versus)

    outcome = Run(lineage, evaluate=judge, design=one_idea)(evaluations=2)
    at = beside_whom.index(["00003"])
    assert beside_whom[at + 1] == ["00001"]
    last = outcome.population.by_id["00004"]
    assert last.evaluation
    assert list(last.evaluation.evidence.failed_rivals) == ["00003"]
    assert outcome.population.speedup(last, outcome.baselines[0])
    assert outcome.best is last


@pytest.mark.parametrize(("low", "high", "wins"), [(0.89, 1.76, False), (1.1, 1.42, True)])
def test_a_lower_score_alone_wins_nothing(lineage: Lineage, low: float, high: float, wins: bool) -> None:
    def judge(problem: Problem, kernel: Kernel, versus: tuple[Trial, ...]) -> Evaluation:
        if "idea" not in kernel.main:
            return accepted(100.0)
        rows = [{"id": t.id, "speedup": 1.25, "low": low, "high": high} for t in versus]
        return replace(
            accepted(80.0), evidence=parse(Evidence, {"against": rows, "claim": {**rows[0], "faster": low > 1}})
        )

    outcome = Run(lineage, evaluate=judge)(evaluations=1)
    assert (outcome.best.origin is Origin.EXPERIMENT) is wins
    assert ("no winner: none is ranked ahead of 00_base.cpp" in shown(outcome, lineage)) is not wins


def test_a_start_without_an_accepted_seed_ends_though_experiments_are_unfinished(lineage: Lineage) -> None:
    class Refuses:
        judge = "2"

        def __call__(self, problem: Problem, kernel: Kernel, versus: tuple[Trial, ...]) -> Evaluation:
            return rejected()

    Run(lineage)(evaluations=1)
    lineage.dispatch([draft("00001", "00002")], cause="round 1.1")  # as Ctrl-C in the middle of a round leaves it
    job = ThreadJob(lambda: Run(again(lineage), evaluate=Refuses())(evaluations=1) and None)
    until(lambda: job.over, 60)
    assert isinstance(job.error, ConfigError)
    assert str(job.error).startswith("no seed is accepted by the judge")


def test_seeds_that_another_process_leaves_behind_are_judged(lineage: Lineage) -> None:
    other, run, outcomes = again(lineage), Run(lineage), list[RunOutcome]()
    other.add_seeds([Trial("", Origin.SEED, kernel=seed.kernel, name=seed.name) for seed in SEEDS])
    job = ThreadJob(lambda: outcomes.append(run(evaluations=1)))
    waits = "waiting for another process of this run, which judges the seeds; Ctrl-C ends the waiting"
    until(lambda: (waits, "") in run.events or job.over, 60)
    assert not job.over
    other.store.close()  # it has been killed
    until(lambda: job.over, 60)
    assert job.error is None
    assert outcomes[0].judged == 1


def test_a_judge_that_ends_a_start_on_one_device_keeps_no_other_device_waiting(lineage: Lineage) -> None:
    class Several:
        devices = 2

        def __call__(self, problem: Problem, kernel: Kernel, versus: tuple[Trial, ...]) -> Evaluation:
            if versus:
                raise ConfigError("the compiler is gone")
            return evaluate(problem, kernel, versus)

    alike = (Seed(f"{n}.cpp", kernel(f"int x = 2;  // {n}\n")) for n in range(2))  # the second waits for the first
    seeds = (*SEEDS[:1], *alike)
    job = ThreadJob(lambda: startup.start(Run(lineage, evaluate=Several()).made(), seeds))
    until(lambda: job.over, 60)
    assert isinstance(job.error, ConfigError)


def test_more_than_99999_trials_stay_in_their_order(lineage: Lineage) -> None:
    Run(lineage)(evaluations=1)
    for name in ("99997", "²"):  # a number for str.isdigit, and none for int
        lineage.store.move([(f"refs/heads/toy/main/{name}", lineage.commit_of("00001"), ZERO)])
    trials = Run(lineage)(evaluations=7, digest_every=1).population.trials
    assert [t.id for t in trials][3:] == ["99997", "99998", "99999", *(f"{n}" for n in range(100000, 100005)), "²"]
    assert again(lineage).population().trials == trials
    Run(again(lineage))(evaluations=1)
    assert again(lineage).session_start[1] == "100004"


@pytest.mark.slow
def test_a_second_process_waits_for_the_first_ones_seeds(lineage: Lineage, tmp_path: Path) -> None:
    other = Lineage(lineage.store.path, "toy")
    reached, results = threading.Event(), []

    def slow(problem: Problem, kernel: Kernel, versus: tuple[Trial, ...]) -> Evaluation:
        reached.set()
        threading.Event().wait(0.3)
        return evaluate(problem, kernel, versus)

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


def test_a_run_is_for_the_problem_of_one_place(lineage: Lineage, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        shutil.copytree(shipped_path("problems", "softmax"), tmp_path / folder / "softmax")
        shutil.copytree(shipped_path("seeds", "softmax"), tmp_path / folder / "softmax" / "seeds")
    first, other = load(str(tmp_path / "a/softmax")), load(str(tmp_path / "b/softmax"))
    startup.no_other(other, lineage)
    lineage.open_session("place: [secret]/a")
    startup.no_other(other, lineage)
    lineage.open_session(f"place: {[*startup.places(first)]}")
    with pytest.raises(ConfigError, match=r"run=main of softmax is for .*/a/softmax, and .*/b/softmax is another"):
        startup.no_other(other, lineage)
    startup.no_other(first, lineage)
    startup.no_other(load("softmax"), lineage)
    (tmp_path / "a").rename(tmp_path / "moved")
    startup.no_other(other, lineage)
