"""A recorded run, asked again of nobody: the same answers, the same errors, the same transcript."""

import threading
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace

import pytest
from conftest import until

from ksflow.errors import BudgetError, ConfigError, KsflowError, StageError
from ksflow.lm import Model
from ksflow.lm.answers import answer
from ksflow.lm.replay import Replay
from ksflow.protocols import override_call
from ksflow.records import Call, Population, Reservation
from ksflow.stages.selector.llm import LlmSelector
from ksflow.stages.writer.rewrite import Rewrite
from lm.server import Reply


def outcome(stage, *values) -> object:
    try:
        return stage(*values)
    except KsflowError as error:
        return type(error), str(error)


class Tape:
    """A recorded run that is a list of calls."""

    judges_anew = False

    def __init__(self, calls: list[Call], session: int = 0) -> None:
        self._calls, self.session = tuple(calls), session

    def calls(self) -> tuple[Call, ...]:
        return self._calls

    def evaluations(self) -> tuple:
        return ()

    def first_verdict(self) -> None:
        return None


def replayed(calls: list[Call]) -> Model:
    return Model("replay", "ksflow", engine=Replay(Tape([replace(call, about="00001") for call in calls])))


@pytest.fixture
def recorded(provider, calls, problem, population, selection, monkeypatch):
    """A run of many fortunes: its outcomes, and a function that has it happen again on another model."""
    monkeypatch.setenv("A_KEY", "sk-1")
    good = Reply
    script = [
        lambda prompt: good(answer(prompt)),
        lambda prompt: good("prose"),
        lambda prompt: good(answer(prompt)),
        lambda prompt: good(answer(prompt)[:60], finish="length"),
        lambda prompt: good(""),
        lambda prompt: good("", finish="filter"),
        lambda prompt: good(answer(prompt)[:60], finish="length"),  # what was refused is asked for anew
        lambda prompt: good(answer(prompt)),
        lambda prompt: good("out of order", 500),
        lambda prompt: good("who are you", 401),
        lambda prompt: good("", finish="filter"),
        lambda prompt: good("", refusal="never"),
        lambda prompt: good("half", finish="length"),
        lambda prompt: good("prose"),
    ]
    provider.reply = lambda prompt: script[len(provider.requests) - 1](prompt)
    experiment = population.trials[1].experiment

    def run(model: Model) -> list[object]:
        return [
            outcome(LlmSelector(model, seed=1), problem, population),
            outcome(Rewrite(model), problem, selection, experiment, ()),
            outcome(LlmSelector(model, seed=2), problem, population),
            outcome(LlmSelector(model, seed=2, attempts=1), problem, population),
            outcome(Rewrite(model, seed=3), problem, selection, experiment, ()),
            outcome(LlmSelector(model, seed=4, attempts=2), problem, population),
            outcome(LlmSelector(model, seed=5, attempts=2), problem, population),
            outcome(LlmSelector(model, seed=6, attempts=2), problem, population),
            outcome(LlmSelector(model, seed=1), problem, population),
        ]

    model = provider.model(name="gpt-5", key="A_KEY", api_key="sk-1", max_tokens=20000, reasoning_effort="low")
    return run(model), run


def test_a_recorded_run_happens_again(recorded, provider, calls):
    """Field by field, but for what a call was for, which is whoever keeps it to say."""
    live, run = recorded
    kinds = Counter(made[0] if isinstance(made, tuple) else "fine" for made in live)
    assert kinds["fine"] >= 3
    assert kinds[StageError] >= 1
    assert kinds[ConfigError] == 1
    assert any("token limit" in str(made) for made in live)
    assert any("safety filter" in str(made) for made in live)
    assert {call.price_source == "cache" for call in calls} == {True, False}
    before, asked = list(calls), len(provider.requests)
    calls.clear()
    assert run(replayed(before)) == live
    assert calls == before
    assert len(provider.requests) == asked


def test_a_replay_is_metered_by_what_it_cost(recorded, calls):
    before = list(calls)
    questions = []

    @contextmanager
    def meter(question):
        questions.append(question)
        yield Reservation()

    with override_call(meter=meter):
        recorded[1](replayed(before))
    paid = [call for call in before if call.price_source != "cache"]
    assert [question.usd_most for question in questions] == [call.cost.usd for call in paid]


def test_a_question_that_was_not_asked_is_said(recorded, calls, problem, population):
    model = replayed(calls)
    with pytest.raises(BudgetError, match="the recording has no answer to this question of selector=llm"):
        LlmSelector(model)(problem, Population(population.trials[:2]))


def test_a_deadline_and_the_late_answer_happen_again(provider, calls, problem, population):
    late = threading.Event()
    provider.reply = lambda prompt: late.wait(60) and Reply(answer(prompt))
    live = outcome(LlmSelector(provider.model(deadline_s=0.2)), problem, population)
    late.set()
    until(lambda: len(calls) == 2)
    before = list(calls)
    calls.clear()
    assert outcome(LlmSelector(replayed(before)), problem, population) == live
    until(lambda: len(calls) == 2)
    assert calls == before


def test_threads_share_the_recorded_answers(provider, calls, problem, population):
    """The same question eight times: each answer is given once."""
    provider.reply = lambda prompt: Reply(answer(prompt))
    for seed in range(8):
        LlmSelector(provider.model(), seed=seed)(problem, population)
    before = list(calls)
    selector, kept = LlmSelector(replayed(before)), []

    def ask() -> None:
        with override_call(record=kept.append):
            selector(problem, population)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    walls = sorted(call.cost.wall_s for call in before)
    assert sorted(call.cost.wall_s for call in kept) == walls


def test_rounds_that_asked_the_same_get_what_each_got(provider, calls, problem, population):
    """In whatever order they come this time."""
    provider.reply = lambda prompt: Reply(answer(prompt) if len(provider.requests) == 1 else "prose")
    live = [outcome(LlmSelector(provider.model(), seed=seed, attempts=1), problem, population) for seed in range(2)]
    named = [replace(call, about=f"round {index}") for index, call in enumerate(calls)]
    selector = LlmSelector(Model("replay", "ksflow", engine=Replay(Tape(named))), attempts=1)
    again = {}
    for index in (1, 0):
        with override_call(about=f"round {index}"):
            again[index] = outcome(selector, problem, population)
    assert [again[0], again[1]] == live


def test_in_a_session_what_a_call_was_for_decides(provider, calls, problem, population):
    provider.reply = lambda prompt: Reply(answer(prompt))
    live = LlmSelector(provider.model())(problem, population)
    tape = Tape([replace(call, about="round 1.1") for call in calls], session=1)
    selector = LlmSelector(Model("replay", "ksflow", engine=Replay(tape)))
    with override_call(about="round 1.1"):
        again = selector(problem, Population(population.trials[:2]))  # another question
    assert (again.base.id, again.reference.id) == (live.base.id, live.reference.id)


def test_outside_a_session_another_question_is_refused(provider, calls, problem, population):
    LlmSelector(provider.model())(problem, population)
    other = [replace(call, messages=({"role": "user", "content": "Pick one."},)) for call in calls]
    with pytest.raises(BudgetError, match="stages and settings are others"):
        LlmSelector(replayed(other))(problem, population)
