"""What every runner has: it makes calls of a case, and may say that a kernel's result is none."""

from collections.abc import Callable
from typing import Any, Protocol

Call = Callable[[], None]
Json = dict[str, Any]


class WrongResult(Exception):
    """The kernel returned something that is not the result."""


class Runner(Protocol):
    """Knows how to call a kernel of one language."""

    def stage(self, case: Json, inputs: Any, outputs: Any) -> list[Call]:
        """One ready call per slot. The regions are `mmap`s, or addresses on a device."""
