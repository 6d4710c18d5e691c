"""Threads for rounds and trials, and the queue in front of a device.

Threads are daemons: the process can leave whenever it wants to. Each runs in a copy of its maker's context, so what
that context says of transcript and budgets holds there too.
"""

import contextvars
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TypeVar

T = TypeVar("T")


class Job:
    """One function in a thread of its own. `error` is what it raised, once it is `over`; then `told` is called."""

    def __init__(self, work: Callable[[], None], told: Callable[["Job"], None] = lambda job: None) -> None:
        self.error: BaseException | None = None
        self.over = False
        self._work, self._told = work, told
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._run,), daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait for its end."""
        self._thread.join()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # handed over  # noqa: BLE001
            self.error = error
        self.over = True
        self._told(self)


def map_parallel(do: Callable[[T], None], items: Iterable[T]) -> None:
    """For all items at once. Waits for all of them, then raises the first error there was."""
    jobs = [Job(lambda item=item: do(item)) for item in items]  # type: ignore[misc]
    for job in jobs:
        job.join()
    for job in jobs:
        if job.error:
            raise job.error


class Queue:
    """Lets `places` threads through at a time, in the order in which they came.

    `busy_s`: for how long places were taken.
    """

    def __init__(self, places: int = 1) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[object] = deque()
        self._since: dict[int, float] = {}
        self.places = places
        self.busy_s = 0.0

    def __enter__(self) -> None:
        ticket = object()
        with self._changed:
            self._waiting.append(ticket)
            while self._waiting[0] is not ticket or len(self._since) >= self.places:
                self._changed.wait()
            self._waiting.popleft()
            self._since[threading.get_ident()] = time.monotonic()
            self._changed.notify_all()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self.busy_s += time.monotonic() - self._since.pop(threading.get_ident())
            self._changed.notify_all()
