"""Compilation of kernels in sandboxes, with the compilers' figures.

In: a kernel, its problem and a target, which need not be present. Out: a BuildResult: the artefact, or why there is
none. `cpp` compiles C++ (g++, clang++, zig's); `build` here CUDA C++ (nvcc), HIP (ROCm's clang, zig's) and Triton
(ahead of time). In strong mode the artefact is a device container, in host mode a shared object; Python and
Triton in host mode need none. `emulator` runs HIP on a CPU, `commands` a repository's own commands. The judge,
profiling and stages import it. It runs no kernel, and does not trust the output of a sandbox.
"""

import base64
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from ksflow.errors import ConfigError
from ksflow.evaluation.compilers import boxes, cpp, hip, nvcc, traced, triton
from ksflow.evaluation.compilers.boxes import CompileRequest, Toolchain
from ksflow.evaluation.compilers.client import BuildResult
from ksflow.evaluation.compilers.container import assemble, row, store
from ksflow.kernels.languages import LANGUAGES, ON_DEVICE
from ksflow.kernels.source.launches import parse, plan_cases
from ksflow.records import Kernel, Problem, Target

__all__ = ["BuildResult", "build", "source_is_wrong", "versions"]

_NO_HOST = "compile: host mode needs ROCm's hipcc, which is not installed; with `launch:` lines device code is enough"

_UNKNOWN = re.compile(
    r"Unsupported gpu architecture|unsupported target: |invalid target ID|unsupported HIP gpu arch"
    r"|is not defined for option 'gpu-name'"
)


_FLAGS: Mapping[str, Callable[[str], tuple[str, ...]]] = {"nvcc": nvcc.flags, "hip": hip.flags}
"""Compiler -> its flags for an architecture; Triton has none."""


def build(problem: Problem, kernel: Kernel, target: Target) -> BuildResult:
    """Compile for a target, which need not be present. Raises ConfigError if the compiler is missing."""
    spoken = LANGUAGES[kernel.language]
    if not spoken.compiler:
        return BuildResult()
    if spoken.compiler == "traced":
        require(kernel.language)
        return traced.build(CompileRequest(problem, kernel, target))
    try:
        launch_plan = parse(kernel.main, kernel.language) if spoken.launch_lines else None
        toolchain = _toolchain(kernel.language, target)
        if launch_plan:
            cases = {case.name: case.params for case in (*problem.tests, *problem.benchmarks)}
            variants, planned = plan_cases(launch_plan, cases, [arg.name for arg in problem.args])
            return _strong(CompileRequest(problem, kernel, target, variants, planned), toolchain)
    except (ValueError, LookupError) as error:
        return BuildResult(mode="strong", reason=str(error))
    return BuildResult() if spoken.python else _host(CompileRequest(problem, kernel, target), toolchain)


def require(language: str) -> None:
    """Raise ConfigError if the language's package, or its compiler for CPUs, is not installed."""
    if language == "cpp":
        cpp.require_compiler()
    if not LANGUAGES[language].installed:
        raise ConfigError(LANGUAGES[language].missing)


def source_is_wrong(built: BuildResult) -> bool:
    """Return whether a kernel fails to build by its own fault, not by a missing tool or a slow machine."""
    of_this_machine = built.timed_out or built.reason.startswith("compile: ")
    return bool(built.reason) and not of_this_machine and (not built.log or bool(boxes.FAULT.search(built.log)))


def versions(target: Target) -> dict[str, str]:
    """Return language of the target -> its compiler in one word, for a fingerprint; "" if there is none."""
    words = {}
    for language in ON_DEVICE:
        spoken = LANGUAGES[language]
        if spoken.installed if spoken.compiler == "traced" else spoken.fits(target.march) and not spoken.like:
            words[language] = _version(language, target).replace(" / ", "+").replace(" ", "")
    return words


def command_lines(target: Target, languages: Iterable[str]) -> dict[str, str]:
    """Return language -> compiler with version and flags, for people and models; "" if it is not here."""
    lines = dict.fromkeys((name for name in languages if LANGUAGES[name].compiler), "")
    if "cpp" in lines and (compiler := cpp.find()):
        lines["cpp"] = f"{compiler.version}: {' '.join(cpp.flags(compiler, target.march))}"
    for language in lines.keys() & {*ON_DEVICE}:
        lines[language] = _version(language, target)
        if known := _FLAGS.get(LANGUAGES[language].compiler):
            version = lines[language] or "no compiler here; where it is judged"
            lines[language] = f"{version}: {' '.join(known(target.march))}"
    return lines


def _version(language: str, target: Target) -> str:
    """Return a language's compiler with its version, "" if the compiler is not installed."""
    if LANGUAGES[language].compiler == "traced":
        return traced.version(language) if LANGUAGES[language].installed else ""
    try:
        return _toolchain(language, target).version
    except ConfigError:
        return ""


def _toolchain(language: str, target: Target) -> Toolchain:
    spoken = LANGUAGES[language]
    if target.kind != "gpu" or not spoken.fits(target.march):
        raise ConfigError(f"{language} kernels cannot be compiled for {target.name} ({target.march})")
    toolchain: Toolchain | None
    if spoken.compiler == "triton":
        toolchain = triton.find("hip" if target.march.startswith("gfx") else "cuda")
    else:
        toolchain = nvcc.find() if spoken.compiler == "nvcc" else hip.find()
    if toolchain is None:
        raise ConfigError(spoken.missing)
    return toolchain


def _strong(request: CompileRequest, toolchain: Toolchain) -> BuildResult:
    """Compile for strong mode. Raises ValueError or LookupError for an invalid launch."""
    march, results = request.target.march, boxes.run(toolchain.jobs(request), request.problem.limits)
    for values, result in zip(request.variants, results, strict=True):
        if not result.artefact:
            _check_known(result, march)
            of = f" ({', '.join(f'{name}={value}' for name, value in values.items())})" if values else ""
            return replace(result, reason=f"{result.reason}{of}", mode="strong")
    units = [json.loads(Path(result.artefact).read_text(encoding="utf-8")) for result in results]
    path, rows = assemble(request, toolchain, units)
    return BuildResult(path, cached=all(result.cached for result in results), mode="strong", resources=rows)


def _host(request: CompileRequest, toolchain: Toolchain) -> BuildResult:
    job = toolchain.host(request)
    if job is None:
        return BuildResult(reason=_NO_HOST)
    (result,) = boxes.run([job], request.problem.limits)
    if not result.artefact:
        _check_known(result, request.target.march)
        return result
    unit = json.loads(Path(result.artefact).read_text(encoding="utf-8"))
    path = store(base64.b64decode(unit["code"]), "so")
    rows = tuple(row(request, toolchain, name, facts) for name, facts in unit["kernels"].items())
    return BuildResult(path, cached=result.cached, resources=rows)


def _check_known(result: BuildResult, march: str) -> None:
    if _UNKNOWN.search(result.log):
        raise ConfigError(f"target.march={march}: the compiler does not know it; a newer one may, or correct it")
