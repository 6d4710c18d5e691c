"""A configured model that can be asked: who answers, how it is reached, what it may take and cost.

Building one is cheap: DSPy is imported when it is first called.
"""

import math
import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from ksflow.errors import ConfigError
from ksflow.protocols import SIGN_OF_LIFE
from ksflow.records import Scalar
from ksflow.redaction import learn, passwords

if TYPE_CHECKING:
    from ksflow.lm.client import MeteredLM

ENGINES = ("lm15", "litellm")
"""DSPy's own engines: over the wire without another package, and with litellm's many providers."""
_SECRET = re.compile(r"(?i)api.?key|authorization|secret|password|bearer|credential|(^|_)token$")
_POSITIVE = ("max_tokens", "context_tokens", "timeout_s", "deadline_s", "requests_per_minute", "tokens_per_minute")
_connecting = threading.Lock()


@dataclass(frozen=True, repr=False)
class Model:
    """A model and how it is reached. Keys come from the environment only.

    Raises ConfigError for a missing key or variable, and for an invalid setting.
    """

    name: str
    """As the provider spells it: gemini-2.5-pro."""
    provider: str = ""
    """As DSPy spells it: gemini, openai, hosted_vllm, ...; empty where the name has it in front."""
    key: str = ""
    """The environment variable that holds the API key; empty where none is needed."""
    api_key: str | None = None
    """Always `${oc.env:VARIABLE,null}`; a key written down in a configuration is refused."""
    api_base: str | None = None
    """The server's address, where it is not the provider's own."""
    requires: Mapping[str, Any] | None = None
    """Environment variable -> what came of it, for what a provider needs beside the key; null is missing."""
    temperature: float | None = None
    """None leaves it to the provider; some reasoning models accept nothing else."""
    max_tokens: int | None = None
    """Longest answer; a kernel that needs more gets it where the price list says that the model can."""
    context_tokens: int | None = None
    """What prompt and answer may have together, where that is little: prompts are then cut to it, by what matters."""
    reasoning_effort: str | None = None
    """off, minimal, low, medium, high, xhigh or max, where the model has it; None leaves it to the provider."""
    timeout_s: float | None = 600.0
    """Longest silence on the connection."""
    deadline_s: float | None = 1800.0
    """Longest time for one answer, the transport's retries included; waiting for a rate limit is not. None: any."""
    retries: int = 3
    """Of the transport (rate limits, server errors, lost connections), for one answer."""
    stream: bool = False
    """Have the answer sent as it is made, so that the silence is never long. The answer is the same."""
    requests_per_minute: int | None = None
    """The provider's rate limit, kept by all stages of a process together; None is unlimited."""
    tokens_per_minute: int | None = None
    """The provider's limit of tokens, kept in the same way."""
    usd_per_mtok_in: float | None = None
    """Dollars for a million tokens of prompt; None reads DSPy's price list."""
    usd_per_mtok_out: float | None = None
    """Dollars for a million tokens of answer; None reads DSPy's price list."""
    usd_per_mtok_cached: float | None = None
    """Dollars for a million tokens of prompt that came out of the provider's cache; None: what any of them costs, or
    the price list's."""
    cache: bool = True
    """Keep answers on disk, so that going on after a crash pays for nothing twice."""
    engine: Any = "lm15"
    """`lm15`, `litellm`, or an object with `complete(Request) -> Response`."""
    options: Mapping[str, Any] | None = None
    """Anything else for the provider: top_p, seed, thinking_budget (in tokens), ..."""

    def __post_init__(self) -> None:
        in_address = passwords(self.api_base or "")
        learn((*self.secrets, *in_address))
        if self.key and not (self.api_key or "").strip():
            raise ConfigError(f"{self.model} needs an API key: set the environment variable {self.key}")
        if missing := [name for name, value in (self.requires or {}).items() if not value]:
            raise ConfigError(f"{self.model} cannot be reached: set the environment variable {' and '.join(missing)}")
        written = [*self.secrets, *([self.api_base or ""] if in_address else [])]
        if any(secret not in os.environ.values() for secret in written):
            raise ConfigError(
                f"{self.model}: a key is written in the configuration; put it into an environment "
                f"variable and write ${{oc.env:{self.key or 'MY_API_KEY'}}}"
            )
        if isinstance(self.engine, str) and self.engine not in ENGINES:
            raise ConfigError(f"{self.model}: engine={self.engine} is not one of: {', '.join(ENGINES)}")
        for name in _POSITIVE:
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ConfigError(f"{self.model}: {name} must be positive, not {value}")
        prices = (self.usd_per_mtok_in, self.usd_per_mtok_out)
        rates = [price for price in (*prices, self.usd_per_mtok_cached) if price is not None]
        if prices.count(None) == 1 or not all(0 <= price < math.inf for price in rates):
            raise ConfigError(f"{self.model}: give usd_per_mtok_in and usd_per_mtok_out, both 0 or more, or neither")

    def __repr__(self) -> str:
        return f"Model({self.model})"

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Itself: it never changes, and whoever copies a program shares its connection."""
        return self

    @property
    def model(self) -> str:
        """Provider and name, as DSPy and the records spell them: gemini/gemini-2.5-pro."""
        return f"{self.provider}/{self.name}" if self.provider else self.name

    @property
    def identity(self) -> str:
        """What its answers depend on, beside what is in a request (temperature and max_tokens)."""
        options = sorted((self.options or {}).items())
        return f"{self.model} {self.api_base or ''} {self.engine!r} {self.reasoning_effort or ''} {options}"

    @property
    def settings(self) -> dict[str, Scalar]:
        """What the model is told beside the messages, for the records: scalars, and no secret."""
        settings = {
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
            "reasoning_effort": self.reasoning_effort,
            **(self.options or {}),
        }
        return {
            name: value
            for name, value in settings.items()
            if isinstance(value, bool | int | float | str) and value not in self.secrets
        }

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must never be written anywhere."""
        key = (self.api_key,) if self.api_key else ()
        return (*key, *_secrets(self.options or {}))

    @property
    def client(self) -> "MeteredLM":
        """DSPy's model of it, the same for all threads. ConfigError when it cannot be as configured."""
        from ksflow.lm.client import MeteredLM

        with _connecting:
            if "_client" not in self.__dict__:
                self.__dict__["_client"] = MeteredLM(self)
            client: MeteredLM = self.__dict__["_client"]
            return client

    def greet(self) -> None:
        """Ask for a sign of life: one short question past the cache, on record and metered as every other.

        StageError or ConfigError says why there is none, BudgetError that it cannot be paid. Asks nobody where no
        provider would answer (dummy, inbox, replay); a coding agent's program must be installed.
        """
        from ksflow.lm.engines import Engine

        if isinstance(self.engine, Engine):
            self.engine.check()
        if isinstance(self.engine, str):
            from ksflow.lm.refusals import Filtered

            asked = replace(self, retries=min(self.retries, 1)).client.copy(label=SIGN_OF_LIFE)
            with suppress(Filtered):  # any answer will do
                asked("Are you there? Answer with one word.", cache=False)


def _secrets(options: Mapping[str, Any]) -> Iterator[str]:
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from _secrets(value)
        elif isinstance(value, str) and value and _SECRET.search(name):
            yield value
