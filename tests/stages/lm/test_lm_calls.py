"""What happens around a call: retries, the cache, the transcript, deadlines, keys and providers' errors."""

import itertools
import math
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest
from dspy.clients.base_lm import GLOBAL_HISTORY

from ksflow.errors import ConfigError, StageError
from ksflow.lm import Model
from ksflow.lm.answers import answer
from ksflow.lm.sections import COMPLETED
from ksflow.protocols import override_call
from ksflow.stages.selector.llm import LlmSelector
from ksflow.stages.writer.rewrite import Rewrite
from lm.scripted import scripted
from lm.server import Reply

BAD: dict[str, Callable[[str], str]] = {
    "empty": lambda text: "",
    "prose": lambda text: "I would first look at the memory access pattern.",
    "truncated": lambda text: text[: len(text) * 2 // 3],
    "unmarked": lambda text: text.replace(COMPLETED, ""),
    "talkative": lambda text: f"{text}\nLet me know how it goes!",
    "python": lambda text: text.replace('"', "'"),
    "nan": lambda text: re.sub(r"\[[\d., ]+\]", "[NaN, NaN]", text),
    "extra": lambda text: text.replace('{"', '{"confidence": 1, "'),
    "unknown": lambda text: text.replace("[[ ## base_id ## ]]\n", "[[ ## base_id ## ]]\n9"),
    "unclosed": lambda text: text.replace("[[ ## code ## ]]\n", "[[ ## code ## ]]\n```cpp\n"),
}
"""Ways in which models spoil a good answer."""


def dummy(bad: str = "", times: float = math.inf) -> Model:
    """A model whose first answers are spoiled in that way."""
    calls = itertools.count()
    return scripted(lambda text: BAD[bad](text) if bad and next(calls) < times else text)


@pytest.mark.parametrize("temperature", [None, 0.0, 0.7])
def test_a_malformed_answer_is_asked_for_again_with_the_reason(provider, calls, problem, population, temperature):
    """The server is reached again although DSPy keeps the malformed answer in its cache."""
    provider.reply = lambda prompt: (200, "prose" if len(provider.requests) < 3 else answer(prompt))
    selection = LlmSelector(provider.model(temperature=temperature))(problem, population)
    assert selection.base.id in {"00001", "00002"}
    assert len(provider.requests) == 3
    assert "refused" not in provider.requests[0]["messages"][-1]["content"]
    assert "refused: the last line must be" in provider.requests[1]["messages"][-1]["content"]
    assert [call.answer == "prose" for call in calls] == [True, True, False]


def test_retries_are_bounded(provider, calls, problem, population):
    provider.reply = lambda prompt: (200, "prose")
    with pytest.raises(StageError, match="malformed answer after 2 attempts: the last line must"):
        LlmSelector(provider.model(), attempts=2)(problem, population)
    assert len(provider.requests) == len(calls) == 2


def test_the_same_question_again_is_free(provider, calls, problem, population):
    provider.reply = lambda prompt: (200, answer(prompt))
    model = provider.model(name="gpt-5")
    first = LlmSelector(model)(problem, population)
    second = LlmSelector(model)(problem, population)
    assert first == second
    assert len(provider.requests) == 1
    assert [call.cost.calls for call in calls] == [1, 0]
    assert calls[0].cost.usd > 0
    assert "price list" in calls[0].price_source
    assert (calls[0].cost.tokens_in, calls[0].cost.tokens_out) == (1000, 500)
    assert calls[1].cost.usd == 0
    assert calls[1].price_source == "cache"


OUTAGE = {
    "prose": Reply("prose"),
    "empty": Reply(""),
    "no choices": Reply(body={"id": "1", "model": "local", "choices": None}),
    "an error in a choice": Reply(
        body={"id": "1", "model": "local", "choices": [{"error": {"message": "upstream is down", "code": 502}}]}
    ),
    "filtered": Reply("", finish="filter"),
}


@pytest.mark.parametrize("outage", OUTAGE)
def test_an_answer_that_was_not_accepted_is_never_had_again(outage, provider, calls, problem, population):
    provider.reply = lambda prompt: OUTAGE[outage]
    with pytest.raises(StageError) as caught:
        LlmSelector(provider.model(), attempts=1)(problem, population)
    assert {"an error in a choice": "upstream is down", "no choices": "without words"}.get(outage, "") in str(
        caught.value
    )
    provider.reply = lambda prompt: Reply(answer(prompt))
    assert LlmSelector(provider.model(), attempts=1)(problem, population).rationale
    assert len(provider.requests) == 2


@pytest.mark.parametrize(
    "body",
    [
        {"object": "error", "message": "no such adapter", "type": "BadRequestError", "param": None, "code": 400},
        {"detail": "no such adapter"},
        {"detail": [{"loc": ["body"], "msg": "no such adapter"}]},
        {"error": "no such adapter"},
    ],
)
def test_errors_of_other_shapes_keep_their_words(body, provider, problem, population):
    provider.reply = lambda prompt: Reply(status=400, body=body)
    with pytest.raises(StageError, match="no such adapter"):
        LlmSelector(provider.model(), attempts=1)(problem, population)


def test_an_answer_that_was_damaged_on_disk_is_asked_for_anew(provider, problem, population, tmp_path):
    first = LlmSelector(provider.model())(problem, population)
    (kept,) = (tmp_path / "dspy").rglob("*.json")
    kept.write_text(kept.read_text()[:-9])
    assert [LlmSelector(provider.model())(problem, population) for _ in range(2)] == [first, first]
    assert len(provider.requests) == 2


def test_another_seed_or_server_is_asked_anew(provider, problem, population):
    LlmSelector(provider.model())(problem, population)
    LlmSelector(provider.model(), seed=1)(problem, population)
    other = provider.model(api_base=provider.url.replace("127.0.0.1", "localhost"))
    LlmSelector(other)(problem, population)
    assert len(provider.requests) == 3


def test_a_call_is_in_the_transcript_before_its_answer_is_used(problem, population):
    def keep(call):
        assert threading.current_thread() is here
        raise RuntimeError(f"disk full, with {call.answer}")

    here = threading.current_thread()

    with override_call(record=keep), pytest.raises(RuntimeError, match="disk full, with I would first look"):
        LlmSelector(dummy("prose"))(problem, population)


def test_calls_hold_what_was_sent_and_no_key(provider, calls, problem, population, monkeypatch):
    monkeypatch.setenv("TEST_KEY", "sk-very-secret")
    provider.reply = lambda prompt: (200, f"your key is sk-very-secret\n{answer(prompt)}")
    model = provider.model(key="TEST_KEY", api_key="sk-very-secret")
    LlmSelector(model)(problem, population)
    provider.reply = lambda prompt: (401, "wrong key sk-very-secret")
    with pytest.raises(ConfigError, match=r"refused the key in TEST_KEY.*\[secret\]"):
        LlmSelector(model, seed=2)(problem, population)
    assert provider.keys == ["Bearer sk-very-secret"] * 2
    sent = provider.requests[0]["messages"]
    assert list(calls[0].messages) == [{"role": m["role"], "content": m["content"]} for m in sent]
    assert calls[1].error
    assert calls[1].messages[0]["role"] == "system"
    assert "very-secret" not in repr(calls) + repr(model) + str(vars(LlmSelector(model).program))


def test_a_key_in_the_environment_is_not_sent_to_ones_own_server(provider, problem, population, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    LlmSelector(provider.model())(problem, population)
    assert provider.keys == ["Bearer none"]


def test_a_missing_key_names_its_variable(monkeypatch):
    with pytest.raises(ConfigError, match="set the environment variable GEMINI_API_KEY"):
        Model("gemini/gemini-2.5-pro", key="GEMINI_API_KEY", api_key=None)
    monkeypatch.setenv("GEMINI_API_KEY", "")
    with pytest.raises(ConfigError, match="GEMINI_API_KEY"):
        Model("gemini/gemini-2.5-pro", key="GEMINI_API_KEY", api_key="")


@pytest.mark.parametrize("settings", [{"api_key": "sk-1"}, {"options": {"extra_headers": {"Authorization": "sk-1"}}}])
def test_a_literal_key_is_refused(settings):
    with pytest.raises(ConfigError, match="written in the configuration") as caught:
        Model("openai/x", **settings)
    assert "sk-1" not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (401, (ConfigError, "refused the key")),
        (402, (ConfigError, "wants to be paid")),
        (429, (StageError, "rate limit")),
        (500, (StageError, "openai/local")),
        (400, (StageError, "openai/local")),
    ],
)
def test_providers_errors_are_one_sentence(provider, calls, problem, population, status, expected):
    kind, sentence = expected
    provider.reply = lambda prompt: (status, "because\nof this")
    with pytest.raises(kind, match=sentence) as caught:
        LlmSelector(provider.model())(problem, population)
    assert "\n" not in str(caught.value)
    assert "of this" in str(caught.value)
    assert len(calls) == 1
    assert calls[0].error
    assert calls[0].messages


def test_no_server_is_a_stage_error(calls, problem, population):
    model = Model("openai/local", api_base="http://127.0.0.1:9/v1", retries=0)
    with pytest.raises(StageError, match="cannot be reached"):
        LlmSelector(model)(problem, population)
    assert "cannot be reached" in calls[0].error


def test_a_deadline_holds_whatever_the_provider_does(provider, calls, problem, population):
    release = threading.Event()

    def slow(prompt):
        release.wait(100)
        return 200, answer(prompt)

    provider.reply = slow
    started = time.monotonic()
    with pytest.raises(StageError, match=r"no answer within 0\.3 s"):
        LlmSelector(provider.model(deadline_s=0.3))(problem, population)
    assert time.monotonic() - started < 50
    assert [call.error for call in calls] == ["no answer within 0.3 s"]
    release.set()


def test_an_answer_at_the_token_limit_is_told(provider, problem, population):
    provider.finish = "length"
    provider.reply = lambda prompt: (200, answer(prompt)[:60])
    with pytest.raises(StageError, match="token limit"):
        LlmSelector(provider.model(), attempts=1)(problem, population)


HARMLESS = {
    "python": ["fine", "fine"],
    "nan": ["fine", "fine"],
    "extra": ["fine", "fine"],
    "unknown": ["refused", "fine"],
    "unclosed": ["fine", "refused"],
}
"""What becomes of an answer for the selector and for the writer, where it is not refused by both."""


@pytest.mark.parametrize("bad", BAD)
def test_every_way_to_spoil_an_answer_is_refused_or_harmless(bad, problem, selection, population):
    experiment = population.trials[1].experiment
    stages = (
        lambda model: LlmSelector(model, attempts=1)(problem, population),
        lambda model: Rewrite(model, attempts=1)(problem, selection, experiment, ()),
    )
    outcomes = []
    for stage in stages:
        try:
            stage(dummy(bad))
            outcomes.append("fine")
        except StageError:
            outcomes.append("refused")
            stage(dummy(bad, times=0))
    assert outcomes == HARMLESS.get(bad, ["refused", "refused"])


def test_retries_recover(problem, population):
    assert LlmSelector(dummy("truncated", times=2))(problem, population).rationale


def test_dspys_histories_have_none_of_a_programs_questions(problem, population, calls):
    before = len(GLOBAL_HISTORY)
    selector = LlmSelector(dummy())
    selector(problem, population)
    assert len(GLOBAL_HISTORY) == before
    assert selector.program.lm.history == selector.program.model.client.history == []
    assert selector.program.predict.history == []
    assert len(calls) == 1


def test_threads_keep_their_models_apart(provider, problem, population):
    provider.reply = lambda prompt: (200, answer(prompt))
    models = [provider.model(name=f"m{index}") for index in range(4)]
    threads = [threading.Thread(target=LlmSelector(model), args=(problem, population)) for model in models]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(request["model"] for request in provider.requests) == ["m0", "m1", "m2", "m3"]


def test_a_stage_without_a_model_says_so():
    with pytest.raises(ConfigError, match="writer=rewrite needs a model: choose one with llm="):
        Rewrite({})


def test_dspy_is_not_imported_before_it_is_needed():
    code = (
        "import sys; from ksflow.lm import Model; from ksflow.lm.engines import *;"
        "import ksflow.stages.designer.mix, ksflow.stages.writer.mix;"
        "Model('ksflow/dummy', engine=DummyEngine()); assert 'dspy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
