"""Each provider's own protocol on the wire: settings, streams, errors, faults; and what a preset lacks."""

import json
import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from ksflow.config.compose import build, compose
from ksflow.errors import ConfigError, StageError
from ksflow.lm import Model
from ksflow.lm.answers import answer
from ksflow.lm.prices import price
from ksflow.redaction import redact
from ksflow.stages.writer.rewrite import Rewrite
from lm.server import TOKENS_IN, TOKENS_OUT, Reply

CONF = Path(__file__).parents[3] / "conf"
PROTOCOLS = ("openai", "anthropic", "gemini")
NAMES = {"openai": "gpt-5", "anthropic": "claude-sonnet-4-5", "gemini": "gemini-2.5-pro"}
NATIVE = (*PROTOCOLS, "openrouter", "vllm", "ollama", "openai_compatible")
CLOUD = ("azure", "vertex", "bedrock")


@pytest.fixture
def hasty(monkeypatch) -> None:
    """No pause before another try."""
    monkeypatch.setattr("time.sleep", lambda seconds: None)


def reached(provider, protocol: str, **changes) -> Model:
    base = {"openai": provider.url, "anthropic": provider.url, "gemini": f"{provider.root}/v1beta"}[protocol]
    return provider.model(
        **{"provider": protocol, "name": NAMES[protocol], "api_base": base, "cache": False, **changes}
    )


def preset(name: str, provider, monkeypatch, **changes) -> Model:
    """A preset of conf/model, pointed at the test's server."""
    raw = OmegaConf.load(CONF / "model" / f"{name}.yaml")
    if "key" in raw:
        monkeypatch.setenv(raw.key, "sk-test")
    path = {"gemini": "/v1beta", "azure": "", "vertex": "", "bedrock": ""}.get(name, "/v1")
    made = {**raw, "api_base": f"{provider.root}{path}", "retries": 0, "cache": False, **changes}
    return build(OmegaConf.create(made))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_mark_of_the_providers_cache_stands_where_questions_begin_to_differ(protocol, provider, problem, selection):
    """Anthropic's takes marks; the others cache by themselves what prompts begin with, and get one message."""
    tried = selection.base.experiment
    Rewrite(reached(provider, protocol))(problem, selection, tried, ())
    (request,) = provider.requests
    if protocol != "anthropic":
        said = ("messages", "contents", "systemInstruction")
        assert "cache" not in json.dumps({key: value for key, value in request.items() if key not in said})
        assert len(request.get("contents") or request["messages"]) <= 2
        return
    shared, own = request["messages"]
    assert shared["content"][-1]["cache_control"] == {"type": "ephemeral"}
    assert "cache_control" not in json.dumps(own)
    assert shared["content"][-1]["text"].startswith("[[ ## target ## ]]")
    assert own["content"][0]["text"].startswith(f"[[ ## experiment ## ]]\n{tried.description}")
    assert "cache_control" in request["system"][0]


def test_a_server_of_ones_own_is_told_the_longest_answer_in_the_word_that_all_servers_know(provider, select):
    select(reached(provider, "openai", name="own", max_tokens=700, options={"mirostat_mode": 2}))
    (request,) = provider.requests
    assert (request["max_tokens"], request["mirostat_mode"]) == (700, 2)
    assert "max_completion_tokens" not in request


@pytest.mark.slow
def test_litellm_sets_the_mark_at_the_same_place(provider, problem, selection):
    model = reached(provider, "anthropic", engine="litellm", api_base=provider.root)
    Rewrite(model)(problem, selection, selection.base.experiment, ())
    (request,) = provider.requests
    marked = [part for message in request["messages"] for part in message["content"] if "cache_control" in part]
    assert [part["text"].startswith("[[ ## target ## ]]") for part in marked] == [True]
    assert "[[ ## experiment ## ]]" not in marked[0]["text"]
    assert "cache_control" in request["system"][-1]
    assert request["messages"][-1]["content"][-1]["text"].startswith("[[ ## experiment ## ]]")


@pytest.mark.parametrize("prices", [{}, {"usd_per_mtok_in": 2.0, "usd_per_mtok_out": 4.0, "usd_per_mtok_cached": 0.5}])
@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
def test_what_came_out_of_the_providers_cache_is_on_record_with_its_price(protocol, prices, provider, calls, select):
    model = reached(provider, protocol, **prices)
    provider.reply = lambda prompt: Reply(answer(prompt))
    select(model)
    provider.reply = lambda prompt: Reply(answer(prompt), cached=800)
    select(model)
    plain, cached = (call.cost for call in calls)
    assert (cached.tokens_in, plain.tokens_cached, cached.tokens_cached) == (TOKENS_IN, 0, 800)
    assert cached.cached_share == 0.8
    assert 0 < cached.usd_cached < 800 / TOKENS_IN * plain.usd
    assert plain.usd - cached.usd == pytest.approx(800 * (price(model).usd_in) - cached.usd_cached)
    if prices:
        assert cached.usd_cached == pytest.approx(800 * 0.5e-6)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", NATIVE)
def test_a_preset_reaches_the_wire(name, stream, provider, calls, select, monkeypatch):
    """Temperature, token limit and key are what the provider's dialect can say; the answer is the same."""
    model = preset(name, provider, monkeypatch, stream=stream)
    assert select(model).rationale
    wire = json.dumps(provider.requests[0])
    assert model.name in provider.paths[0] + wire
    if model.api_key:
        assert provider.keys[0].removeprefix("Bearer ") == "sk-test"
    assert (str(model.max_tokens) in wire) == (model.max_tokens is not None)
    assert ("temperature" in wire) == (model.temperature is not None)
    assert stream == bool(provider.requests[0].get("stream") or "streamGenerate" in provider.paths[0])
    (call,) = calls
    assert (call.cost.calls, call.cost.tokens_in, call.cost.tokens_out) == (1, TOKENS_IN, TOKENS_OUT)
    assert call.model == model.model
    assert call.settings == {key: value for key, value in model.settings.items() if value is not None}
    expected = {"openai_compatible": "", "vllm": "configuration", "ollama": "configuration"}
    assert call.price_source.startswith(expected.get(name, "DSPy's price list "))
    assert bool(call.cost.usd) == (name not in expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["azure", "bedrock"])
def test_a_cloud_preset_goes_through_litellm(name, provider, calls, select, monkeypatch):
    for variable in ("AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(variable, "us-east-1")
    model = preset(name, provider, monkeypatch)
    assert select(model).rationale
    assert model.name in provider.paths[0].replace("%3A", ":")
    (call,) = calls
    assert (call.cost.tokens_in, call.cost.tokens_out) == (TOKENS_IN, TOKENS_OUT)
    assert call.cost.usd > 0
    assert "price list" in call.price_source


@pytest.mark.parametrize(
    ("name", "missing"), [("azure", "AZURE_API_BASE"), ("vertex", "VERTEXAI_PROJECT"), ("bedrock", "AWS_REGION")]
)
def test_what_a_cloud_preset_lacks_is_named(name, missing, monkeypatch):
    monkeypatch.delenv(missing, raising=False)
    monkeypatch.setenv("AZURE_API_KEY", "sk-test")
    with pytest.raises(ConfigError, match=f"set the environment variable {missing}"):
        build(compose([f"model={name}"]).model)
    monkeypatch.setenv(missing, "https://somewhere")
    assert build(compose([f"model={name}"]).model).engine == "litellm"


def test_a_missing_package_names_the_extra(monkeypatch, select):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    model = Model("gemini-2.5-pro", "vertex_ai", engine="litellm")
    with pytest.raises(ConfigError, match=r'pip install "ksflow\[cloud\]"'):
        select(model)


def test_the_models_name_is_one_field(monkeypatch):
    monkeypatch.setenv("GEMINI_API_KEY", "sk-test")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    writer = ["model@writer.llm.lm=openai", "writer.llm.lm.name=gpt-5-mini"]
    cfg = compose(["llm=gemini", "model.name=gemini-2.5-flash", *writer])
    assert build(cfg.designer.lm).model == "gemini/gemini-2.5-flash"
    assert build(cfg.writer.llm.lm).model == "openai/gpt-5-mini"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_nothing_is_sent_that_was_not_configured(protocol, provider, select):
    select(reached(provider, protocol))
    wire = json.dumps(provider.requests[0])
    for word in ("temperature", "top_p", "topP", "reasoning", "thinking"):
        assert f'"{word}' not in wire


@pytest.mark.parametrize(
    ("protocol", "settings", "expected"),
    [
        ("openai", {"reasoning_effort": "high"}, {"reasoning_effort": "high"}),
        ("openai", {"reasoning_effort": "none"}, {"reasoning_effort": "none"}),
        ("openai", {"options": {"top_p": 0.9, "seed": 7}}, {"top_p": 0.9, "seed": 7}),
        ("openai", {"options": {"own_knob": {"a": 1}}}, {"own_knob": {"a": 1}}),
        (
            "anthropic",
            {"max_tokens": 32000, "options": {"thinking_budget": 4096, "top_k": 5}},
            {"thinking": {"type": "enabled", "budget_tokens": 4096}, "top_k": 5},
        ),
        ("anthropic", {"options": {"top_p": 0.9}}, {"top_p": 0.9}),
        ("gemini", {"options": {"top_p": 0.9, "top_k": 5}}, {"generationConfig": {"topP": 0.9, "topK": 5}}),
        (
            "gemini",
            {"options": {"thinking_budget": 4096}},
            {"generationConfig": {"thinkingConfig": {"thinkingBudget": 4096}}},
        ),
        (
            "gemini",
            {"reasoning_effort": "low", "name": "gemini-3-pro"},
            {"generationConfig": {"thinkingConfig": {"thinkingLevel": "low"}}},
        ),
    ],
)
def test_options_arrive_in_the_protocols_own_words(protocol, settings, expected, provider, calls, select):
    model = reached(provider, protocol, **settings)
    select(model)
    _within(expected, provider.requests[0])
    scalars = {key: value for key, value in settings.get("options", {}).items() if not isinstance(value, dict)}
    assert scalars.items() <= calls[0].settings.items()


def _within(expected: dict, sent: dict) -> None:
    for key, value in expected.items():
        if isinstance(value, dict) and key != "own_knob":
            _within(value, sent[key])
        else:
            assert sent[key] == value


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"reasoning_effort": "enormous"}, "reasoning effort"),
        ({"options": {"extra_headers": {"X": "1"}}}, "needs engine=litellm"),
        ({"options": {"n": 3}}, "execution controls"),
        ({"provider": "gemni"}, "gemni/local cannot be used as configured"),
        ({"name": "gpt-5", "temperature": 0.2}, "temperature=1.0"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_sent(settings, sentence, provider, select):
    with pytest.raises(ConfigError, match=sentence) as caught:
        select(provider.model(**settings))
    assert "\n" not in str(caught.value)
    assert not provider.requests


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"engine": "auto"}, "engine=auto is not one of: lm15, litellm"),
        ({"timeout_s": 0}, "timeout_s must be positive"),
        ({"requests_per_minute": -1}, "requests_per_minute must be positive"),
        ({"usd_per_mtok_in": 1.0}, "both 0 or more, or neither"),
    ],
)
def test_settings_that_cannot_be_are_refused_when_built(settings, sentence):
    with pytest.raises(ConfigError, match=sentence):
        Model("openai/local", **settings)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("fault", ["cut", "truncate", "garble", "unfinished"])
@pytest.mark.usefixtures("hasty")
def test_half_an_answer_is_a_lost_connection_and_tried_again(fault, protocol, stream, provider, calls, select):
    """The first try fails, the second is fine: one call in the transcript."""
    if fault == "unfinished" and not stream:
        return
    provider.reply = lambda prompt: Reply(answer(prompt), fault=fault if len(provider.requests) == 1 else "")
    model = reached(provider, protocol, stream=stream, retries=1)
    assert select(model, attempts=1).rationale
    assert len(provider.requests) == 2
    assert len(calls) == 1
    provider.reply = lambda prompt: Reply(answer(prompt), fault=fault)
    with pytest.raises(StageError, match=r"lost the connection|LMServerError"):
        select(reached(provider, protocol, stream=stream), attempts=3, seed=1)
    assert len(provider.requests) == 3
    assert not calls[1].answer


@pytest.mark.parametrize("fault", ["stall", "half"])
def test_silence_meets_the_time_limit(fault, provider, select):
    provider.reply = lambda prompt: Reply(answer(prompt), fault=fault)
    started = time.monotonic()
    with pytest.raises(StageError, match=r"did not answer in time: .* longer than timeout_s"):
        select(provider.model(timeout_s=0.3, stream=True))
    assert time.monotonic() - started < 50


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_an_answer_that_drips_meets_the_deadline(stream, provider, select):
    provider.drip_s = 0.25
    provider.reply = lambda prompt: Reply(answer(prompt), fault="drip")
    with pytest.raises(StageError, match=r"no answer within 0\.4 s"):
        select(provider.model(timeout_s=5, deadline_s=0.4, stream=stream))


def test_a_rate_limit_is_waited_for_as_long_as_the_provider_says(provider, calls, select):
    times = []

    def reply(prompt):
        times.append(time.monotonic())
        return Reply("slow down", 429, headers={"Retry-After": "0.3"}) if len(times) < 3 else Reply(answer(prompt))

    provider.reply = reply
    select(provider.model(retries=3))
    assert [round(later - earlier, 1) >= 0.3 for earlier, later in pairwise(times)] == [True, True]
    assert times[-1] - times[0] < 20
    assert len(calls) == 1


def test_the_delay_in_geminis_error_is_waited_for(provider, select, monkeypatch):
    slept = []
    monkeypatch.setattr("time.sleep", slept.append)
    info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}
    error = {"code": 429, "message": "quota exceeded", "status": "RESOURCE_EXHAUSTED", "details": [info]}
    busy = Reply(status=429, body={"error": error})
    provider.reply = lambda prompt: busy if len(provider.requests) < 3 else Reply(answer(prompt))
    select(reached(provider, "gemini", retries=3))
    assert slept == [34.5, 34.5]


@pytest.mark.parametrize(
    ("protocol", "reply", "sentence"),
    [
        ("gemini", Reply("API key not valid. Please pass a valid API key.", 400), "refused the key in A_KEY"),
        (
            "gemini",
            Reply("User location is not supported for the API use.", 400, code="FAILED_PRECONDITION"),
            "is not served where this machine is",
        ),
        (
            "openai",
            Reply("Country, region, or territory not supported", 403, code="unsupported_country_region_territory"),
            "is not served where this machine is",
        ),
        ("gemini", Reply("Enable billing to use it.", 400, code="FAILED_PRECONDITION"), "wants to be paid first"),
        ("gemini", Reply("The cached content has expired.", 400, code="FAILED_PRECONDITION"), "cannot be used as conf"),
    ],
)
def test_what_the_user_can_mend_is_named(protocol, reply, sentence, provider, select, monkeypatch):
    monkeypatch.setenv("A_KEY", "sk-1")
    provider.reply = lambda prompt: reply
    with pytest.raises(ConfigError, match=sentence):
        select(reached(provider, protocol, key="A_KEY", api_key="sk-1"))


TOO_LONG = {
    "openai": Reply("maximum context length is 9 tokens", 400, code="context_length_exceeded"),
    "anthropic": Reply("prompt is too long: 99999 tokens > 9 maximum", 400),
    "gemini": Reply("The input token count (99999) exceeds the maximum number of tokens allowed (9).", 400),
}
NO_MODEL = {
    "openai": Reply("The model `gpt-5` does not exist", 404, code="model_not_found"),
    "anthropic": Reply("model: claude-sonnet-4-5", 404, code="not_found_error"),
    "gemini": Reply("models/gemini-2.5-pro is not found for API version v1beta", 404, code="NOT_FOUND"),
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_errors_in_each_protocols_shape(protocol, stream, provider, calls, select, monkeypatch):
    monkeypatch.setenv("A_KEY", "sk-1")
    model = reached(provider, protocol, stream=stream, key="A_KEY", api_key="sk-1")
    table = [
        (Reply("who are you", 401), ConfigError, "refused the key in A_KEY: .*who are you"),
        (NO_MODEL[protocol], ConfigError, "cannot be used as configured"),
        (Reply("slow down", 429), StageError, "over its rate limit after the retries: slow down"),
        (Reply("out of order", 503), StageError, "out of order"),
        (TOO_LONG[protocol], StageError, r"cannot take a prompt this long, about \d{3,} tokens"),
    ]
    for seed, (reply, kind, sentence) in enumerate(table):
        provider.reply = lambda prompt, reply=reply: reply
        with pytest.raises(kind, match=sentence):
            select(model, seed=seed)
    assert len(provider.requests) == len(calls) == len(table)


FILTERED = {
    "openai": (Reply("", finish="filter"), Reply("", refusal="I would rather not")),
    "anthropic": (Reply("", finish="filter"), Reply("I will", finish="filter")),
    "gemini": (Reply("", finish="filter"), Reply("", refusal="PROHIBITED_CONTENT")),
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_safety_filter_is_named_and_asked_again_within_the_attempts(protocol, provider, calls, select):
    for seed, reply in enumerate(FILTERED[protocol]):
        before = len(provider.requests)
        provider.reply = lambda prompt, reply=reply: reply
        with pytest.raises(StageError, match="safety filter refused") as caught:
            select(reached(provider, protocol), attempts=2, seed=seed)
        assert len(provider.requests) - before == 2
        assert (reply.refusal or "safety") in str(caught.value)
    assert all("safety filter" in call.error for call in calls)
    provider.reply = lambda prompt: reply if len(provider.requests) < 6 else Reply(answer(prompt))
    assert select(reached(provider, protocol), seed=9).rationale


def test_an_error_in_the_middle_of_a_stream_is_the_providers(provider, select):
    """As DSPy sees it: an event of its own kind, not a broken connection."""
    provider.reply = lambda prompt: (529, "overloaded")
    with pytest.raises(StageError, match="overloaded"):
        select(reached(provider, "anthropic", stream=True))


def test_eight_threads_share_a_model(provider, calls, select):
    """One client and one pool of connections; each thread has its own answer and its own record."""
    gate = threading.Barrier(8)
    model = provider.model()

    def reply(prompt):
        gate.wait(60)
        return Reply(answer(prompt))

    provider.reply = reply
    made, clients = {}, set()

    def ask(seed):
        from ksflow.protocols import override_call

        clients.add(id(model.client))
        with override_call(record=calls.append):
            made[seed] = select(model, seed=seed)

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert len(made) == len(calls) == provider.busiest == 8
    assert len(clients) == 1


def test_a_key_of_a_few_letters_is_struck_out_of_no_text(provider, monkeypatch):
    """Servers of one's own take any word as a key."""
    for key, said in (("local", "__local__"), ("sk-of-eight-or-more", "__[secret]__")):
        monkeypatch.setenv("LLM_API_KEY", key)
        provider.model(key="LLM_API_KEY", api_key=key)
        assert redact(f"__{key}__") == said
