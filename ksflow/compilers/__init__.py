"""From a kernel for GPUs to what can be launched: compiled in boxes, with what the compilers say of it.

Covered: CUDA C++ (nvcc), HIP (ROCm's clang, another clang or zig's), Triton (ahead of time), no GPU needed. In strong
mode the artefact is a device container, in host mode a shared object; Python and Triton in host mode need none.
"""

import base64
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from ksflow import home
from ksflow.compilers import boxes, hip, nvcc, triton
from ksflow.compilers.boxes import Result
from ksflow.compilers.container import assemble, row, store
from ksflow.compilers.request import Request, Toolchain
from ksflow.compilers.triton import Triton
from ksflow.errors import ConfigError
from ksflow.records import DEVICE_LANGUAGES, Json, Kernel, Problem, Target
from ksflow.source.launches import Recipe, parse, plans

__all__ = ["Made", "build", "version", "versions"]

_MISSING = {
    "cuda": "no nvcc found: install the CUDA toolkit, or put its nvcc into PATH",
    "hip": "no compiler for AMD GPUs found: pip install ksflow[static], or install ROCm",
    "triton": "triton is not installed: pip install ksflow[static]",
}
_NO_HOST = "compile: host mode needs ROCm's hipcc, which is not here; with `launch:` lines device code alone is enough"

_UNKNOWN = re.compile(r"Unsupported gpu architecture|unsupported target: |invalid target ID|unsupported HIP gpu arch")


@dataclass(frozen=True)
class Made:
    """What came of building a kernel: what can be launched, or why not."""

    artefact: str = ""
    """Path of the device container (strong mode) or the shared object (host mode); empty where none is needed."""
    mode: str = "host"
    """`strong`: device code alone, which our launcher launches; `host`: the kernel's own host code launches."""
    reason: str = ""
    """Why it cannot be built; empty when it can."""
    log: str = ""
    timed_out: bool = False
    cached: bool = False
    resources: tuple[Json, ...] = ()
    """A row for each kernel and variant: registers, shared memory, occupancy, instructions."""


def build(problem: Problem, kernel: Kernel, target: Target, environment: Mapping[str, str]) -> Made:
    """Compile for a target, which need not be here. Raises ConfigError where the compiler is missing."""
    try:
        recipe = parse(kernel.main) if kernel.language in DEVICE_LANGUAGES else None
    except ValueError as error:
        return Made(mode="strong", reason=str(error))
    if kernel.language == "python":
        return Made()
    toolchain = _toolchain(kernel.language, target)
    if kernel.language == "triton" and recipe is None:
        return Made()
    if recipe is None:
        return _host(Request(problem, kernel, target), toolchain, environment)
    return _strong(problem, kernel, target, (recipe, toolchain), environment)


def version(language: str, target: Target) -> str:
    """The compiler for a language, for a fingerprint. Raises ConfigError where it is missing."""
    return _toolchain(language, target).version


def versions(target: Target) -> dict[str, str]:
    """Language of the target's -> its compiler in a word, for a fingerprint; empty where there is none."""
    found = {}
    for language, begins in DEVICE_LANGUAGES.items():
        if target.march.startswith(begins):
            try:
                found[language] = version(language, target).replace(" / ", "+").replace(" ", "")
            except ConfigError:
                found[language] = ""
    return found


def _toolchain(language: str, target: Target) -> Toolchain:
    begins = DEVICE_LANGUAGES.get(language)
    if begins is None or target.kind != "gpu" or not target.march.startswith(begins):
        raise ConfigError(f"{language} kernels cannot be compiled for {target.name} ({target.march})")
    found: Toolchain | None
    match language:
        case "cuda":
            found = nvcc.find()
        case "hip":
            found = hip.find()
        case _:
            found = triton.find("hip" if target.march.startswith("gfx") else "cuda")
    if found is None:
        raise ConfigError(_MISSING[language])
    return found


def _strong(
    problem: Problem,
    kernel: Kernel,
    target: Target,
    how: tuple[Recipe, Toolchain],
    environment: Mapping[str, str],
) -> Made:
    recipe, toolchain = how
    cases = {case.name: case.params for case in (*problem.tests, *problem.benchmarks)}
    try:
        variants, planned = plans(recipe, cases, [arg.name for arg in problem.args])
    except ValueError as error:
        return Made(mode="strong", reason=str(error))
    request = Request(problem, kernel, target, variants, planned)
    results = boxes.run(toolchain.jobs(request), problem.limits, environment)
    if isinstance(toolchain, Triton) and any(result.kept is None for result in results):
        _expect(toolchain.knows(target.march), target.march)
    for values, result in zip(variants, results, strict=True):
        if result.kept is None:
            return _failure(result, "strong", values, target.march)
    try:
        path, rows = assemble(request, toolchain, [result.kept for result in results if result.kept is not None])
    except (ValueError, LookupError) as error:
        return Made(mode="strong", reason=str(error))
    cached = all(result.cached for result in results)
    return Made(path, "strong", log=toolchain.note, cached=cached, resources=rows)


def _host(request: Request, toolchain: Toolchain, environment: Mapping[str, str]) -> Made:
    job = toolchain.host(request)
    if job is None:
        return Made(reason=_NO_HOST)
    (result,) = boxes.run([job], request.problem.limits, environment)
    if result.kept is None:
        return _failure(result, "host", {}, request.target.march)
    content = base64.b64decode(result.kept["code"])
    name = hashlib.sha256(content).hexdigest()[:32]
    path = home.cache("build", name[:2], f"{name}.so")
    rows = tuple(row(request, toolchain, name, facts) for name, facts in result.kept["kernels"].items())
    artefact = str(path) if path.exists() else store(content, path)
    return Made(artefact, "host", cached=result.cached, resources=rows)


def _expect(known: bool, march: str) -> None:
    if not known:
        raise ConfigError(f"target.march={march}: the compiler does not know it; a newer one may, or mend the target")


def _failure(result: Result, mode: str, values: Mapping[str, str], march: str) -> Made:
    """Which variant it is of, where that is not the source as it stands."""
    _expect(not _UNKNOWN.search(result.log), march)
    of = f" ({', '.join(f'{name}={value}' for name, value in values.items())})" if values else ""
    return Made("", mode, f"{result.reason}{of}", result.log, result.timed_out, result.cached)
