"""What servers take, and what they say that they took, held against what was sent."""

import logging

import pytest

from ksflow.cli.llm import llm
from ksflow.errors import ConfigError, StageError
from ksflow.kernels.source.tokens import estimate
from ksflow.lm.answers import answer
from ksflow.lm.prices import price
from ksflow.lm.probe_call import ask
from ksflow.lm.prompts.brief import SLOW, STABLE, Section
from ksflow.protocols import override_call
from ksflow.stages.selector.llm import LlmSelector
from lm.server import TOKENS_IN, Reply, counts

LONG = "int filler; // so many words in a line\n" * 400


def usage(prompt: int, completion: int, total: int | None = None, **details: int) -> dict[str, object]:
    parts = {f"{name}_tokens": count for name, count in details.items()}
    of_prompt = {name: count for name, count in parts.items() if name.startswith("cached")}
    of_answer = {name: count for name, count in parts.items() if not name.startswith("cached")}
    told: dict[str, object] = {"prompt_tokens": prompt, "completion_tokens": completion}
    told |= {"total_tokens": total} if total is not None else {}
    return told | {"prompt_tokens_details": of_prompt, "completion_tokens_details": of_answer}


@pytest.mark.parametrize("prices", [{}, {"usd_per_mtok_in": 2.0, "usd_per_mtok_out": 4.0}], ids=["listed", "given"])
@pytest.mark.parametrize(
    ("told", "counted"),
    [
        (usage(1000, 500, 1500, reasoning=400), (1000, 500)),
        (usage(1000, 50, 6050, reasoning=5000), (1000, 5050)),
        (usage(1000, 50, reasoning=5000), (1000, 5050)),
        (usage(1000, 50, 6050), (1000, 5050)),
        (usage(200, 500, 1500, cached=800), (1000, 500)),
        (usage(1000, 500, 100), (1000, 500)),
        (usage(1000, 20, audio=70), (1000, 90)),
    ],
)
def test_counts_that_contradict_each_other_err_upwards(told, counted, prices, provider, calls, select):
    provider.reply = lambda prompt: Reply(answer(prompt), usage=told)
    model = provider.model(name="gpt-5", cache=False, **prices)
    select(model)
    cost, rate = calls[0].cost, price(model)
    assert (cost.tokens_in, cost.tokens_out) == counted
    read_from_cache = cost.tokens_cached * rate.usd_in - cost.usd_cached
    assert cost.usd == pytest.approx(counted[0] * rate.usd_in - read_from_cache + counted[1] * rate.usd_out)


def vllm(context: int, asked: list[int]):
    """A server whose context is this long, in vLLM's words; a token is four characters."""

    def reply(prompt: str, provider) -> Reply:
        size, most = len(prompt) // 4, provider.requests[-1].get("max_tokens") or 0
        asked.append(most)
        if size >= context:
            words = (
                f"This model's maximum context length is {context} tokens. However, your prompt has {size} input tokens"
            )
            return Reply(words, 400)
        if size + most > context:
            words = (
                f"'max_tokens' is too large: {most}. This model's maximum context length is {context} tokens and your "
            )
            return Reply(f"{words}request has {size} input tokens ({most} > {context} - {size}).", 400)
        return Reply(answer(prompt), usage=counts(prompt))

    return reply


def test_an_allowance_that_does_not_fit_is_reduced_and_not_refused_again(provider, calls, select):
    asked: list[int] = []
    serve = vllm(9000, asked)
    provider.reply = lambda prompt: serve(prompt, provider)
    model = provider.model(max_tokens=16_000, cache=False)
    for seed in range(3):
        assert select(model, seed=seed).rationale
    assert asked[0] == 16_000 > asked[1] >= 4000
    assert len(asked) == 4, "one refusal, however often is asked"
    assert [call.error for call in calls] == ["", "", ""]


@pytest.mark.parametrize(
    "words",
    [
        "max_tokens: 16000 > 8192, which is the maximum allowed number of output tokens for some-model",
        "max_tokens is too large: 16000. This model supports at most 8192 completion tokens",
        "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]",
        "`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens`",
    ],
)
def test_the_most_that_an_answer_may_have_is_learnt_from_a_refusal(words, provider, select):
    asked: list[int] = []

    def reply(prompt: str) -> Reply:
        asked.append(provider.requests[-1]["max_tokens"])
        return Reply(words, 400) if asked[-1] > 8192 else Reply(answer(prompt))

    provider.reply = reply
    model = provider.model(max_tokens=16_000, cache=False)
    for seed in range(2):
        select(model, seed=seed)
    assert asked == [16_000, 8192, 8192]


def test_an_allowance_that_is_refused_without_a_number_is_no_round_of_the_run(provider, select):
    provider.reply = lambda prompt: Reply("max_tokens is not what this server likes", 400)
    with pytest.raises(ConfigError, match=r"refuses an answer of max_tokens=16000: .*; set model\.max_tokens"):
        select(provider.model(max_tokens=16_000))
    assert len(provider.requests) == 1


@pytest.mark.parametrize("numbered", [True, False], ids=["with a number", "without"])
def test_prompts_are_cut_to_what_the_server_takes_once_it_refused_one(numbered, provider, problem, population):
    asked: list[int] = []
    serve = vllm(3000, asked)

    def reply(prompt: str) -> Reply:
        said = serve(prompt, provider)
        return said if numbered or said.status == 200 else Reply("too many", 400, code="context_length_exceeded")

    provider.reply = reply
    program = LlmSelector(provider.model(max_tokens=1000, cache=False, retries=0)).program
    inputs = dict.fromkeys(program.declared.input_fields, "x")

    def size() -> int:
        sections = [
            Section(name, SLOW if name == "population" else STABLE, "x") for name in inputs if name != "population"
        ]
        sections.append(Section("population", SLOW, lambda room: LONG[: 3 * room], 9000, priority=1))
        brief = program.brief(sections)
        return sum(map(estimate, brief.values()))

    whole = size()
    with pytest.raises(StageError, match="prompts are cut to it from now on"):
        program.lm(LONG * 2)
    assert size() < min(whole, 3000) or not numbered
    if numbered:
        with pytest.raises(ConfigError, match="take a model with a longer context, or give the server one"):
            program.lm(LONG * 2)


def test_a_prompt_that_is_cut_in_silence_is_told_once(provider, caplog):
    provider.reply = lambda prompt: Reply(answer(prompt), usage=usage(2051, 50))
    model = provider.model(name="qwen2.5-coder:32b", provider="ollama", cache=False)
    with caplog.at_level(logging.WARNING, logger="ksflow.models"), override_call(record=lambda call: None):
        for _ in range(2):
            model.client(LONG)
        model.client("short")
    (told,) = caplog.messages
    assert "its server counted 2051: it cuts prompts to its context and says nothing" in told
    assert "OLLAMA_CONTEXT_LENGTH=65536" in told
    assert "model.context_tokens=TOKENS" in told


@pytest.mark.parametrize(
    ("asked", "answered", "other"),
    [
        ("qwen2.5-coder:32b", "qwen2.5-coder:7b", True),
        ("gpt-5", "gpt-5-mini", True),
        ("claude-sonnet-4-5", "llama3", True),
        ("gpt-5", "gpt-5-2025-08-07", False),
        ("claude-3-5-sonnet-latest", "claude-3-5-sonnet-20241022", False),
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct", "/models/qwen3-coder-30b-a3b-instruct-q4_k_m.gguf", False),
        ("default", "anything", False),
        ("gpt-5", "", False),
    ],
)
def test_another_model_than_the_one_asked_is_told(asked, answered, other, provider, caplog):
    provider.reply = lambda prompt: Reply(answer(prompt), model=answered)
    with caplog.at_level(logging.WARNING, logger="ksflow.models"), override_call(record=lambda call: None):
        provider.model(name=asked, cache=False).client("who are you?")
    assert caplog.messages == (
        [f"openai/{asked} was asked, and {answered} answered by its server's word: see model.name and model.api_base"]
        if other
        else []
    )


def test_a_check_sends_enough_for_a_cut_to_show(provider, caplog):
    model = provider.model()
    sound = ask(model)
    assert (sound.trouble, sound.notices) == ("", ())
    assert sound.call.cost.tokens_in > 4096
    provider.reply = lambda prompt: Reply(answer(prompt), usage=usage(2051, 50), model="another")
    cut, other = ask(provider.model(name="second")).notices
    assert "its server counted 2051" in cut
    assert "another answered" in other
    assert not caplog.messages
    assert TOKENS_IN < 2051


@pytest.mark.parametrize(
    ("reply", "remedy"),
    [
        (
            Reply("slow down", 429, headers={"Retry-After": "0"}),
            "wait, or keep below it with model.requests_per_minute=",
        ),
        (Reply("out of order", 500), "try again later, or take another model"),
        (Reply("not you", 401), "refused the key in the configuration: not you"),
    ],
)
def test_a_check_that_fails_says_what_helps(reply, remedy, provider):
    provider.reply = lambda prompt: reply
    with pytest.raises(ConfigError) as caught:
        llm(["check"], ["llm=openai_compatible", f"model.api_base={provider.url}", "model.retries=0"])
    assert remedy in str(caught.value)
    assert "which keys are set" not in str(caught.value)


def test_a_check_of_a_server_that_cuts_prompts_ends_with_1(provider, capsys):
    provider.reply = lambda prompt: Reply(answer(prompt), usage=usage(2051, 50))
    assert llm(["check"], ["llm=openai_compatible", f"model.api_base={provider.url}"]) == 1
    assert "wrong: openai/default was sent a prompt of about" in capsys.readouterr().out
