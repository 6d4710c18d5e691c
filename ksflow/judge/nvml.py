"""What NVIDIA's management library says of a GPU's state. Reads only; says so where there is no such library."""

import contextlib
import ctypes
from typing import Any

_SM, _MEMORY = 1, 2
_CELSIUS = 0
_REASONS = {
    0x2: "clocks set by an application",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "temperature",
    0x40: "hardware temperature",
    0x80: "power brake",
}


class Nvml:
    """One GPU, by its UUID as torch gives it."""

    def __init__(self, uuid: str) -> None:
        self._device = ctypes.c_void_p()
        self._library: ctypes.CDLL | None = None
        name = uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"
        with contextlib.suppress(OSError):
            library = ctypes.CDLL("libnvidia-ml.so.1")
            if not library.nvmlInit_v2() and not library.nvmlDeviceGetHandleByUUID(
                name.encode(), ctypes.byref(self._device)
            ):
                self._library = library

    def read(self) -> dict[str, Any]:
        """MHz, watts, degrees, and what holds the clocks down; without what this device does not tell."""
        if self._library is None:
            return {"state": "cannot be read here"}
        reasons = self._number("nvmlDeviceGetCurrentClocksThrottleReasons", ctypes.c_ulonglong())
        power_mw = self._number("nvmlDeviceGetPowerUsage", ctypes.c_uint())
        found = {
            "sm_mhz": self._number("nvmlDeviceGetClockInfo", ctypes.c_uint(), _SM),
            "memory_mhz": self._number("nvmlDeviceGetClockInfo", ctypes.c_uint(), _MEMORY),
            "watts": None if power_mw is None else round(power_mw / 1000),
            "celsius": self._number("nvmlDeviceGetTemperature", ctypes.c_uint(), _CELSIUS),
            "throttled": None if reasons is None else [word for bit, word in _REASONS.items() if reasons & bit],
        }
        return {key: value for key, value in found.items() if value is not None} or {"state": "cannot be read here"}

    def _number(self, name: str, into: Any, *arguments: int) -> int | None:
        assert self._library is not None
        refused = getattr(self._library, name)(self._device, *arguments, ctypes.byref(into))
        return None if refused else int(into.value)
