"""What this machine can do, and what to install for more. Reads; changes nothing; prints no secret's value."""

import os
import shutil
import subprocess
from importlib import metadata

from rich.console import Console
from rich.table import Table

from ksflow import __version__
from ksflow import target as targets
from ksflow.records import Target
from ksflow.work import quantity

_KEYS = (
    "GEMINI_API_KEY",
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "OPENROUTER_API_KEY",
    "AZURE_API_KEY",
    "VERTEXAI_PROJECT",
    "AWS_ACCESS_KEY_ID",
)
_PACKAGES = ("torch", "dspy", "hydra-core", "omegaconf", "gitpython", "optuna", "numpy")
_REMEDIES = {
    "g++": "apt install g++, or pip install ksflow[compiler] for zig c++",
    "clang++": "apt install clang (optional)",
    "zig": "pip install ziglang (optional: a compiler from PyPI)",
    "nvcc": "the CUDA toolkit (optional: CUDA C++ kernels)",
    "hipcc": "ROCm (optional: HIP kernels)",
}


def show(console: Console) -> int:
    """Print the findings; 0 when the main job can run here, else 1."""
    table = Table(title=f"ksflow {__version__}", title_justify="left", show_header=False)
    compilers = targets.compilers()
    usable = bool({"g++", "clang++", "zig"} & compilers.keys())
    here = targets.detect()
    table.add_row("cpu", f"{here.chip}, {os.cpu_count()} cores: {' '.join(here.features)}")
    table.add_row("one core", _rates(here) or "peak rates unknown: no floor for times")
    table.add_row("gpus", _gpus(targets.gpus()) or "none: kernels run on the CPU (python, cpp)")
    for name, remedy in _REMEDIES.items():
        table.add_row(name, compilers.get(name, f"not found: {remedy}"))
    level, layers = targets.isolation()
    table.add_row("isolation", "\n".join([level, *(f"{layer}: {what}" for layer, what in layers.items())]))
    table.add_row("git", _git())
    for package in _PACKAGES:
        table.add_row(package, _version(package))
    present = [name for name in _KEYS if os.environ.get(name)]
    table.add_row(
        "model keys",
        ", ".join(present) or "none set: llm=offline works without; see --help for llm=",
    )
    console.print(table)
    verdict = "ready: python -m ksflow" if usable else f"no C++ compiler: {_REMEDIES['g++']}"
    console.print(verdict)
    return 0 if usable else 1


def _rates(target: Target) -> str:
    rates = (f"{quantity(rate, 'FLOP/s')} {key[6:]}" for key, rate in target.peaks.items() if key.startswith("flops."))
    return ", ".join(["at most " + next(rates, ""), *rates]) if target.peaks else ""


def _gpus(names: tuple[str, ...]) -> str:
    known = targets.options(names)
    return ", ".join(names) + (f" (known as target={', '.join(known)})" if known else "")


def _git() -> str:
    if not shutil.which("git"):
        return "not found: apt install git"
    done = subprocess.run(["git", "--version"], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed: pip install ksflow"
