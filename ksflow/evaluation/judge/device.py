"""The GPU of the judge's process: its context, events and queue, and the memory that it shares with sandboxes.

`device_sandbox` describes the timing.
"""

import contextlib
import ctypes
import faulthandler
import math
import mmap
import os
import struct
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from functools import partial

import torch

from ksflow.evaluation.judge.buffers import Buffers, BufferSizes
from ksflow.evaluation.judge.gpu_state import Amdgpu, Nvml, nvidia_name
from ksflow.evaluation.processes.device_lock import device_files, nvidia_cards, runtime_folders
from ksflow.evaluation.sandbox import linux
from ksflow.evaluation.sandbox.driver import Driver, DriverError, open_driver, torch_device
from ksflow.evaluation.sandbox.runners.device import GATE_BYTES
from ksflow.evaluation.sandbox.runners.torch_kernel import device_bytes

_LEAST_CACHE = 32 << 20
_LAST_LEVEL = {"gfx942": 256 << 20, "gfx950": 256 << 20}
"""Size of the cache behind the L2 of each die, which the driver does not report."""
_FLUSH = 2  # times the cache size that is written to flush it
_ALONE = 9  # flushes that measure their time on an idle device
_BUSY, _BUSY_US = 2.0, 200.0
"""A flush that takes this factor and these µs longer shows other work: contexts take turns of a millisecond or more."""
_SETTLED_S = 20.0  # limit of the judge's own work on the device, which takes some milliseconds on an idle one
_SPIN_S, _PAUSE_S = 0.002, 50e-6
_STUCK_S = 120.0  # limit of driver calls without a timeout, added to the limit of their step
_LOOK_S = 1.0
WORD = struct.Struct("=I")


class DeviceStuck(RuntimeError):
    """The judge's own work on the device did not end in time."""


class Device:
    """The GPU that this process judges on, the first visible one; `platform` as for `open_driver`."""

    name, uuid = "emulated GPU", "emulated"
    memory_bytes, cache_bytes = 1 << 30, 1 << 20  # of the device, and to write in order to flush its cache
    files: tuple[str, ...] = ()  # of /dev that a sandbox needs; of several NVIDIA GPUs only this one's, if known
    folders: tuple[str, ...] = ()  # further folders that AMD's runtime reads
    visible = ""  # value of CUDA_VISIBLE_DEVICES for a sandbox with this GPU's file only

    def __init__(self, platform: str) -> None:
        self.platform = platform
        self.where = torch_device(platform)
        if platform != "emulated":
            self._read_properties()
        self.driver: Driver = open_driver(platform)
        self._torch = torch.get_device_module(self.where)
        self._scratch = torch.empty(_FLUSH * self.cache_bytes // 8, dtype=torch.int64, device=self.where)
        self._small = torch.zeros(64, dtype=torch.int64, device=self.where)
        self._marks = 0
        self._page = mmap.mmap(-1, mmap.PAGESIZE)
        self._word = self.driver.map_host(ctypes.addressof(ctypes.c_char.from_buffer(self._page)), mmap.PAGESIZE)
        self._queues = 0
        # load the judge's own kernels now: loading may wait for a stream that is held
        copy(self._small, self._small.clone())
        self._small.view(torch.uint8).fill_(1)
        self.flush()
        self.touch()
        self._own = self.driver.event(), self.driver.event()
        self.settle()
        self._alone_us = min(self._flush_us() for _ in range(_ALONE))
        self.state = Amdgpu(self.driver.address()) if platform == "hip" else Nvml(self.uuid)
        """Clocks, throttling, temperature and power, if readable."""
        self.watchdog = Watchdog()

    def _read_properties(self) -> None:
        properties = torch.cuda.get_device_properties(0)
        march = str(getattr(properties, "gcnArchName", "")).partition(":")[0]
        self.name, self.memory_bytes = properties.name, properties.total_memory
        self.cache_bytes = max(int(getattr(properties, "L2_cache_size", 0)), _LAST_LEVEL.get(march, _LEAST_CACHE))
        self.uuid = str(getattr(properties, "uuid", self.name))
        self.files, self.folders = device_files(), runtime_folders()
        card, cards = Nvml(self.uuid).card() if self.platform == "cuda" else "", nvidia_cards()
        if len(cards) > 1 and card in cards:
            self.files, self.folders, self.visible = device_files(card), (), nvidia_name(self.uuid)

    def flush(self) -> None:
        self._marks += 1
        self._scratch.fill_(self._marks)

    def touch(self) -> None:
        """Run a minimal kernel: an event recorded after it has this process' context on the device."""
        self._small.add_(1)

    def hold_queue(self) -> None:
        """Hold the stream until `start_queue`, so that the host leaves no gaps between the queued parts."""
        self._queues += 1
        self.driver.wait(self._word, self._queues)

    def start_queue(self) -> None:
        WORD.pack_into(self._page, 0, self._queues)

    def settle(self, patience_s: float = _SETTLED_S) -> None:
        """Wait until all work of this process on the device is done. Raises DeviceStuck."""
        _, after = self._own
        self.driver.record(after)
        started = time.monotonic()
        while not self.driver.is_reached(after):
            waited = time.monotonic() - started
            if waited > patience_s:
                raise DeviceStuck(
                    f"the device did not do the judge's own work in {patience_s:g} s: end other processes that use "
                    "it, or reset it (nvidia-smi, rocm-smi)"
                )
            if waited > _SPIN_S:
                time.sleep(_PAUSE_S)

    def release(self) -> None:
        if self.platform != "emulated":
            self._torch.empty_cache()

    def free(self) -> int:
        """Return the free bytes of the device's memory."""
        return 0 if self.platform == "emulated" else int(self._torch.mem_get_info()[0])

    def is_quiet(self) -> bool:
        """Return whether only this process works on the device: a flush takes as long as on an idle one."""
        return self._flush_us() < self._alone_us * _BUSY + _BUSY_US

    def others(self) -> list[int]:
        """Return the other processes with a context on the device, without descendants, as far as they are visible."""
        own = {os.getpid(), *linux.descendants(os.getpid())}
        return [pid for pid in self.state.processes() if pid not in own and os.path.exists(f"/proc/{pid}")]

    def _flush_us(self) -> float:
        before, after = self._own
        self.driver.record(before)
        self.driver.submit(self.flush)
        self.settle()  # records `after`
        return self.driver.elapsed_us(before, after)

    def probe(self) -> None:
        """Raise RuntimeError if the device computes wrongly after a sandbox that ended badly."""
        with self.watchdog.step():
            self.settle()
            side = torch.arange(1024, dtype=torch.float64, device=self.where)
            total = float((side.view(32, 32) @ torch.ones(32, 32, dtype=torch.float64, device=self.where)).sum())
        if total != 32 * 1023 * 512:
            raise RuntimeError(f"the device computes wrongly after a kernel that failed: {total}")


class DeviceBuffers(Buffers):
    """Device memory for one sandbox at a time, and the page with the gate."""

    def __init__(self, device: Device, sizes: BufferSizes) -> None:
        self.device = device
        self.spoiled = False
        grain = device.driver.granularity()
        whole = [-(-size // grain) * grain for size in (sizes.inputs_bytes, sizes.outputs_bytes)]
        self.sizes = BufferSizes(*whole)
        shared = [device.driver.share_memory(size) for size in whole]
        pairs = zip((pointer for pointer, _ in shared), whole, strict=True)
        self.inputs, self.outputs = (device_bytes(*pair, device.where) for pair in pairs)
        self.shared = shared[0][1], shared[1][1]
        for (pointer, fd), size in zip(shared, whole, strict=True):
            weakref.finalize(self, _give_back, partial(device.driver.unmap_shared, pointer, size), fd)
        self._gate = _GatePage(device.driver)

    def clear(self) -> None:
        """Zero the memory, and make a new page: attributes of a file would survive clearing."""
        with self.device.watchdog.step():
            for region in (self.inputs, self.outputs):
                region.zero_()
            self.device.settle()
            self._gate.close()
            self._gate = _GatePage(self.device.driver)
        self.gate, self.word = self._gate.page, self._gate.word
        self.fds = (*self.shared, self._gate.fd)


class _GatePage:
    """The page with the words of the judge and of one sandbox, mapped for both and for the device."""

    def __init__(self, driver: Driver) -> None:
        self.fd = linux.sealed_memory("gate", GATE_BYTES)
        self.page = mmap.mmap(self.fd, GATE_BYTES)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self.page))
        self.word = driver.map_host(address, GATE_BYTES)
        self.close = weakref.finalize(self, _give_back, partial(driver.unmap_host, address), self.fd)


def _give_back(unmap: Callable[[], None], fd: int) -> None:
    with contextlib.suppress(DriverError):
        unmap()
    os.close(fd)


class Watchdog:
    """Ends this process when a step takes too long, because calls of the driver have no timeout. The process that
    asked the judge reads the reason, and starts another judge."""

    def __init__(self) -> None:
        self._end = math.inf
        threading.Thread(target=self._watch, daemon=True).start()

    @contextlib.contextmanager
    def step(self, seconds: float = 0.0) -> Iterator[None]:
        """Limit the block to `seconds`, plus the time for the driver's calls."""
        self._end = time.monotonic() + seconds + _STUCK_S
        try:
            yield
        finally:
            self._end = math.inf

    def _watch(self) -> None:
        while time.monotonic() < self._end:
            time.sleep(_LOOK_S)
        faulthandler.dump_traceback(all_threads=True)
        os.write(2, b"the device's driver does not return from a call: reset the device (nvidia-smi, rocm-smi)\n")
        os._exit(1)


def copy(source: torch.Tensor, target: torch.Tensor) -> None:
    """Copy by a kernel: a copy engine would work beside a sandbox instead of taking turns with it."""
    torch.bitwise_or(source, 0, out=target)
