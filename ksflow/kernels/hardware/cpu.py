"""This machine's processor: its name, features, and rates that no core exceeds."""

import math
import platform
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ksflow.home import text_of
from ksflow.kernels.hardware.cost_model import PRECISIONS

FEATURES = (
    *("sse4_2", "avx", "avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512bw", "avx512vl", "avx512_vnni"),
    *("avx512_bf16", "avx512_fp16", "avx512vbmi", "amx_tile", "amx_bf16", "amx_int8"),
    *("asimd", "asimddp", "bf16", "i8mm", "sve", "sve2"),
)
"""Instruction sets that matter to kernels, as targets, notes and probes call them."""
LIMITED = {"x86-64-v3": ("sse4_2", "avx", "avx2", "fma", "f16c"), "x86-64-v2": ("sse4_2",), "x86-64": ()}
"""Features left when the compiler is told a lesser chip."""
_PER_CYCLE = {
    "sse2": {"fp32": 16, "fp64": 8},
    "avx": {"fp32": 32, "fp64": 16},
    "fma": {"fp32": 48, "fp64": 24},
    "avx_vnni": {"int8": 128},
    "avx512f": {"fp32": 96, "fp64": 48},
    "avx512_vnni": {"int8": 256},
    "avx512_bf16": {"bf16": 128},
    "avx512_fp16": {"fp16": 192},
    "amx_bf16": {"bf16": 1024},
    "amx_fp16": {"fp16": 1024},
    "amx_int8": {"int8": 2048},
    "asimd": {"fp32": 32, "fp64": 16},
    "asimdhp": {"fp16": 64},
    "asimddp": {"int8": 128},
    "bf16": {"bf16": 128},
    "i8mm": {"int8": 256},
    "sve": {"fp32": 64, "fp64": 32, "fp16": 128},
    "svebf16": {"bf16": 256},
    "svei8mm": {"int8": 512},
}
"""Instruction set -> operations that no core with it exceeds in a cycle, a multiply-add counted as two: two (x86) or
four (ARM) vector units, with FMA two adders beside them, one AMX unit."""
_UNCOUNTED = ("sme", "amx_fp8", "amx_tf32")  # matrix units of unknown rate: a core with one has no peaks
_FASTEST_HZ = 6.2e9  # no core on sale clocks higher. Virtual machines report the base clock at best.
_KNOW_TURBO = ("intel_pstate", "intel_cpufreq", "amd-pstate", "amd-pstate-epp")
_CACHE_BYTES_PER_CYCLE = 192  # two loads and a store of 64 bytes, the most of a first-level cache

_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_USUAL_CACHES = (1 << 15, 1 << 18, 1 << 23)


@dataclass(frozen=True)
class Cpu:
    """A processor as the system describes it."""

    chip: str
    flags: tuple[str, ...]  # its instruction sets, as the kernel names them

    @property
    def features(self) -> tuple[str, ...]:
        """The flags that matter to kernels."""
        return tuple(feature for feature in FEATURES if feature in self.flags)


def read_cpu() -> Cpu:
    """Return this machine's processor."""
    fields = {}
    for line in text_of(Path("/proc/cpuinfo")).split("\n\n")[0].splitlines():
        key, _, value = line.partition(":")
        fields[key.strip()] = value.strip()
    flags = (fields.get("flags") or fields.get("Features") or "").split()
    # ARM chips have no model name
    numbers = [fields[key] for key in ("CPU implementer", "CPU part") if key in fields]
    return Cpu(fields.get("model name") or " ".join([platform.machine(), *numbers]), tuple(flags))


def peaks(flags: Sequence[str], cores: int = 1) -> dict[str, float]:
    """Return the peak rates of so many cores together; empty if their instruction sets are unknown."""
    counts = [row for feature, row in _PER_CYCLE.items() if feature in flags]
    if not counts or any(word in flags for word in _UNCOUNTED):
        return {}
    fastest_hz = cores * clock_hz()
    best = {kind: max(row.get(kind, 0) for row in counts) for kind in PRECISIONS}
    rates = {f"flops.{kind}": count * fastest_hz for kind, count in best.items() if count}
    return {**rates, "bytes.cache": _CACHE_BYTES_PER_CYCLE * fastest_hz}


def cache_sizes(cores: int = 1, folder: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> tuple[int, ...]:
    """Return the sizes in bytes of the data caches of so many cores, smallest first; common ones if unknown. A cache of
    a core alone counts once for each core. Hardware threads that share the first cache are one core.
    """
    caches = []
    for index in sorted(folder.glob("index[0-9]*")):
        with suppress(ValueError, KeyError, IndexError):
            size, sharing = text_of(index / "size"), text_of(index / "shared_cpu_map").replace(",", "")
            if text_of(index / "type") != "Instruction":
                caches.append((int(size[:-1]) * _UNITS[size[-1]], max(int(sharing or "1", 16).bit_count(), 1)))
    threads = min((sharing for _, sharing in caches), default=1)
    sizes = {size * math.ceil(cores * threads / sharing) for size, sharing in caches}
    return tuple(sorted(sizes)) or (*(size * cores for size in _USUAL_CACHES[:-1]), _USUAL_CACHES[-1])


def clock_hz() -> float:
    """Return the highest turbo clock, or the highest of any core on sale if unknown."""
    clocks = []
    for folder in Path("/sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq"):
        with suppress(ValueError):
            if text_of(folder / "scaling_driver") in _KNOW_TURBO:
                clocks.append(1e3 * int(text_of(folder / "cpuinfo_max_freq")))
    return max(clocks, default=_FASTEST_HZ)
