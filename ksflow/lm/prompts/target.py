"""The target as prompt text: the same for every stage and round of a run."""

import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import metadata

from ksflow.evaluation import compilers
from ksflow.evaluation.judge.machine_rates import with_measured_rates
from ksflow.kernels.hardware.cost_model import PRECISIONS, quantity
from ksflow.kernels.hardware.target import fits, label, visible_gpus
from ksflow.records import Limits, Problem, Target

_LIBRARIES = ("torch", "numpy", "triton")
_BINARY = ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB"))


def describe(target: Target | None, problem: Problem) -> str:
    """Return chip, architecture, memories and their rates, peaks by type, compilers with flags, libraries, the sandbox.

    For a GPU by its data sheet, present or not; for a CPU by measurements of a kernel's cores. Cached for the process'
    lifetime.
    """
    if target is None:
        return "(not named)"
    key = (repr(target), problem.languages, problem.limits)
    if key not in _described:
        hardware = _gpu(target) if target.kind == "gpu" else _cpu(with_measured_rates(target))
        limits = problem.limits
        sandbox = (
            "Sandbox: no network, no files but the kernel's own and the libraries', no other programs; its host code "
            f"has {_cores(target)} and {limits.memory_mb} MB. Limits in seconds: compiling {limits.compile_s:g}, "
            f"checking {limits.check_s:g}, timing {limits.time_s:g}."
        )
        _described[key] = "\n".join([*hardware, *_software(target, problem.languages), sandbox])
    return _described[key]


def describe_briefly(target: Target | None) -> str:
    """Return chip, architecture, features and sizes, for a model that does not write code."""
    if target is None:
        return "(not named)"
    sizes = ", ".join(f"{name} {size} bytes" for name, size in target.sizes.items())
    parts = [f"{label(target)}: {target.chip} ({target.kind}, {target.march})", " ".join(target.features), sizes]
    return "\n".join(filter(None, parts))


_described: dict[tuple[str, tuple[str, ...], Limits], str] = {}


def _gpu(target: Target) -> Iterator[str]:
    amd = target.march.startswith("gfx")
    units = f", {target.units} {'compute units' if amd else 'multiprocessors'}" if target.units else ""
    yield f"{target.chip} ({label(target)}): a GPU of architecture {target.march}{units}."
    sizes = target.sizes
    memory = f"{sizes['memory'] / 1e9:g} GB of memory" if "memory" in sizes else "memory"
    memory += f" at {quantity(target.peaks['bytes'], 'B/s')}" if "bytes" in target.peaks else ""
    known = [memory]
    if "cache" in sizes:
        known.append(f"last cache before it {_size(sizes['cache'])}")
    if "shared" in sizes:
        known.append(f"{'LDS' if amd else 'shared memory'} of a block at most {_size(sizes['shared'])}")
    yield f"Memories (data sheet): {', '.join(known)}." if sizes else "Its data sheet is not known."
    if peaks := _peaks(target.peaks):
        yield f"Peaks (data sheet, without sparsity; fp16 and narrower by matrix units): {peaks}."


def _cpu(target: Target) -> Iterator[str]:
    has = f"{_cores(target)} and {_cores(target, 'thread')}"
    yield f"{target.chip} ({label(target)}): a CPU, of which a kernel has {has}."
    features = ", ".join(target.features) or "none beyond the baseline"
    yield f"Instruction sets that may be used (-march={target.march}): {features}. No others of their kind."
    rates = target.measured
    caches = sorted(int(key[6:]) for key in rates if key[:6] == "bytes." and key[6:].isdigit())
    parts = [f"{_size(size)} at {quantity(rates[f'bytes.{size}'], 'B/s')}" for size in caches]
    if "bytes" in rates:
        parts.append(f"main memory at {quantity(rates['bytes'], 'B/s')}")
    if parts:
        yield f"Caches and memory (reading, measured on {_cores(target)}): {', '.join(parts)}."
    if peaks := _peaks(rates or target.peaks):
        yield f"Arithmetic of {_cores(target)} ({'measured' if rates else 'no core with these does more'}): {peaks}."


def _peaks(rates: Mapping[str, float]) -> str:
    peaks = {name: rates[f"flops.{name}"] for name in PRECISIONS if f"flops.{name}" in rates}
    return ", ".join(f"{name} {quantity(rate, 'OP/s' if name == 'int8' else 'FLOP/s')}" for name, rate in peaks.items())


def _software(target: Target, languages: Sequence[str]) -> Iterator[str]:
    here = target.kind == "cpu" or any(fits(target, gpu) for gpu in visible_gpus())
    yield f"Compilers and libraries{'' if here else ' on this machine; the one that judges may have other versions'}:"
    for language, line in compilers.command_lines(target, languages).items():
        yield f"- {language}: {line or 'not installed here'}"
    libraries = []
    for name in _LIBRARIES:
        with suppress(metadata.PackageNotFoundError):
            libraries.append(f"{name} {metadata.version(name)}")
    yield f"- python {platform.python_version()}: {', '.join(libraries) or 'no libraries'}"


def _cores(target: Target, unit: str = "core") -> str:
    return f"one {unit}" if target.cores == 1 else f"{target.cores} {unit}s"


def _size(size: int) -> str:
    unit, name = next((pair for pair in _BINARY if size >= pair[0]), (1, "B"))
    return f"{size / unit:.4g} {name}"
