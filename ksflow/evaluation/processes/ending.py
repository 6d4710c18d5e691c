"""Signals that ask a command to end: Ctrl-C, SIGTERM of a batch system, SIGHUP of a closed terminal."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

FROM_SYSTEM = (signal.SIGTERM, signal.SIGHUP)
SIGNALS = (signal.SIGINT, *FROM_SYSTEM)
_ONE_S = 1.0  # `timeout` signals its command twice, and a closed terminal signals directly and through the shell


@contextmanager
def handle_signals(asked: Callable[[int], None], signals: tuple[signal.Signals, ...] = SIGNALS) -> Iterator[None]:
    """Call `asked` with the number of these signals during the block. No effect outside the main thread.

    A signal of the system within a second of another one is dropped. `nohup` is respected.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    last = -_ONE_S

    def handle(number: int, _: FrameType | None) -> None:
        nonlocal last
        if number in FROM_SYSTEM:
            before, last = last, time.monotonic()
            if last - before < _ONE_S:
                return
        asked(number)

    wanted = [each for each in signals if each != signal.SIGHUP or signal.getsignal(each) != signal.SIG_IGN]
    before = {number: signal.signal(number, handle) for number in wanted}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
