"""The line to a provider: one try each time, with leave, streamed if asked for, and its errors in lm15's words.

DSPy calls it where it would call its own engine, around which it keeps its cache, its retries and its histories.
"""

import importlib.util
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from dspy.clients.backend_selection import CLIENT_KEYS
from dspy.clients.engines.base import validate_request
from dspy.clients.engines.litellm_engine import LiteLLMEngine
from dspy.clients.engines.lm15_engine import LM15Engine, timeouts_for
from dspy.lm15 import (
    Config,
    Message,
    ProviderError,
    Reasoning,
    Request,
    Response,
    RouterConfig,
    ServerError,
    StreamAssemblyError,
    TimeoutError,
    TransportError,
    materialize_response,
)

from ksflow.errors import ConfigError
from ksflow.lm.attempt import Attempt, current
from ksflow.lm.model import Model
from ksflow.lm.refusals import NEVER_CONNECTED, caused_by

# Options that lm15 spells for each provider.
_SAMPLING = ("top_p", "top_k", "stop", "seed", "frequency_penalty", "presence_penalty")
_ACCOUNT = ("service_tier", "store", "user_id")
_PACKAGES = {"bedrock": ("litellm", "boto3"), "vertex_ai": ("litellm", "google.auth")}


class Line:
    """An engine of DSPy's."""

    def __init__(self, model: Model) -> None:
        """ConfigError, or an error of lm15's, when the model cannot be as configured."""
        self._engine = _engine(model)
        self._stream = model.stream and hasattr(self._engine, "stream")
        self._settings = _generation(model)
        if isinstance(self._engine, LM15Engine):
            self._engine.resolve(model.model)
        validate_request(self._told(Request(model=model.model, messages=(Message.user("?"),))))

    def complete(self, request: Request) -> Response:
        """One try. What it raises is lm15's, except `Abandoned`."""
        attempt = current()
        if attempt is not None:
            attempt.wish()
        with _outcome(attempt):
            if self._stream:
                return materialize_response(self._engine.stream(self._told(request)), request)
            response: Response = self._engine.complete(self._told(request))
            return response

    def _told(self, request: Request) -> Request:
        return replace(request, config=replace(request.config, **self._settings)) if self._settings else request


@contextmanager
def _outcome(attempt: Attempt | None) -> Iterator[None]:
    """Notes whether the provider may charge for a try without an answer.

    A reply that breaks off or is garbled counts as a lost connection, which is tried again.
    """
    lost = False
    try:
        yield
    except (StreamAssemblyError, json.JSONDecodeError) as error:
        lost = True
        raise TransportError(f"the answer broke off: {error}") from error
    except TransportError as error:
        lost = not caused_by(error, *NEVER_CONNECTED)
        if caused_by(error, "ReadTimeout"):
            raise TimeoutError("the connection was silent for longer than timeout_s") from error
        raise
    except ProviderError as error:
        garbled = type(error) is ProviderError and error.status is not None and error.status < 400
        lost = garbled or isinstance(error, TimeoutError)
        if garbled:
            raise ServerError(error.message, status=error.status, provider=error.provider) from error
        raise
    finally:
        if attempt is not None:
            attempt.lost = lost


def _engine(model: Model) -> Any:
    if not isinstance(model.engine, str):
        return model.engine
    # Never a key from the environment for a server of the user's own.
    key = model.api_key or ("none" if model.api_base else None)
    connection = {name: value for name, value in (model.options or {}).items() if name in CLIENT_KEYS}
    if model.engine == "litellm":
        _need_packages(model)
        own = {"api_key": key, "api_base": model.api_base, "timeout": model.timeout_s, **connection}
        return LiteLLMEngine(**{name: value for name, value in own.items() if value is not None})
    if connection:
        raise ConfigError(f"{model.model}: the option {', '.join(connection)} needs engine=litellm")
    provider = LM15Engine(RouterConfig(env={})).resolve(model.model).provider
    return LM15Engine(
        RouterConfig(
            api_keys={provider: key} if key else None,
            base_urls={provider: model.api_base} if model.api_base else None,
            timeouts=timeouts_for(model.timeout_s),
        )
    )


def _need_packages(model: Model) -> None:
    for package in _PACKAGES.get(model.model.partition("/")[0], ("litellm",)):
        top = package.partition(".")[0]
        if importlib.util.find_spec(top) is None or importlib.util.find_spec(package) is None:
            raise ConfigError(f'{model.model} needs the package {package}: pip install "ksflow[cloud]"')


def _generation(model: Model) -> dict[str, Any]:
    """The fields of lm15's Config that the model's settings fill; what lm15 does not know goes as it is."""
    options = {name: value for name, value in (model.options or {}).items() if name not in CLIENT_KEYS}
    effort = options.pop("reasoning_effort", None) or model.reasoning_effort
    budget = options.pop("thinking_budget", None)
    told: dict[str, Any] = {name: options.pop(name) for name in (*_SAMPLING, *_ACCOUNT) if name in options}
    if budget is not None and model.engine == "litellm":
        options["thinking"] = {"type": "enabled", "budget_tokens": budget}
        budget = None
    if effort or budget is not None:
        told["reasoning"] = Reasoning("off" if effort == "none" else effort or "medium", thinking_budget=budget)
    if options:
        told["extensions"] = options
    Config(**told)
    return told
