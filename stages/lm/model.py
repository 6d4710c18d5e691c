"""A model as it is configured. Building one is cheap; DSPy is imported when it is first called."""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ksflow.errors import ConfigError

if TYPE_CHECKING:
    from ksflow.stages.lm.client import Client

_SECRET = re.compile(r"(?i)api.?key|authorization|secret|password|bearer|credential|(^|_)token$")


@dataclass(frozen=True)
class Model:
    """Which model answers, and how it is reached. Keys come from the environment only."""

    model: str
    """Provider and name, as DSPy spells them: gemini/gemini-2.5-pro."""
    key: str = ""
    """The environment variable that holds the API key; empty where none is needed."""
    api_key: str | None = None
    """Always `${oc.env:VARIABLE,null}`; a key written down in a configuration is refused."""
    api_base: str | None = None
    """The server's address, where it is not the provider's own."""
    temperature: float | None = None
    """None leaves it to the provider; some reasoning models accept nothing else."""
    max_tokens: int | None = None
    """Longest answer. A kernel of 60 kB is about 25 000 tokens, thinking not counted."""
    timeout_s: float | None = 600.0
    """Longest silence on the connection. None with an `engine`, which owns its connection."""
    deadline_s: float = 1800.0
    """Longest wait for one answer, the transport's retries included."""
    retries: int = 3
    """Of the transport (rate limits, lost connections), for one answer."""
    cache: bool = True
    """Keep answers on disk, so that going on after a crash pays for nothing twice."""
    engine: Any = "lm15"
    """DSPy's engine: `lm15`, `auto`, `litellm`, or an object with `complete(Request) -> Response`.
    """
    options: Mapping[str, Any] | None = None
    """Anything else for the provider: reasoning_effort, top_p, ..."""

    def __post_init__(self) -> None:
        if self.key and not self.api_key:
            raise ConfigError(f"{self.model} needs an API key: set the environment variable {self.key}")
        if any(secret not in os.environ.values() for secret in self.secrets):
            raise ConfigError(
                f"{self.model}: a key is written in the configuration; put it into an environment "
                f"variable and write ${{oc.env:{self.key or 'MY_API_KEY'}}}"
            )

    def __repr__(self) -> str:
        return f"Model({self.model})"

    @property
    def identity(self) -> str:
        """What its answers depend on. DSPy's cache key lacks the address and the engine."""
        return f"{self.model} {self.api_base or ''} {self.engine!r}"

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must never be written anywhere."""
        key = (self.api_key,) if self.api_key else ()
        return (*key, *_secrets(self.options or {}))

    def redact(self, text: str) -> str:
        """`text` without its secrets, and as valid Unicode."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text.encode("utf-8", "replace").decode("utf-8")

    @cached_property
    def client(self) -> "Client":
        """DSPy's side of it."""
        from ksflow.stages.lm.client import connect

        return connect(self)


def _secrets(options: Mapping[str, Any]) -> Iterator[str]:
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from _secrets(value)
        elif isinstance(value, str) and value and _SECRET.search(name):
            yield value
