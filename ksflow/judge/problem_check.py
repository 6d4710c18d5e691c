"""A problem's own check of an answer, which may raise or hang on what a stranger's kernel has left."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch

from ksflow.errors import foreign

_AGAIN_S = 0.5
"""A check that catches the interruption is interrupted again."""


class CheckBroke(Exception):
    """The check raised, or did not end, on an answer; the text says what happened, in one line."""


class _Overdue(BaseException):
    """Interrupts a check. No `except Exception` of its own stops it."""


class ProblemCheck:
    """`property_check` or `upstream_check` of a problem, as the judge asks it. Use it in a process' main thread.

    On an answer that nobody foresaw (an index out of range, NaN, a permutation that is none) a check that is written
    for sane answers may raise or loop for ever. That is the answer's fault as soon as the same check has passed the
    reference's answer. Not covered: a single call into a library that does not end; there the evaluator's own patience
    with the judge is what is left.

    name: what the function is called in reference.py. kernel: the problem's `ref_kernel`. seconds: how long it may
    take.
    """

    def __init__(self, name: str, check: Callable[..., str], kernel: Callable[..., Any], seconds: float) -> None:
        self._name, self._check, self._kernel, self._seconds = name, check, kernel, seconds
        self._proven = False

    def __call__(self, data: tuple[torch.Tensor, ...], outputs: Any) -> str:
        """What the check says of an answer to `data`: "" when it passes, else why not.

        Raises CheckBroke where it raises or hangs on this answer, and ValueError where it does so on the reference's
        answer too: then the problem is at fault.
        """
        if not self._proven:
            self._prove(data)
            self._proven = True
        try:
            return self._asked(data, outputs)
        except CheckBroke:
            if not data[0].is_cuda:  # after a fault on a GPU nothing can be computed there any more, not even that
                self._prove(data)
            raise

    def _prove(self, data: tuple[torch.Tensor, ...]) -> None:
        """Have the check look at the reference's own answer. ValueError where it breaks on that."""
        answer = self._kernel(data)
        copied = tuple(out.clone() for out in answer) if isinstance(answer, tuple | list) else answer.clone()
        try:
            self._asked(data, copied)
        except CheckBroke as error:
            raise ValueError(f"{error}, on the reference's own answer too: mend it in reference.py") from error

    def _asked(self, data: tuple[torch.Tensor, ...], outputs: Any) -> str:
        try:
            with foreign() as caught, _within(self._seconds):
                return self._check(data, outputs)
        except _Overdue:
            raise CheckBroke(f"{self._name} did not end within {self._seconds:g} s") from None
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)  # also where the interruption came while it was being called off
        (error,) = caught  # a problem's code on a stranger's bytes: anything may come
        first = (str(error).splitlines() or [""])[0]
        raise CheckBroke(f"{self._name} raised {type(error).__name__}: {first}"[:300]) from error


@contextmanager
def _within(seconds: float) -> Iterator[None]:
    """Raises _Overdue in what is done meanwhile, or after it, where it takes longer."""

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
