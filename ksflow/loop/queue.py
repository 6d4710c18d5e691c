"""Threads for rounds and trials, and what asks a run to end.

Threads are daemons: the process can leave whenever it wants to. Each runs in a copy of its maker's context, so what
that context says of transcript and budgets holds there too.
"""

import contextvars
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from ksflow.evaluation.processes import ending

T = TypeVar("T")


class ThreadJob:
    """One function in a thread of its own. `error` is what it raised, once it is `over`; then `notify` is called."""

    def __init__(self, work: Callable[[], None], notify: Callable[["ThreadJob"], None] = lambda job: None) -> None:
        self.error: BaseException | None = None
        self.over = False
        self._work, self._notify = work, notify
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._run,), daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait until the thread has ended."""
        self._thread.join()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # handed over  # noqa: BLE001
            self.error = error
        self.over = True
        self._notify(self)


def map_parallel(do: Callable[[T], None], items: Iterable[T]) -> None:
    """Call `do` for all items at once. Waits for all of them, then raises the first error there was."""
    jobs = [ThreadJob(lambda item=item: do(item)) for item in items]  # type: ignore[misc]
    for job in jobs:
        job.join()
    for job in jobs:
        if job.error:
            raise job.error


class Interruption:
    """Ctrl-C, SIGTERM or SIGHUP: a first one sets `requested`, a second one raises KeyboardInterrupt.

    A thread announces the first. `announce` is told "interrupt" or "abandon".
    """

    def __init__(self, announce: Callable[[str], None]) -> None:
        self.requested = threading.Event()
        self._announce = announce
        self._awake = threading.Event()  # set with the first signal, or when none can come any more
        self._count = 0
        self._handled = False

    @contextmanager
    def handle_signals(self) -> Iterator[None]:
        """Meanwhile the signals come here. May be entered again within; does nothing outside the main thread."""
        if self._handled or threading.current_thread() is not threading.main_thread():
            yield
            return
        notice = ThreadJob(self._wait_and_announce)
        try:
            with ending.handle_signals(self._handle):
                self._handled = True
                yield
                self._awake.set()
                notice.join()
        except KeyboardInterrupt:
            self._announce("abandon")
            raise
        finally:
            self._handled = False
            self._awake.set()

    def _handle(self, _: int) -> None:
        """Does next to nothing: it may run in the middle of anything, such as a write to the terminal."""
        self._count += 1
        if self._count > 1:
            raise KeyboardInterrupt
        self.requested.set()
        self._awake.set()

    def _wait_and_announce(self) -> None:
        self._awake.wait()
        if self.requested.is_set():
            self._announce("interrupt")
