"""Clocks, power and temperature of a GPU, read from its driver; reports if they are unreadable.

NVIDIA's management library is called through ctypes. The kernel's amdgpu driver uses sysfs (gpu/amdgpu/thermal in its
documentation): clocks in Hz, power in microwatts, temperatures in millidegrees. Its table `gpu_metrics` counts how long
each cause of throttling held, so that a reading covers the time since the one before: versions 1.6 to 1.8 (MI300 on),
of which the driver's kgd_pp_interface.h has the layout. Other versions are not read.
"""

import contextlib
import ctypes
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ksflow.home import bytes_of, text_of

_UNREADABLE = {"state": "cannot be read here"}
_SM, _MEMORY = 1, 2
_PROCESSES, _PROCESS = 64, struct.Struct("=I4xQII")
"""Most processes asked for, and the format of each: process id, memory, two MIG instances."""
_NVIDIA_REASONS = {
    0x2: "clocks set by an application",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "temperature",
    0x40: "hardware temperature",
    0x80: "power brake",
}
_DEVICES = Path("/sys/bus/pci/devices")
_COUNTS = {(1, 6): 36, (1, 7): 44, (1, 8): 44}  # version -> offset of the five counts
_COUNT_CAUSES = ("hardware temperature", "power cap", "temperature", "regulator temperature", "memory temperature")


def nvidia_name(uuid: str) -> str:
    """Return a GPU's UUID as the driver writes it, from torch's."""
    return uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"


class Nvml:
    """One NVIDIA GPU, by its UUID as torch gives it."""

    def __init__(self, uuid: str) -> None:
        self._device = ctypes.c_void_p()
        self._library: ctypes.CDLL | None = None
        name = nvidia_name(uuid)
        with contextlib.suppress(OSError):
            library = ctypes.CDLL("libnvidia-ml.so.1")
            if not library.nvmlInit_v2() and not library.nvmlDeviceGetHandleByUUID(
                name.encode(), ctypes.byref(self._device)
            ):
                self._library = library

    def read(self) -> dict[str, Any]:
        """Return MHz, watts, degrees Celsius and causes of throttling, as far as the device reports them."""
        if self._library is None:
            return _UNREADABLE
        reasons = self._number("nvmlDeviceGetCurrentClocksThrottleReasons", ctypes.c_ulonglong())
        power_mw = self._number("nvmlDeviceGetPowerUsage", ctypes.c_uint())
        readings = {
            "sm_mhz": self._number("nvmlDeviceGetClockInfo", ctypes.c_uint(), _SM),
            "memory_mhz": self._number("nvmlDeviceGetClockInfo", ctypes.c_uint(), _MEMORY),
            "watts": None if power_mw is None else round(power_mw / 1000),
            "celsius": self._number("nvmlDeviceGetTemperature", ctypes.c_uint(), 0),
            "throttled": None if reasons is None else [word for bit, word in _NVIDIA_REASONS.items() if reasons & bit],
        }
        return {key: value for key, value in readings.items() if value is not None} or _UNREADABLE

    def card(self) -> str:
        """Return the device's file, `/dev/nvidia0`, or "" if unknown."""
        minor = None if self._library is None else self._number("nvmlDeviceGetMinorNumber", ctypes.c_uint())
        return "" if minor is None else f"/dev/nvidia{minor}"

    def processes(self) -> list[int]:
        """Return the processes with a context on this device, by the driver's process ids."""
        if self._library is None or not hasattr(self._library, "nvmlDeviceGetComputeRunningProcesses_v3"):
            return []
        rows, count = ctypes.create_string_buffer(_PROCESSES * _PROCESS.size), ctypes.c_uint(_PROCESSES)
        if self._library.nvmlDeviceGetComputeRunningProcesses_v3(self._device, ctypes.byref(count), rows):
            return []
        return [_PROCESS.unpack_from(rows, index * _PROCESS.size)[0] for index in range(count.value)]

    def _number(self, name: str, into: Any, *arguments: int) -> int | None:
        refused = getattr(self._library, name)(self._device, *arguments, ctypes.byref(into))
        return None if refused else int(into.value)


class Amdgpu:
    """One AMD GPU, by its PCI address (`0000:c1:00.0`)."""

    def __init__(self, address: str, devices: Path = _DEVICES) -> None:
        self._device = devices / address.lower()
        self._monitor = next(iter(sorted(self._device.glob("hwmon/hwmon*"))), self._device)
        self._counts = self._read_counts()

    def read(self) -> dict[str, Any]:
        """Return MHz, watts, degrees Celsius (of the hottest sensor) and causes of throttling, if reported."""
        readings = {
            "sm_mhz": self._largest(("freq1_input",), 1e6),
            "memory_mhz": self._largest(("freq2_input",), 1e6),
            "watts": self._largest(("power1_average", "power1_input"), 1e6),
            "celsius": self._largest(("temp1_input", "temp2_input", "temp3_input"), 1e3),
            "throttled": self._throttled(),
        }
        return {key: value for key, value in readings.items() if value is not None} or _UNREADABLE

    def processes(self) -> list[int]:
        """Return an empty list: the driver's files do not report processes."""
        return []

    def _largest(self, names: Sequence[str], unit: float) -> int | None:
        values = []
        for name in names:
            with contextlib.suppress(ValueError):
                values.append(round(int(text_of(self._monitor / name)) / unit))
        return max(values, default=None)

    def _throttled(self) -> list[str] | None:
        if not (counts := self._read_counts()):
            return None
        before, self._counts = self._counts or counts, counts
        return [cause for cause, old, new in zip(_COUNT_CAUSES, before, counts, strict=True) if new != old]

    def _read_counts(self) -> tuple[int, ...]:
        table = bytes_of(self._device / "gpu_metrics")
        try:
            return struct.unpack_from("<5I", table, _COUNTS[struct.unpack_from("<2xBB", table)])
        except (struct.error, KeyError):
            return ()
