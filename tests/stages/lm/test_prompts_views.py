"""What a prompt shows of populations, kernels, failures and notes: bounded, in a fixed order, what matters first."""

import random
from dataclasses import replace

import pytest
from conftest import paired

from ksflow.kernels.source.tokens import estimate
from ksflow.lm.prompts import render
from ksflow.lm.prompts.failures import failure
from ksflow.lm.prompts.tried import tried_experiments
from ksflow.lm.prompts.views import view
from ksflow.records import (
    Case,
    Claim,
    Evaluation,
    Evidence,
    Experiment,
    Kernel,
    Origin,
    Population,
    Problem,
    Repeat,
    Timing,
    Trial,
    Verdict,
    geomean,
    parse,
)
from ksflow.stages.designer.llm import LlmDesigner
from ksflow.stages.selector.llm import LlmSelector
from ksflow.stages.writer.rewrite import Rewrite
from lm.scripted import dummy


def world(problem: Problem, count: int, shapes: int) -> tuple[Problem, Population]:
    """Trials with long descriptions; every fourth fails, in one of twenty ways."""
    chance = random.Random(1)
    cases = tuple(Case(f"{index}x7168x{index * 64}", {"m": index}, index) for index in range(shapes))
    kernel = Kernel("cpp", {"k.cpp": "custom_kernel"})
    trials = []
    for index in range(count):
        experiment = Experiment("many words " * 200, "r", (0.0, 1.0), 1.0)
        timings = tuple(Timing(case.name, chance.uniform(1, 100)) for case in cases)
        evaluation = Evaluation(Verdict.ACCEPT, "", geomean(timing.us for timing in timings), timings)
        if index % 4 == 3:
            reason = f"c[{index}] is off {chr(97 + index // 4 % 20)} times, " + "word " * 30
            evaluation = Evaluation(Verdict.INCORRECT, reason)
        parents = (f"{index // 2:05}",) if index else ()
        origin = Origin.EXPERIMENT if index else Origin.SEED
        trials.append(Trial(f"{index:05}", origin, parents, experiment, kernel, evaluation=evaluation))
    return replace(problem, benchmarks=cases), paired(tuple(trials))


@pytest.mark.parametrize("shapes", [2, 18, 60])
@pytest.mark.parametrize("count", [10, 1000, pytest.param(5000, marks=pytest.mark.slow)])
def test_a_view_is_bounded_and_holds_what_matters(problem, count, shapes):
    many, population = world(problem, count, shapes)
    assert population.ranked
    assert population.best
    for tokens in (1000, 3000, 10_000, 30_000):
        holds_what_matters(many, population, tokens)


def holds_what_matters(problem: Problem, population: Population, tokens: int) -> None:
    shapes = len(problem.benchmarks)
    seen = view(problem, population, tokens)
    assert estimate(seen.table) + estimate(seen.failures) <= tokens
    newest = max(trial.id for trial in population.ranked)
    assert {population.ranked[0].id, population.best.id, newest} <= seen.shown
    winners = {
        min(population.ranked, key=lambda trial: trial.evaluation.timings[index].us).id for index in range(shapes)
    }
    if tokens >= 10_000 and shapes < 60:
        assert winners <= seen.shown
    else:
        assert len(winners & seen.shown) >= min(len(winners), 3)
    assert all(f"| {id} |" in seen.table for id in seen.shown)
    failed = max(trial.id for trial in population.trials if trial.score_us is None)
    assert seen.failures.startswith(f"- {failed} from ")
    if left := len(population.ranked) - len(seen.shown):
        assert f"({left} more accepted kernels are not shown" in seen.table
    assert view(problem, population, tokens) == seen


def test_a_view_is_as_many_tokens_as_are_estimated(problem, monkeypatch):
    many, population = world(problem, 1000, 18)

    def count(text: str) -> int:
        return round(len(text) / 2.4)

    monkeypatch.setattr("ksflow.lm.prompts.views.count", count)
    seen = view(many, population, 6000)
    assert 5000 < count(seen.table) + count(seen.failures) <= 6000
    assert population.best.id in seen.shown
    assert view(many, population, 1).shown


def test_failures_of_one_kind_are_counted(problem):
    _, population = world(problem, 1000, 2)
    lines = view(problem, population, 40_000).failures.splitlines()
    assert len(lines) == 20
    assert lines[0].startswith("- 00999 from 00499: many words")
    assert lines[0].endswith("(12 more like it)")
    short = view(problem, population, 1000).failures.splitlines()
    assert short[-1].endswith("other kinds)")
    assert sum(int(line.rsplit("(", 1)[1].split()[0]) + 1 for line in short[:-1]) + int(short[-1][1:].split()[0]) == 250


def test_the_view_shows_noise_rooflines_and_who_is_unranked(problem, population):
    seed, faster, wrong = population.trials
    timed = [{"case": "small", "us": 5.0, "interval_us": [4.8, 5.2], "floor_us": 0.6, "floor": "1 B at 1 B/s"}]
    roofline = [{"case": "small", "bound": "memory", "bound_us": 1.25, "share": 0.25}]
    claim = {
        "id": "00001",
        "speedup": 1.6**0.5,
        "low": 0.9,
        "high": 1.8,
        "faster": False,
        "ranked": False,
        "why": "it read x1.2",
    }
    evidence = parse(Evidence, {"timed": timed, "claim": claim, "roofline": roofline})
    noisy = replace(faster, evaluation=replace(faster.evaluation, evidence=evidence))
    table = view(problem, paired((seed, noisy, wrong)), 6000).table
    assert "| 00002 | 00001 | 15.81 (25 % of roofline) | 5 | 50 | ±4 % unranked | Unroll the loop. |" in table
    assert "| roofline |  |  | 1.25 | - |  | what the hardware's rates allow |" in table
    assert "floor" not in table.lower()
    assert "Best so far" not in table


@pytest.mark.parametrize("tokens", [500, 4000])
@pytest.mark.parametrize("count", [10, 1000, pytest.param(5000, marks=pytest.mark.slow)])
def test_what_was_tried_is_bounded(problem, count, tokens):
    _, population = world(problem, count, 18)
    many = tuple(replace(trial, parents=("00000",)) if trial.id < "00500" else trial for trial in population.trials)
    population = paired(many)
    text = tried_experiments(population, population.choose("00000", "00000", ""), tokens)
    assert len(text) <= 4 * tokens
    on_base = [trial.id for trial in many if trial.parents == ("00000",)]
    assert text.startswith("On the base 00000:\n")
    assert f"- {on_base[-1]}: " in text
    shown = sum(f"- {id}: " in text for id in on_base)
    assert shown == len(on_base) or f"({len(on_base) - shown} earlier ones on 00000 are not shown: " in text
    if count > 500:
        assert f"- {count - 1:05}: " in text
        assert "earlier ones on other bases are not shown)" in text


TIMED = [
    {"case": "small", "us": 5.0, "interval_us": [4.9, 5.1], "floor_us": 1.25, "floor": "1 KB at 1 GB/s (cache)"},
    {"case": "large", "us": 50.0},
]
NEAR = [{"case": "small", "bound": "memory", "bound_us": 2.5, "share": 0.5}]


def test_an_analysis_shows_intervals_rooflines_and_rivals(population):
    seed, faster, _ = population.trials
    versus = [
        {"id": "00001", "speedup": 1.6**0.5, "low": 1.2, "high": 4 / 3},
        {"id": "00000", "speedup": 1.0, "low": 0.9, "high": 1.1},
    ]
    found = replace(faster.evaluation, evidence=parse(Evidence, {"timed": TIMED, "against": versus, "roofline": NEAR}))
    trial = replace(faster, evaluation=found)
    text = render.analysis(trial, paired((seed, trial)).step(trial))
    assert "| small | 4 | 5 [4.9, 5.1] | -20.0 % | 2.5 | 50 % | memory |" in text
    assert "| large | 100 | 50 | +100.0 % |  |  |  |" in text
    assert "Timed side by side with 00001: x1.26 [1.2, 1.33] as fast.\n" in text
    assert "95 % interval" in text
    assert "nranked" not in text
    plain = render.analysis(faster, population.step(faster))
    assert "| large | 100 | 50 | +100.0 % |" in plain
    assert "roofline" not in plain
    assert "interval" not in plain
    claim = Claim(
        id="00001", speedup=1.26, low=1.2, high=1.3, faster=False, ranked=False, why="00001 against itself read x1.200"
    )
    doubtful = replace(faster, evaluation=replace(found, evidence=Evidence(claim=claim)))
    assert "too noisy when it was judged (00001 against itself read x1.200)" in render.analysis(
        doubtful, population.step(doubtful)
    )


def failed(verdict: Verdict, reason: str = "why", **evidence: object) -> Trial:
    kernel = Kernel("cpp", {"k.cpp": "custom_kernel"})
    return Trial(
        "00007",
        Origin.EXPERIMENT,
        kernel=kernel,
        evaluation=Evaluation(verdict, reason, evidence=parse(Evidence, evidence)),
    )


@pytest.mark.parametrize(
    ("trial", "shown", "hidden"),
    [
        (failed(Verdict.COMPILE, "oops", log="first error\n" + "x" * 9000 + "last"), ["first error", "oops"], "last"),
        (
            failed(
                Verdict.INCORRECT,
                failed={"case": "small", "seed": 7, "index": [0, 3], "got": 1.5, "expected": 2.0, "bound": 1e-6},
                checked=[{"case": "tiny", "worst": 0.25}],
                contents="3f2a",
                spent_s={"check": 1},
            ),
            ["case small, seed 7, index [0, 3], got 1.5, expected 2.0, bound 1e-06", "Right on tiny: error 25.0%"],
            "3f2a",
        ),
        (
            failed(Verdict.CRASH, phase="time", at="large", error="SIGSEGV", log="x" * 9000 + "the end"),
            ["phase time, at large", "SIGSEGV", "the end"],
            "x" * 5000,
        ),
        (failed(Verdict.TIMEOUT, phase="check", at="small", error="no answer"), ["at small", "no answer"], "Besides"),
        (
            failed(Verdict.IMPOSSIBLE, timed=[{"case": "small", "us": 1.0, "floor_us": 2.5, "floor": "1 KB"}]),
            ["small: 1.0 us, floor 2.5 us (1 KB)"],
            "Besides",
        ),
        (failed(Verdict.CHEAT, hint="it read a secret"), ['Besides: {"hint": "it read a secret"}'], "phase"),
    ],
    ids=lambda value: value.verdict if isinstance(value, Trial) else "",
)  # fmt: skip
def test_a_failure_shows_the_evidence_that_bears_on_it(trial, shown, hidden):
    text = failure(trial)
    assert text.startswith(f"Attempt 00007 at this experiment: {trial.verdict}. ")
    assert all(part in text for part in shown)
    assert hidden not in text
    assert len(text) < 12_000


def test_a_repeat_is_told_to_differ_in_substance(population):
    text = failure(failed(Verdict.COMPILE, log="error", repeat={"of": "00003"}))
    assert "This is the code of trial 00003, which got compile-error;" in text
    assert "differs from it in substance" in text
    faster = population.trials[1]
    again = replace(faster, evaluation=replace(faster.evaluation, evidence=Evidence(repeat=Repeat(of="00001"))))
    assert "the code of trial 00001, which got accept, 15.81 us;" in failure(again)


def test_an_attempt_without_a_kernel_says_why():
    assert "brought no kernel: no answer" in failure(Trial("00007", Origin.EXPERIMENT, failure="no answer"))
    assert failure(None) == ""


def test_prompts_are_the_same_words_each_time(problem, population, selection, calls):
    """Another hash seed changes nothing either: no set is walked in its order."""
    for _ in range(2):
        LlmSelector(dummy())(problem, population)
        LlmDesigner(dummy())(problem, population, selection, ())
        Rewrite(dummy())(problem, selection, selection.base.experiment, (), population.trials[2])
    assert [call.messages for call in calls[:3]] == [call.messages for call in calls[3:]]


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        (LlmSelector, ["rationale first", "the reference:", "unranked"]),
        (
            LlmDesigner,
            ["avenues", "most innovative", "highest maximum", "the judge compiles", "what failed"],
        ),
        (Rewrite, ["compiling verifies them", "tune:", "no placeholders", "rubric"]),
    ],
)
def test_instructions_say_what_is_wanted(stage, words):
    text = " ".join(stage(dummy()).program.predict.signature.instructions.split())
    assert all(word in text for word in words)
