"""What the kernel's amdgpu driver says of a GPU's state, from sysfs. Reads only; says so where nothing is to be read.

The files and units are those of the kernel's documentation (gpu/amdgpu/thermal): clocks in Hz, power in microwatts,
temperatures in millidegrees. What holds the clocks down is in the table `gpu_metrics`, whose forms are in the driver's
kgd_pp_interface.h: 1.3 (MI200 and gaming cards) has bits, 1.6 to 1.8 (MI300 on) count how long each cause held, so
that a reading tells what happened since the one before. Other forms tell nothing, and neither does the reading.
"""

import contextlib
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_DEVICES = Path("/sys/bus/pci/devices")
_BITS = 112
"""Where form 1.3 has the bits, and what each sixteen of them are about."""
_KINDS = ("power cap", "current", "temperature", "other")
_COUNTS = {(1, 6): 36, (1, 7): 44, (1, 8): 44}
"""Form -> where the five counts begin."""
_CAUSES = ("hardware temperature", "power cap", "temperature", "regulator temperature", "memory temperature")


class Amdgpu:
    """One GPU, by its PCI address (`0000:c1:00.0`)."""

    def __init__(self, address: str, devices: Path = _DEVICES) -> None:
        self._device = devices / address.lower()
        self._monitor = next(iter(sorted(self._device.glob("hwmon/hwmon*"))), self._device)
        self._counts = self._held()[1]

    def read(self) -> dict[str, Any]:
        """MHz, watts, degrees (the hottest sensor's), and what holds the clocks down: `throttled` only where told."""
        found = {
            "sm_mhz": self._number(("freq1_input",), 1e6),
            "memory_mhz": self._number(("freq2_input",), 1e6),
            "watts": self._number(("power1_average", "power1_input"), 1e6),
            "celsius": self._number(("temp1_input", "temp2_input", "temp3_input"), 1e3),
        }
        known: dict[str, Any] = {key: value for key, value in found.items() if value is not None}
        throttled = self._throttled()
        if not known and throttled is None:
            return {"state": "cannot be read here"}
        return known if throttled is None else {**known, "throttled": throttled}

    def _number(self, names: Sequence[str], unit: float) -> int | None:
        """The largest of them; a card without a sensor lacks its file, or refuses to be read."""
        values = []
        for name in names:
            with contextlib.suppress(OSError, ValueError):
                values.append(round(int((self._monitor / name).read_text()) / unit))
        return max(values, default=None)

    def _throttled(self) -> list[str] | None:
        bits, counts = self._held()
        if counts:
            before, self._counts = self._counts or counts, counts
            return [cause for cause, old, new in zip(_CAUSES, before, counts, strict=True) if new != old]
        return None if bits is None else [kind for place, kind in enumerate(_KINDS) if bits >> 16 * place & 0xFFFF]

    def _held(self) -> tuple[int | None, tuple[int, ...]]:
        """The bits or the counts of the table, in the forms that are known."""
        try:
            table = (self._device / "gpu_metrics").read_bytes()
            form: tuple[int, int] = struct.unpack_from("<2xBB", table)
            if form == (1, 3):
                return int(struct.unpack_from("<Q", table, _BITS)[0]), ()
            return None, struct.unpack_from("<5I", table, _COUNTS[form]) if form in _COUNTS else ()
        except (OSError, struct.error):
            return None, ()
