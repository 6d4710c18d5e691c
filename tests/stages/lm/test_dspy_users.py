"""What who knows DSPy tries with a stage's program: asynchronous code, threads, adapters."""

import asyncio
import json

import dspy
import pytest

from ksflow.errors import BudgetError
from ksflow.protocols import override_call
from ksflow.stages.selector.llm import LlmSelector
from ksflow.training.optimize.examples import Case
from ksflow.training.optimize.teaching import Course
from lm.scripted import dummy
from lm.server import Reply


@pytest.fixture
def inputs(problem, population):
    return dict(LlmSelector(dummy()).question(problem, population).inputs)


def test_asynchronous_code_asks_and_is_recorded(provider, inputs, calls):
    program = LlmSelector(provider.model()).program

    async def ask():
        asked = dspy.asyncify(program)
        return await asyncio.gather(asked(**inputs), asked(**inputs | {"failures": "(other)"}))

    one, other = asyncio.run(ask())
    assert {one.base_id, other.base_id} <= {"00001", "00002"}
    assert [call.stage for call in calls] == ["selector=llm"] * 2


def test_a_program_that_is_streamed_gives_the_whole(inputs, calls):
    listeners = [dspy.streaming.StreamListener(signature_field_name="rationale")]
    streaming = dspy.streamify(LlmSelector(dummy()).program, stream_listeners=listeners, async_streaming=False)
    *pieces, last = streaming(**inputs)
    assert not pieces
    assert last.base_id
    assert len(calls) == 1


def test_the_adapter_that_dspy_is_told_to_use_lays_out_a_stages_question(provider, problem, population, calls):
    good = {"rationale": "By the numbers.", "base_id": "00002", "reference_id": "00001"}
    said = iter([{**good, "base_id": "00009"}, good])
    provider.reply = lambda prompt: Reply(json.dumps(next(said)))
    with dspy.context(adapter=dspy.JSONAdapter()):
        assert LlmSelector(provider.model())(problem, population).base.id == "00002"
    first, second = (call.messages[-1]["content"] for call in calls)
    assert "Respond with a JSON object" in first
    assert second.startswith(first)
    assert "refused: base '00009' is not an id in the table" in second


def test_an_adapter_of_dspys_that_cannot_read_an_answer_says_why(provider, problem, population, calls):
    good = (
        "[[ ## rationale ## ]]\nr\n[[ ## base_id ## ]]\n00002\n[[ ## reference_id ## ]]\n00001\n[[ ## completed ## ]]"
    )
    provider.reply = lambda prompt: Reply(good if calls else "prose")
    with dspy.context(adapter=dspy.ChatAdapter(use_json_adapter_fallback=False)):
        assert LlmSelector(provider.model())(problem, population).base.id == "00002"
    assert "refused: Adapter ChatAdapter failed to parse the LM response." in calls[1].messages[-1]["content"]


def test_dspys_cache_stays_everybodys(provider, problem, population):
    before = dspy.cache
    selector = LlmSelector(provider.model())
    selector(problem, population)
    assert dspy.cache is before
    assert dspy.cache.get({"request": provider.requests[0]}) is None


@pytest.fixture
def opened(provider, problem, population):
    stage = LlmSelector(provider.model())
    case = Case(stage.question(problem, population), lambda answered: (0.5, "half"))
    return Course(stage.program, [[case] * 6, [case], []])


def test_threads_of_an_optimiser_are_recorded_and_graded(opened, calls):
    with opened.open() as course:
        evaluate = dspy.Evaluate(devset=course.train, metric=course.metric, num_threads=3)
        assert evaluate(course.program).score == 50.0
        pairs = [(course.program, example) for example in course.train]
        made = dspy.Parallel(num_threads=3, disable_progress_bar=True)(pairs)
    assert [one.refused for one in made] == [""] * 6
    assert len(calls) == 12
    assert course.graded == 6


def test_a_budget_ends_the_threads_of_an_optimiser(opened, provider):
    def refuse(question):
        raise BudgetError("usd=1 used up")

    with override_call(meter=refuse), pytest.raises(BudgetError, match="usd=1 used up"), opened.open() as made:
        dspy.Evaluate(devset=made.train, metric=made.metric, num_threads=3)(made.program)
    assert not provider.requests
