"""The verb `llm`: which providers there are; does the configured model answer, how fast, for how much, and in the form
that stages need?
"""

import importlib

from ksflow import report
from ksflow.cli import usage
from ksflow.config import compose, keys, providers
from ksflow.errors import ConfigError, StageError
from ksflow.records import Call

_NOBODY = {
    "InboxEngine": "a person answers, so there is nothing to check",
    "Replay": "answers come from a recorded run, so there is nothing to check",
}
"""Engine -> why it is not asked."""
_REMEDIES = (
    ("over its rate limit", "wait, or keep below it with model.requests_per_minute= and model.tokens_per_minute="),
    ("cannot be reached", "start the server, or see whether model.api_base= is right"),
    ("did not answer in time", "try again later, or give it longer with model.timeout_s="),
    ("no answer within", "try again later, or give it longer with model.deadline_s="),
    ("safety filter", "another model may answer"),
)
"""Words of a reason -> what to do about it."""


def llm(words: list[str], overrides: list[str]) -> int:
    """`llm list`; `llm check llm=NAME`: 0; 1 where an answer or what is told of it is wrong; ConfigError for none."""
    usage.expect_word("llm", words, ("check", "list"))
    if len(words) > 1 or (words != ["check"] and overrides):
        raise ConfigError("the commands are: llm list, llm check llm=NAME")
    if words != ["check"]:
        report.say(report.console(), *providers.table().splitlines())
        return 0
    models = compose.models(compose.compose(overrides))
    if not models:
        valid = ", ".join(name for name in keys.options("llm") if name != "offline")
        raise ConfigError(f"no stage asks a model: add llm=NAME; valid: {valid}")
    probe_call = importlib.import_module("ksflow.lm.probe_call")  # brings DSPy
    console, code = report.console(), 0
    for model in models:
        if why := _NOBODY.get(type(model.engine).__name__):
            report.say(console, f"{model.model}: {why}")
            continue
        try:
            answer = probe_call.ask(model)
        except StageError as error:
            remedies = [remedy for words, remedy in _REMEDIES if words in error.reason]
            remedy = [*remedies, "try again later, or take another model"][0]  # a wrong key is another error
            raise ConfigError(f"{error.reason}; {remedy}") from error
        right = "right: stages can read its answers"
        wrong = f"wrong: {answer.trouble}; another model, or a larger model.max_tokens, may do better"
        report.say(console, *_description(answer.call), f"form: {wrong if answer.trouble else right}")
        report.say(console, *(f"wrong: {notice}" for notice in answer.notices))
        code = 1 if answer.trouble or answer.notices else code
    return code


def _description(call: Call) -> tuple[str, ...]:
    provider, _, name = call.model.partition("/")
    cached = f" ({call.cost.tokens_cached} cached)" if call.cost.tokens_cached else ""
    tokens = f"{call.cost.tokens_in} of prompt{cached}, {call.cost.tokens_out} of answer"
    dollars = call.cost.dollars(6) or "no dollars"
    cost = f"{dollars} ({call.price_source})" if call.price_source else "no price is known for it"
    return (
        f"provider: {provider}",
        f"model: {name}",
        f"answer: in {call.cost.wall_s:.1f} s; tokens: {tokens}",
        f"cost: {cost}",
    )
