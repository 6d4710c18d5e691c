"""A configured model that can be asked. Building one is cheap; DSPy is imported when it is first called."""

import threading
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ksflow.lm.settings import ModelSettings
from ksflow.protocols import SIGN_OF_LIFE

if TYPE_CHECKING:
    from ksflow.lm.client import MeteredLM

_connecting = threading.Lock()


@dataclass(frozen=True, repr=False)
class Model(ModelSettings):
    """Which model answers, and how it is reached. Keys come from the environment only.

    ConfigError where a key or another part is missing, or a setting cannot be.
    """

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
