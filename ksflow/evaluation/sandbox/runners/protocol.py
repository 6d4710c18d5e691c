"""The interface of runners: they make the calls of a case, and may report that a result is invalid."""

from collections.abc import Callable
from typing import Any, Protocol

Call = Callable[[], None]
Json = dict[str, Any]


class WrongResult(Exception):
    """The kernel returned a value that is not a result: wrong number, type or shape."""


class Runner(Protocol):
    """Calls kernels of one language."""

    def stage(self, case: Json, inputs: Any, outputs: Any) -> list[Call]:
        """Return one ready call per slot. The regions are `mmap`s, or addresses on a device."""
