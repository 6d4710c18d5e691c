"""A model as an optimiser talks to it: every call metered, redacted and kept as a stage's are."""

from collections.abc import Callable
from typing import Any

import dspy

from ksflow.errors import BudgetError, ConfigError, StageError
from ksflow.stages.lm.attempt import Attempt, Filtered
from ksflow.stages.lm.client import Client, ask
from ksflow.stages.lm.model import Model


class Halt(BaseException):
    """An optimisation must end: no optimiser may take it for a bad answer. `cause` says why."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class Voice(Client):
    """A model's client for calls that are no stage's question: an optimiser's reflection. They are kept too."""

    def __init__(self, model: Model, label: str, count: Callable[[], None]) -> None:
        """`label` is what the calls are recorded under, `count` is called for each. The connection is the model's."""
        self.__dict__.update(model.client.__dict__)
        self.kwargs: dict[str, Any] = dict(model.client.kwargs)
        self._model, self._label, self._count = model, label, count

    def __call__(self, prompt: str | None = None, *, messages: Any = None, **kwargs: Any) -> Any:
        """One answer. Raises Halt where the budget or the provider has none."""
        attempt = Attempt(self._label, self._model)
        attempt.sent = list(messages) if messages else [{"role": "user", "content": str(prompt)}]
        if self._model.temperature is None:
            kwargs = {name: value for name, value in kwargs.items() if name != "temperature"}
        call = super().__call__
        self._count()

        def question() -> Any:
            with dspy.context(disable_history=False):
                return call(messages=attempt.sent, **kwargs)

        try:
            return ask(attempt, question)
        except Filtered:
            raise
        except (StageError, BudgetError, ConfigError) as error:
            raise Halt(error) from error

    def copy(self, **kwargs: Any) -> "Voice":
        """The same voice with other settings; a temperature only where the model takes one."""
        if self._model.temperature is None:
            kwargs.pop("temperature", None)
        made: Voice = super().copy(**kwargs)
        return made
