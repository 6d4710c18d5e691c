"""A model as an optimiser talks to it: what no further question can mend ends the optimisation."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ksflow.errors import BudgetError, ConfigError, StageError
from ksflow.lm.attempt import Filtered
from ksflow.lm.client import Client
from ksflow.lm.model import Model


class Halt(BaseException):
    """An optimisation must end: no optimiser may take it for a bad answer. `cause` says why."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


_lessons: ContextVar[bool] = ContextVar("lessons", default=False)


@contextmanager
def lessons() -> Iterator[None]:
    """Meanwhile, in this context, voices may be asked."""
    token = _lessons.set(True)
    try:
        yield
    finally:
        _lessons.reset(token)


class Voice(Client):
    """A model's client that raises Halt where the budget, the provider or the configuration has no answer."""

    def __init__(self, model: Model, label: str, count: Callable[[], None] = lambda: None) -> None:
        """`label` is what the calls are recorded under, `count` is called for each. The connection is the model's."""
        self.__dict__.update(model.client.copy(label=label).__dict__)
        self.count = count

    def __call__(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        """One answer. Raises Filtered where a safety filter kept it back, else Halt where there is none.

        Halt too in threads that do not inherit the context of `lessons`: neither meter nor transcript reach them.
        """
        if not _lessons.get():
            raise Halt(
                ConfigError("calls of other threads would be neither recorded nor within the budget: num_threads=1")
            )
        self.count()
        try:
            return super().__call__(prompt, messages=messages, **kwargs)
        except Filtered:
            raise
        except (StageError, BudgetError, ConfigError) as error:
            raise Halt(error) from error
