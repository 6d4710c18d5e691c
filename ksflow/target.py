"""The machine: its chip, what it can do, and the settings kernels are built and judged with. Reads, changes nothing."""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from ksflow.records import Target

_INTERESTING = (
    "sse4_2",
    "avx",
    "avx2",
    "fma",
    "f16c",
    "avx_vnni",
    "avx512f",
    "avx512bw",
    "avx512vl",
    "avx512_vnni",
    "avx512_bf16",
    "avx512_fp16",
    "avx512vbmi",
    "amx_tile",
    "amx_bf16",
    "amx_int8",
    "asimd",
    "asimddp",
    "bf16",
    "i8mm",
    "sve",
    "sve2",
)
_X86_64_V3 = ("sse4_2", "avx", "avx2", "fma", "f16c")
_LIMITED = {"x86-64-v3": _X86_64_V3, "x86-64-v2": ("sse4_2",), "x86-64": ()}
"""What is left of the features when the compiler is told of a lesser chip."""
_COMPILERS = {
    "g++": ("g++", "--version"),
    "clang++": ("clang++", "--version"),
    "zig": (sys.executable, "-m", "ziglang", "version"),
    "nvcc": ("nvcc", "--version"),
    "hipcc": ("hipcc", "--version"),
}
_GPU_LISTS = (
    ("nvidia-smi", "--query-gpu=name", "--format=csv,noheader"),
    ("rocm-smi", "--showproductname", "--csv"),
)
_PATIENCE_S = 20


def detect(
    name: str = "auto",
    march: str | None = None,
    environment: Mapping[str, str] | None = None,
    kind: str = "cpu",
) -> Target:
    """This machine as a target. march: what the compiler is told, null for all this CPU has."""
    fields = _cpuinfo()
    words = (fields.get("flags") or fields.get("Features") or "").split()
    found = tuple(feature for feature in _INTERESTING if feature in words)
    allowed = _LIMITED.get(march or "native", found)
    return Target(
        name=name,
        kind=kind,
        chip=fields.get("model name") or _implementer(fields) or platform.machine(),
        features=tuple(feature for feature in found if feature in allowed),
        march=march or "native",
        environment=dict(environment or {}),
    )


def gpus() -> tuple[str, ...]:
    """The GPUs that the vendors' tools list."""
    names: list[str] = []
    for command in _GPU_LISTS:
        lines = [line.strip() for line in _output(command).splitlines() if line.strip()]
        names += lines[1:] if command[0] == "rocm-smi" else lines
    return tuple(names)


def compilers() -> dict[str, str]:
    """Compiler -> its version line."""
    found = {name: _output(command) for name, command in _COMPILERS.items()}
    return {name: _version_line(text) for name, text in found.items() if text}


def isolation() -> str:
    """The best level at which this version can hold a kernel: JUDGE's table knows better ones, not built yet."""
    return "rlimits" if hasattr(os, "pidfd_open") and Path("/proc/self").exists() else "none"


def _version_line(text: str) -> str:
    lines = text.strip().splitlines()
    return next((line for line in lines if "release" in line), lines[0]).strip()


def _cpuinfo() -> dict[str, str]:
    try:
        text = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
    except OSError:
        return {}
    pairs = (line.partition(":") for line in text.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _implementer(fields: Mapping[str, str]) -> str:
    """ARM chips have numbers instead of a name."""
    numbers = [fields[key] for key in ("CPU implementer", "CPU part") if key in fields]
    return f"{platform.machine()} {' '.join(numbers)}" if numbers else ""


def _output(command: tuple[str, ...]) -> str:
    if not shutil.which(command[0]):
        return ""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""
