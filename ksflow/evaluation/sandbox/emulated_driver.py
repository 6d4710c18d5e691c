"""A GPU emulated by the CPU, for tests: device memory is host memory, the default stream is a thread.

The thread executes queued work in order. Device code cannot be loaded. The emulation follows the device's protocol, not
its timing: contexts do not take turns.
"""

import ctypes
import mmap
import queue
import threading
import time
import types
from functools import partial
from typing import Any

from ksflow.evaluation.sandbox import linux
from ksflow.evaluation.sandbox.driver import Driver, DriverError, Pointer, Work

_LOOK_S = 20e-6


class Emulated(Driver):
    """Uses no library: methods that are not overridden raise DriverError."""

    beside_host = False

    def __init__(self) -> None:
        self._maps: dict[Pointer, mmap.mmap] = {}
        self._fault: BaseException | None = None
        self._queue: queue.SimpleQueue[Work] = queue.SimpleQueue()
        self._stream = threading.Thread(target=self._run, daemon=True)
        self._stream.start()

    def call(self, name: str, *arguments: Any) -> None:
        raise DriverError(f"{name}: an emulated GPU cannot")

    def granularity(self) -> int:
        return mmap.PAGESIZE

    def share_memory(self, size: int) -> tuple[Pointer, int]:
        file = linux.sealed_memory("device", size)
        return self.map_shared(file, size), file

    def map_shared(self, file: int, size: int) -> Pointer:
        mapping = mmap.mmap(file, size)
        pointer = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
        self._maps[pointer] = mapping
        return pointer

    def allocate(self, size: int) -> Pointer:
        return self.map_shared(-1, size)

    def unmap_shared(self, pointer: Pointer, size: int) -> None:
        del self._maps[pointer]

    def map_host(self, address: int, size: int) -> Pointer:
        return address

    def unmap_host(self, address: int) -> None:
        """Do nothing."""

    def submit(self, call: Work) -> None:
        """Queue a call; a call from the stream itself runs at once."""
        if threading.current_thread() is self._stream:
            call()
        else:
            self._queue.put(partial(self._do, call))

    def wait(self, pointer: Pointer, value: int) -> None:
        def look() -> None:
            while ctypes.c_uint32.from_address(pointer).value < value:
                time.sleep(_LOOK_S)

        self.submit(look)

    def write(self, pointer: Pointer, value: int) -> None:
        self.submit(partial(setattr, ctypes.c_uint32.from_address(pointer), "value", value))

    def clear(self, pointer: Pointer, size: int) -> None:
        def zero() -> None:
            ctypes.memset(pointer, 0, size)

        self.submit(zero)

    def copy_out(self, pointer: Pointer, address: int, size: int) -> None:
        def move() -> None:
            ctypes.memmove(address, pointer, size)

        self.submit(move)

    def synchronize(self) -> None:
        """Wait until the stream is empty. Raises the first exception of a call, after which no queued call was
        executed."""
        done = threading.Event()
        self._queue.put(done.set)
        done.wait()
        if self._fault is not None:
            raise self._fault

    def event(self) -> Any:
        return types.SimpleNamespace(at=0.0)

    def record(self, event: Any) -> None:
        event.at = 0.0

        def note() -> None:
            event.at = time.perf_counter()

        self.submit(note)

    def is_reached(self, event: Any) -> bool:
        """Return whether the event has happened. Raises the first exception of a call."""
        if self._fault is not None:
            raise self._fault
        return bool(event.at)

    def elapsed_us(self, before: Any, after: Any) -> float:
        return float(after.at - before.at) * 1e6

    def _run(self) -> None:
        while True:
            self._queue.get()()

    def _do(self, work: Work) -> None:
        if self._fault is not None:
            return
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - as on a GPU: raised when the stream is waited for
            self._fault = error
