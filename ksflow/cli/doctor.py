"""What this machine can do, and what to install for more. Reads; changes nothing; prints no secret's value."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from rich.table import Table
from rich.text import Text

from ksflow import __version__, report
from ksflow.config import keys, providers
from ksflow.errors import ConfigError, one_of
from ksflow.evaluation.processes import core_choice, quota
from ksflow.evaluation.processes.child_environment import child_environment
from ksflow.home import shipped_path, text_of
from ksflow.kernels.hardware import executables
from ksflow.kernels.hardware import target as targets
from ksflow.kernels.hardware.cost_model import quantity
from ksflow.kernels.languages import LANGUAGES
from ksflow.records import Target

_PACKAGES = ("torch", "triton", "dspy", "hydra-core", "omegaconf", "gitpython", "optuna", "numpy")
_KERNELS = ("torch", "triton", "numpy")
"""Of these, what the processes that judge and run kernels import."""
_LOST = f"; kernels cannot use it: they read neither PYTHONPATH nor ~/.local; install it into {sys.prefix}"
_REMEDIES = {
    "g++": "apt install g++, or pip install 'ksflow[compiler]' for zig c++",
    "clang++": "apt install clang (optional)",
    "zig": "pip install ziglang (optional: a compiler from PyPI)",
    "nvcc": "the CUDA toolkit (optional: CUDA C++ kernels)",
    "hipcc": "ROCm (optional: HIP kernels)",
}
_TOOLS = {
    "ncu": "Nsight Compute, of the CUDA toolkit (optional: counters)",
    "compute-sanitizer": "the CUDA toolkit (optional: memory faults and races)",
    "rocprofv3": "rocprofiler-sdk, of ROCm (optional: counters)",
}
_VARIANT = " (the target's figures are another variant's: target=auto takes none, so times have no floor)"
_NVIDIA = ("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader")
_PATIENCE_S = 20
_PARAMETERS = Path("/proc/driver/nvidia/params")


def doctor(words: list[str], overrides: list[str]) -> int:
    """`doctor [format=json]`: print the findings as a table or as JSON; 0 when the main job can run here, else 1."""
    options, rest = keys.own_options(overrides, "format")
    if words or rest:
        raise ConfigError("doctor takes no arguments but format=json")
    form = one_of("format", options.get("format", "table"), ("table", "json"))
    findings = dict[str, str]()
    table = Table(title=f"ksflow {__version__}", title_justify="left", show_header=False)
    compilers = executables.compilers()
    usable = bool({"g++", "clang++", "zig"} & compilers.keys())
    here = targets.detect()

    def add(name: str, text: str) -> None:
        """A row of plain words: brackets in them are no markup."""
        findings[name] = text
        table.add_row(name, Text(text))

    add("cpu", f"{here.chip}, {os.cpu_count()} cores: {' '.join(here.features)}")
    if held := quota.limits():
        add("limits", held)
    add("cores", core_choice.describe(core_choice.read(os.sched_getaffinity(0)), quota.cores()))
    add("one core", _rates(here) or "peak rates unknown: no floor for times")
    add("gpus", _gpus(targets.gpu_names()) or "none: kernels run on the CPU (python, cpp)")
    for name, remedy in _REMEDIES.items():
        add(name, compilers.get(name, f"not found: {remedy}"))
    for name, remedy in _TOOLS.items():
        add(name, executables.version(name) or f"not found: {remedy}")
    if access := counters():
        add("counters", access)
    add("compiles for", "\n".join(static(compilers)) or "no GPU: see nvcc, zig, triton")
    level, layers = isolation()
    add("isolation", "\n".join([level, *(f"{layer}: {what}" for layer, what in layers.items())]))
    add("git", executables.version("git") or "not found: apt install git")
    seen = _seen_by_kernels()
    for package in _PACKAGES:
        lost = package in _KERNELS and package not in seen and _version(package)[:1].isdigit()
        add(package, _version(package) + (_LOST if lost else ""))
    gpu = targets.default_target()
    if gpu.kind == "gpu" and (why := targets.torch_mismatch(gpu.march)):
        add("torch on the GPU", why)
    read = dict.fromkeys(name for each in providers.variables().values() for name in each)
    present = [name for name in read if os.environ.get(name)]
    add("model keys", ", ".join(present) or "none set: llm=offline works without; `ksflow llm list` names them")
    if form == "json":
        sys.stdout.write(json.dumps({"version": __version__, "ready": usable, **findings}, indent=1) + "\n")
        return 0 if usable else 1
    console = report.console()
    console.print(table)
    verdict = "ready: ksflow demo" if usable else f"no C++ compiler: {_REMEDIES['g++']}"
    console.print(verdict, markup=False)
    return 0 if usable else 1


def _rates(target: Target) -> str:
    rates = (f"{quantity(rate, 'FLOP/s')} {key[6:]}" for key, rate in target.peaks.items() if key.startswith("flops."))
    return ", ".join(["at most " + next(rates, ""), *rates]) if target.peaks else ""


def _gpus(names: tuple[str, ...]) -> str:
    known = targets.shipped_targets(names)
    rows = [row.split(", ") for row in executables.output(*_NVIDIA).splitlines()]
    details = {row[0]: f", driver {row[1]}, {row[2]}" for row in rows if len(row) == 3}
    lines = [f"{name}{details.get(name, '')}{_VARIANT if targets.is_unlisted_variant(name) else ''}" for name in names]
    return "\n".join([*lines, *([f"known as target={', '.join(known)}"] if known else [])])


def counters(parameters: Path = _PARAMETERS) -> str:
    """Whether NVIDIA's driver lets this user read counters; empty where there is no such driver."""
    if not (words := text_of(parameters)):
        return ""
    match = re.search(r"RmProfilingAdminOnly: (\d)", words)
    if match and match[1] == "1" and os.geteuid():
        return "for root only: load the driver with NVreg_RestrictProfilingToAdminUsers=0, or profile as root"
    return "allowed by the driver (a virtual machine or a container may still lack them)"


def static(compilers: Mapping[str, str]) -> list[str]:
    """The GPU targets that kernels can be compiled for, with such a GPU or without: a line for each way."""
    cuda, hip = _targets("sm_"), _targets("gfx")
    known = re.findall(r"sm_\d+", executables.output("nvcc", "--list-gpu-code")) if "nvcc" in compilers else []
    triton = _version("triton")[:1].isdigit()
    clang = next((name for name in ("hipcc", "zig") if name in compilers), "")
    ways = {
        "cuda (nvcc)": [name for name, march in cuda.items() if march.rstrip("af") in known],
        f"hip ({clang})": list(hip) if clang else [],
        "triton": [*cuda, *hip] if triton else [],
        **{name: [*cuda] for name, language in LANGUAGES.items() if language.module and language.installed},
    }
    return [f"{way}: {' '.join(names)}" for way, names in ways.items() if names]


def _targets(architecture: str) -> dict[str, str]:
    """The shipped targets whose `march` begins so, with their march."""
    files = sorted(shipped_path("conf", "target").glob("*.yaml"))
    marches = {file.stem: re.search(r"^march: (\S+)", file.read_text(encoding="utf-8"), re.MULTILINE) for file in files}
    return {name: match[1] for name, match in marches.items() if match and match[1].startswith(architecture)}


def isolation() -> tuple[str, dict[str, str]]:
    """The best level at which kernels can be held here, and what each layer is or why it is missing."""
    done = _answer([sys.executable, "-P", "-m", "ksflow.evaluation.sandbox.probe"])
    if done.returncode:
        return "none", {"sandboxes": done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]}
    answer = json.loads(done.stdout)
    return answer["level"], answer["layers"]


def _seen_by_kernels() -> list[str]:
    """Those packages that a process finds whose environment is that of the judge's."""
    ask = f"from importlib.util import find_spec; print(*[name for name in {_KERNELS} if find_spec(name)])"
    return _answer([sys.executable, "-P", "-c", ask]).stdout.decode("utf-8", "replace").split()


def _answer(command: list[str]) -> "subprocess.CompletedProcess[bytes]":
    """What a program says in the judge's environment; one that takes too long failed."""
    try:
        return subprocess.run(command, capture_output=True, timeout=_PATIENCE_S, env=child_environment({}), check=False)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, b"", f"no answer in {_PATIENCE_S:g} s".encode())


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        optional = package == "triton"
        return f"not installed: pip install {'triton (optional: Triton kernels)' if optional else 'ksflow'}"
