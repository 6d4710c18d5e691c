"""An answer while it is made, for whoever listens with `dspy.streamify`."""

import asyncio
from contextlib import suppress
from typing import Any

import anyio
import dspy

from ksflow.lm.dspy_seams import ListenerBridge


class Listener:
    """Hands an answer's events on, as DSPy's listeners take them."""

    def __init__(self, model: str, stream: Any) -> None:
        caller = dspy.settings.caller_predict
        self._bridge, self._stream = ListenerBridge(model, id(caller) if caller else None), stream
        self._loop = anyio.from_thread.run_sync(asyncio.get_running_loop)
        self.heard = False
        """Something was handed on: another try would say it again."""

    def __call__(self, event: Any) -> None:
        """From the provider's thread. An answer goes on when nobody listens any more."""
        if chunk := self._bridge.chunk(event):
            self.heard = True
            with suppress(RuntimeError, anyio.BrokenResourceError, anyio.ClosedResourceError):
                asyncio.run_coroutine_threadsafe(self._stream.send(chunk), self._loop).result()


def listener(model: str) -> Listener | None:
    """Who listens to the answer that this thread asks for; None where nobody does."""
    stream = dspy.settings.send_stream
    return None if stream is None else Listener(model, stream)
