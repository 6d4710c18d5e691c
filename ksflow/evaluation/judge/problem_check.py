"""A problem's own checks of outputs, with a time limit."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch

from ksflow.errors import catch_foreign

_AGAIN_S = 0.5  # interval of further interrupts, for a check that catches the first one


class CheckBroke(Exception):
    """`property_check` or `upstream_check` raised or timed out; the text is one line."""


class _Overdue(BaseException):
    """Interrupts a check; a BaseException, so that the check's own `except Exception` does not catch it."""


class ProblemCheck:
    """`property_check` or `upstream_check` of a problem, with a time limit. Works in the main thread only.

    A check may raise, or never return, on outputs that its author did not foresee: NaN, an index out of range. The
    candidate is to blame if the same check accepts the reference's outputs. Not covered: a call into a C library that
    never returns; there the evaluator's timeout ends the judge.

    name: the function's name in reference.py. kernel: the problem's `ref_kernel`. seconds: limit of one call.
    """

    def __init__(self, name: str, check: Callable[..., str], kernel: Callable[..., Any], seconds: float) -> None:
        self._name, self._check, self._kernel, self._seconds = name, check, kernel, seconds
        self._proven = False

    def __call__(self, data: tuple[torch.Tensor, ...], outputs: Any) -> str:
        """Return why the check rejects the outputs, "" if it accepts them. Raises CheckBroke if it raises or times
        out on these outputs, and ValueError if it does so on the reference's outputs too."""
        if not self._proven:
            self._prove(data)
            self._proven = True
        try:
            return self._asked(data, outputs)
        except CheckBroke:
            if not data[0].is_cuda:  # after a fault the GPU's context cannot compute the reference's outputs
                self._prove(data)
            raise

    def _prove(self, data: tuple[torch.Tensor, ...]) -> None:
        """Run the check on the reference's outputs. Raises ValueError if the check raises or times out."""
        answer = self._kernel(data)
        copied = tuple(out.clone() for out in answer) if isinstance(answer, tuple | list) else answer.clone()
        try:
            self._asked(data, copied)
        except CheckBroke as error:
            raise ValueError(f"{error}, on the reference's own answer too: correct it in reference.py") from error

    def _asked(self, data: tuple[torch.Tensor, ...], outputs: Any) -> str:
        try:
            with catch_foreign() as caught, _within(self._seconds):
                return self._check(data, outputs)
        except _Overdue:
            raise CheckBroke(f"{self._name} did not end within {self._seconds:g} s") from None
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)  # the timer may fire while it is being disabled
        (error,) = caught  # the check runs on untrusted outputs and may raise anything
        first = (str(error).splitlines() or [""])[0]
        raise CheckBroke(f"{self._name} raised {type(error).__name__}: {first}"[:300]) from error


@contextmanager
def _within(seconds: float) -> Iterator[None]:
    """Raise _Overdue inside the block after `seconds`, and at its end if the block took longer."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise _Overdue

    end = time.monotonic() + seconds
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    if time.monotonic() > end:
        raise _Overdue
