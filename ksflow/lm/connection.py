"""The connection to a provider: one of DSPy's engines, set as the model is configured, or the model's own.

An engine has `complete(dspy.lm15.Request) -> dspy.lm15.Response`: one try, whose errors are lm15's.
"""

import importlib.util
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from dspy import lm15

from ksflow.errors import ConfigError
from ksflow.lm.dspy_seams import LiteLLMEngine, StdlibTransport
from ksflow.lm.model import Model

# Options that lm15 spells for each provider.
_SAMPLING = ("top_p", "top_k", "stop", "seed", "frequency_penalty", "presence_penalty")
_ACCOUNT = ("service_tier", "store", "user_id")
_CONNECTION = frozenset(
    {"api_key", "api_base", "base_url", "headers", "extra_headers", "timeout", "api_version", "azure_ad_token_provider"}
) | {"organization", "project", "extra_query", "custom_llm_provider"}
"""Options that litellm takes for the connection."""
_DELAY = re.compile(rb'"retryDelay"\s*:\s*"(\d+(?:\.\d+)?)s"')  # Google's RetryInfo
_PACKAGES = {"bedrock": ("litellm", "boto3"), "vertex_ai": ("litellm", "google.auth")}


@lru_cache
def resolve_model(model: str) -> tuple[str, str]:
    """Provider and name as lm15 has them: openai/NAME is openai-chat and NAME. Raises lm15's errors."""
    head, slash, name = model.partition("/")
    named = bool(slash) and ":" not in head  # lm15 takes what is before a colon for its own provider: ollama/qwen:7b
    route = lm15.LMRouter(lm15.RouterConfig(env={})).resolve_openai_chat(f"{head}/-" if named else model)
    return route.provider, name if named else route.model


def takes_marks(model: Model) -> bool:
    """Return whether the provider caches prompts up to a mark; others cache the beginning of prompts by themselves."""
    if model.engine == "litellm":
        return "claude" in model.model or model.model.startswith("anthropic/")
    return model.engine == "lm15" and resolve_model(model.model)[0] == "anthropic"


def mark(model: Model, config: Mapping[str, Any], messages: int) -> dict[str, Any]:
    """Return what requests say, with the mark after the last but one of so many messages."""
    if model.engine == "lm15":
        return {**config, "cache": lm15.CacheConfig(prefix_until_index=messages - 2)}
    places = [{"location": "message", "role": "system"}, {"location": "message", "index": -2}]
    extensions = {"cache_control_injection_points": places}  # litellm's words, for whatever provider
    return {**config, "extensions": {**config.get("extensions", {}), **extensions}}


class _Native:
    """Has lm15 ask, over the wire. The model's name is DSPy's until here."""

    def __init__(self, model: Model, config: lm15.RouterConfig) -> None:
        self._router, self._route = lm15.LMRouter(config), ":".join(resolve_model(model.model))
        self._elsewhere = bool(model.api_base) and self._route.startswith("openai-chat:")

    def complete(self, request: lm15.Request) -> lm15.Response:
        return self._router.complete(self._routed(request))

    def stream(self, request: lm15.Request) -> Any:
        return self._router.stream(self._routed(request))

    def _routed(self, request: lm15.Request) -> lm15.Request:
        config = request.config
        if self._elsewhere and config.max_tokens:  # such servers may take no notice of `max_completion_tokens`
            limit = {**(config.extensions or {}), "max_tokens": config.max_tokens}
            config = replace(config, max_tokens=None, extensions=limit)
        return replace(request, model=self._route, config=config)


class _Transport(StdlibTransport):  # type: ignore[misc]
    """Brings errors in the shape that lm15 reads, with all their words and the delay that they ask for."""

    def stream(self, request: Any) -> Any:
        answered = super().stream(request)
        if answered.status < 400:
            return answered
        with answered:
            body, headers = answered.read(), list(answered.headers)
        if delay := _DELAY.search(body):
            headers.append(("Retry-After", delay[1].decode()))
        return type(answered)(
            status=answered.status,
            reason=answered.reason,
            http_version=answered.http_version,
            headers=headers,
            chunks=iter([_in_an_envelope(body)]),
            release=lambda read: None,
        )


def _in_an_envelope(body: bytes) -> bytes:
    """Return an error's JSON as `{"error": {"message": ...}}`: vLLM's is flat, others have `detail`, Gemini a list."""
    try:
        data = json.loads(body)
    except ValueError:
        return body
    data = data[0] if isinstance(data, list) and data else data
    if isinstance(data, dict) and not data.get("error"):
        words = data.get("message") or data.get("detail") or data.get("errors") or data
        data = {"error": {"message": words if isinstance(words, str) else json.dumps(words), "type": data.get("type")}}
    return json.dumps(data).encode()


def engine_of(model: Model) -> Any:
    """What has `complete`. Connects to nothing yet. ConfigError, or an error of lm15's, when it cannot be as set."""
    if not isinstance(model.engine, str):
        return model.engine
    # Never a key from the environment for a server of the user's own.
    key = (model.api_key or "").strip() or ("none" if model.api_base else None)
    connection = {name: value for name, value in (model.options or {}).items() if name in _CONNECTION}
    if model.engine == "litellm":
        for package in _PACKAGES.get(model.model.partition("/")[0], ("litellm",)):
            top = package.partition(".")[0]
            if importlib.util.find_spec(top) is None or importlib.util.find_spec(package) is None:
                raise ConfigError(f'{model.model} needs the package {package}: pip install "ksflow[cloud]"')
        own = {"api_key": key, "api_base": model.api_base, "timeout": model.timeout_s, **connection}
        return LiteLLMEngine(**{name: value for name, value in own.items() if value is not None})
    if connection:
        raise ConfigError(f"{model.model}: the option {', '.join(connection)} needs engine=litellm")
    (provider, _), wait_s = resolve_model(model.model), model.timeout_s
    waits = {f"{what}_timeout": wait_s for what in ("read", "write", "pool")} if wait_s else {}
    config = lm15.RouterConfig(
        api_keys={provider: key} if key else None,
        base_urls={provider: model.api_base} if model.api_base else None,
        transport=_Transport(**waits),
    )
    return _Native(model, config)


def generation_of(model: Model) -> dict[str, Any]:
    """What requests say beside DSPy's settings, as fields of lm15's Config. Raises lm15's errors."""
    options = {name: value for name, value in (model.options or {}).items() if name not in _CONNECTION}
    effort = options.pop("reasoning_effort", None) or model.reasoning_effort
    budget = options.pop("thinking_budget", None)
    generation: dict[str, Any] = {name: options.pop(name) for name in (*_SAMPLING, *_ACCOUNT) if name in options}
    if budget is not None and model.engine == "litellm":
        options["thinking"] = {"type": "enabled", "budget_tokens": budget}
        budget = None
    if effort or budget is not None:
        strength = "off" if effort == "none" else effort or "medium"
        generation["reasoning"] = lm15.Reasoning(strength, thinking_budget=budget)
    if options:
        generation["extensions"] = options
    lm15.Config(**generation)
    return generation
