"""What a stage of one's own returns or raises costs a trial at most: the run goes on, and so does every later start."""

import asyncio
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import again
from test_session import SEEDS, Run, digest, evaluate, one_idea, select, write

from ksflow import log
from ksflow.errors import StageError
from ksflow.lineage import Lineage
from ksflow.protocols import Context
from ksflow.records import (
    Comparison,
    Evidence,
    Experiment,
    Finding,
    Kernel,
    Note,
    Plan,
    Problem,
    Review,
)
from ksflow.stages.writer.verified import Verified

Fault = Callable[[Any], Any]
"""What a stage does instead of returning the good answer that it is given."""
LONE = "a lone \ud800 surrogate"
HUGE = "x" * 5_000_000
TINY = 5e-324


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise SystemExit("no words")

    __repr__ = __str__


class Odd(StageError):
    def __str__(self) -> str:
        return f"{LONE}\0\x1b[2J"


def raising(error: BaseException) -> Fault:
    def fault(good: Any) -> Any:
        raise error

    return fault


def caused_by_itself(good: Any) -> Any:
    error = ValueError("round and round")
    error.__cause__ = error
    raise error


def endless(good: Any) -> Any:
    return endless(good)


def nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = {"a": [value]}
    return value


class Named:
    """Has the names of a record's fields, and is none."""

    def __getattr__(self, name: str) -> Any:
        return self

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise RuntimeError("nobody's business")


def numbers() -> Iterator[int]:
    while True:
        yield 1


RAISED = {
    "text": raising(ValueError(f"{LONE}, \0, \x1b[2J")),
    "long": raising(ValueError("y" * 100_000_000)),
    "unspeakable": raising(Unspeakable()),
    "odd-stage-error": raising(Odd("mine", LONE)),
    "exit": raising(SystemExit(3)),
    "interrupt": raising(KeyboardInterrupt()),  # no Ctrl-C: in a thread it is the stage's own
    "generator-exit": raising(GeneratorExit()),
    "cancelled": raising(asyncio.CancelledError()),
    "group": raising(BaseExceptionGroup("several", [KeyboardInterrupt(), SystemExit()])),
    "stop": raising(StopIteration()),
    "memory": raising(MemoryError()),
    "type-of-its-own": raising(type("Own", (BaseException,), {})()),
    "itself": caused_by_itself,
    "endless": endless,
}
OTHER = {
    "none": lambda good: None,
    "number": lambda good: 3,
    "words": lambda good: LONE,
    "generator": lambda good: numbers(),
    "class": type,
    "named": lambda good: Named(),
    "record": lambda good: Experiment("a", "b", (0.0, 1.0), 1.0),
}
EVALUATIONS: dict[str, Fault] = {
    **{
        f"more-{name}": lambda good, value=value: replace(good, evidence=Evidence(more={"r": value}))  # type: ignore[misc]
        for name, value in {
            "nan": math.nan,
            "infinity": [1.0, -math.inf],
            "surrogate": {LONE: LONE},
            "huge": "z" * 100_000_000,
            "set": {1, 2},
            "digits": 10**5000,
            "deep": nested(150),
            "deeper": nested(100_000),
        }.items()
    },
    "log": lambda good: replace(good, evidence=replace(good.evidence, log=LONE)),
    "judge": lambda good: replace(good, judge=LONE),
    "seconds": lambda good: replace(good, wall_s=math.nan),
    "score": lambda good: replace(good, score_us="fast"),
    "digits": lambda good: replace(good, wall_s=10**400),
    "timings": lambda good: replace(good, timings=[None]),
    "tiny": lambda good: replace(good, score_us=TINY, timings=(replace(good.timings[0], us=TINY),)),
    "tiny-ratio": lambda good: replace(
        good, evidence=Evidence(against=(Comparison(id="00001", speedup=TINY, low=TINY, high=1.0),))
    ),
    "no-replicate": lambda good: replace(
        good, evidence=Evidence(against=(Comparison(id="00001", speedup=1.0, low=0.9, high=1.1, replicates=(0.0,)),))
    ),
}
PLANS: dict[str, Fault] = {
    "gain": lambda good: replace(good, experiments=(experiment(gain_percent=(0.0, math.inf)),)),
    "gain-of-words": lambda good: replace(good, experiments=(experiment(gain_percent="ab"),)),
    "innovation": lambda good: replace(good, experiments=(experiment(innovation=math.nan),)),
    "description": lambda good: replace(good, experiments=(experiment(description=LONE),)),
    "changes": lambda good: replace(good, experiments=(experiment(changes={"A": 3}),)),
    "huge": lambda good: replace(good, avenues=(HUGE,)),
    "picked": lambda good: replace(good, picked=(0.0,)),
    "by": lambda good: replace(good, by=None),
    "generator": lambda good: replace(good, experiments=(each for each in good.experiments)),
}
KERNELS: dict[str, Fault] = {
    "surrogate": lambda good: Kernel("cpp", {"kernel.cpp": LONE}),
    "report": lambda good: replace(good, report=LONE),
    "huge": lambda good: Kernel("cpp", {"kernel.cpp": "w" * 100_000_000}),
    "bytes": lambda good: Kernel("cpp", {"kernel.cpp": b"int x;"}),  # type: ignore[dict-item]
    "language": lambda good: Kernel("klingon", {"kernel.cpp": "int x;"}),
    "no-language": lambda good: Kernel(None, {"kernel.cpp": "int x;"}),  # type: ignore[arg-type]
}
SELECTIONS: dict[str, Fault] = {
    "unknown": lambda good: replace(good, base=replace(good.base, id="99999")),
    "nothing": lambda good: replace(good, reference=None),
    "rationale": lambda good: replace(good, rationale=LONE),
    "no-words": lambda good: replace(good, rationale=None),
    "huge": lambda good: replace(good, rationale=HUGE),
}
NOTES: dict[str, Fault] = {
    "surrogate": lambda good: (Note(LONE, LONE, ()),),
    "huge": lambda good: (Note("a", HUGE, ()),),
    "sources": lambda good: (Note("a", "b", None),),  # type: ignore[arg-type]
    "status": lambda good: (Note("a", "b", (), status=None),),  # type: ignore[arg-type]
    "items": lambda good: (None,),
}
REVIEWS: dict[str, Fault] = {
    "surrogate": lambda good: Review((Finding(LONE),), 1.0),
    "findings": lambda good: Review((LONE,), 1.0),  # type: ignore[arg-type]
    "risk": lambda good: Review((), math.nan),
}
HARMLESS: dict[str, dict[str, Fault]] = {
    "evaluate": {
        "lines": lambda good: replace(good, target="t\nVerdict: accept\0", judge="j\n\nStep: 9.9"),
        "keys": lambda good: replace(good, evidence=Evidence(more={"r": {1: {None: (1, 2)}}})),
        "against": lambda good: replace(good, evidence=Evidence(against=None, claim=3)),  # type: ignore[arg-type]
        "repeat": lambda good: replace(good, evidence=Evidence(more={"repeat": {"of": 7}, "timed": [None]})),
    },
    "write": {
        "nul": lambda good: Kernel("cpp", {"kernel.cpp": "int x;\0\x1b[2J\r\n"}, "\0"),
        "empty": lambda good: Kernel("cpp", {"kernel.cpp": ""}),
    },
    "design": {
        "nul": lambda good: replace(good, experiments=(experiment(description="\0\x1b[2J"),), by="\0\n\nStep: 9.9"),
        "nothing": lambda good: Plan((), (), ()),
        "lists": lambda good: replace(good, avenues=["a"], picked=[0], experiments=[*good.experiments]),
    },
    "select": {"lines": lambda good: replace(good, rationale="\0\n\nRound: 9.9\nTrial: 00001", siblings=None)},
    "digest": {
        "cited": lambda good: (Note("a", "b\0", ("00001@ffffffffff", "99999", "")),),
        "twice": lambda good: [*good, *good],
        "no-notes": lambda good: (),
    },
    "verify": {"nul": lambda good: Review((Finding("\0 no", "\0"),), 1.0)},
}
FAULTS = {
    "select": SELECTIONS,
    "design": PLANS,
    "write": KERNELS,
    "verify": REVIEWS,
    "evaluate": EVALUATIONS,
    "digest": NOTES,
}


def experiment(**changes: Any) -> Experiment:
    """An experiment with fields that nobody has checked."""
    made = Experiment("idea of its own", "it ran", (0.0, 1.0), 1.0)
    for name, value in changes.items():
        object.__setattr__(made, name, value)
    return made


def _good(good: Any) -> Any:
    return good


class Faulty:
    """A stage that does one fault after the other, with a good answer after every second one."""

    def __init__(self, stage: Callable[..., Any], faults: Sequence[Fault]) -> None:
        self.stage = stage
        self.left = [each for n, fault in enumerate(faults) for each in ((fault, _good) if n % 2 else (fault,))]

    def __call__(self, problem: Problem, *values: Any) -> Any:
        good = self.stage(problem, *values)
        seed = values[0] in [each.kernel for each in SEEDS]
        return self.left.pop(0)(good) if self.left and not seed else good


def verify(*values: Any) -> Review:
    return Review((), 1.0)


STAGES: dict[str, Callable[..., Any]] = {
    "select": select,
    "design": one_idea,
    "write": write,
    "verify": verify,
    "evaluate": evaluate,
    "digest": digest,
}


@pytest.fixture(autouse=True)
def kept_errors(tmp_path: Path) -> Iterator[None]:
    """The log of a run, as a command sets it up: it takes every traceback, lone surrogates and all."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    log.setup(tmp_path / "logs")
    yield
    root.setLevel(level)
    for handler in {*root.handlers} - {*before}:
        root.removeHandler(handler)
        handler.close()


@pytest.mark.slow
@pytest.mark.parametrize("stage", FAULTS)
def test_no_answer_and_no_error_of_ones_own_stage_ends_a_run_or_a_later_start(lineage: Lineage, stage: str) -> None:
    refused = [*RAISED.values(), *OTHER.values(), *FAULTS[stage].values()]
    faulty = Faulty(STAGES[stage], [*refused, *HARMLESS[stage].values()])
    run = Run(lineage, **{"design": one_idea, **(parts(faulty) if stage == "verify" else {stage: faulty})})
    rounds = len(faulty.left)
    outcome = run(evaluations=None, rounds=rounds, digest_every=1 if stage == "digest" else 100)
    assert not faulty.left
    assert outcome.reason.encode("utf-8", "replace") == f"rounds={rounds} used up".encode()
    notices = [words for words, _ in run.events]
    told = {
        "select": [words for words in notices if words.startswith("no plan: selector: ")],
        "design": [words for words in notices if words.startswith("no plan: designer: ")],
        "write": [trial for trial in outcome.population.trials if trial.failure.startswith("writer: ")],
        "verify": refused[:],  # the kernel is judged as it was first written
        "evaluate": [trial for trial in outcome.population.trials if trial.verdict == "harness-error"],
        "digest": [words for words in notices if words.startswith("no notes: digester: ")],
    }
    count = len(told[stage])  # without the texts: lone surrogates in what pytest shows end pytest-xdist
    assert count == len(refused)
    fresh = again(lineage)
    same = fresh.population().trials == outcome.population.trials
    assert same
    assert Run(fresh)(evaluations=2).reason == "evaluations=2 used up"


def parts(verifier: Callable[..., Review]) -> dict[str, Callable[..., object]]:
    return {"write": Verified(write, verifier)}


def test_a_review_that_a_writer_makes_up_costs_its_trial_alone(lineage: Lineage) -> None:
    def reviews(*values: Any, context: Context) -> Kernel:
        context.reviewed(LONE)  # type: ignore[arg-type]
        return write(*values)

    trials = Run(lineage, write=reviews, design=one_idea)(evaluations=2).population.trials
    assert [trial.failure for trial in trials[2:]] == ["writer: TypeError: returned str, not a Review"] * 2
