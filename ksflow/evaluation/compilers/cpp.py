"""C++ for CPUs by g++, clang++, c++ or zig's compiler: one shared object.

Only the judge's own flags and those that a kernel may ask for are used.
"""

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ksflow import home
from ksflow.errors import ConfigError
from ksflow.evaluation.compilers.client import (
    SHARED_SERVER,
    BuildResult,
    box_request,
    boxed_environment,
    cached_build,
    lasting_folder,
    outcome,
)
from ksflow.evaluation.processes.child_environment import child_environment
from ksflow.evaluation.sandbox import runners
from ksflow.kernels.hardware import cpu
from ksflow.kernels.hardware.executables import output
from ksflow.kernels.source.contract import defines, thread_defines
from ksflow.kernels.source.flags import compiler_flags
from ksflow.records import Json, Kernel, Limits, Problem, Target, digest

_FLAGS = ("-std=c++20", "-O3", "-fPIC", "-shared", "-fno-fast-math", "-w", "-Wl,-z,defs", "-s", "-Wl,--build-id=none")
"""The last two strip everything but code, so that the same code gives the same file."""
LIBRARY_FLAGS = frozenset({"-O3", "-shared", "-Wl,-z,defs", "-s"})
"""Flags of an optimised library; a program that locates a crash is built without them."""
_SOURCES = (".cpp", ".cc", ".c")
_PROGRAMS = ("*g++*", "*gcc*", "*c++*", "*clang*", "as", "*-as", "ld", "ld.*", "*-ld", "*lld*", "collect2")
_PARTS = ("include", "lib", "lib32", "lib64", "libexec", "*-*-*")
_ZIG_USER = 61183  # user of zig's sandboxes, which share a cache that outlives them
_TRIVIAL_S = 30.0
_MISTYPED = "target.march={}: {} does not know it; {}"
_ZIG_UNKNOWN = "available CPUs for architecture"
_FIRST_ZIG_S = 600
_OWN_FAULT = re.compile(r":\d+:\d+: (?:fatal )?error: |undefined reference|undefined symbol")
"""Matches errors of the source, for which a second attempt is useless."""


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler of this machine."""

    command: tuple[str, ...]
    version: str
    flags: tuple[str, ...]

    @property
    def zig(self) -> bool:
        """Whether it is zig's, which has other flags, a cache of its own, and is slower."""
        return len(self.command) > 1

    @property
    def name(self) -> str:
        """Short name with version, for a fingerprint."""
        number = re.search(r"\d+(\.\d+)+", self.version)
        kind = "zig" if self.zig else Path(self.command[0]).name
        return f"{kind}{number[0] if number else ''}"


@cache
def find() -> Compiler | None:
    """Return the first compiler that works: g++, clang++, c++, zig's from PyPI; None if there is none."""
    limits = {"g++": ("-fmax-errors=5",), "clang++": ("-ferror-limit=5",), "c++": ()}
    for name, flags in limits.items():
        path = shutil.which(name)
        if path and (version := output(path, "--version").partition("\n")[0].strip()):
            return Compiler((path,), version, ("-fdiagnostics-color=never", *flags))
    zig = (sys.executable, "-m", "ziglang")
    if version := output(*zig, "version").strip():
        return Compiler((*zig, "c++"), version, ("-fno-sanitize=undefined", "-ferror-limit=5"))
    return None


def require_compiler() -> Compiler:
    """Return the compiler. Raises ConfigError if there is none."""
    if compiler := find():
        return compiler
    raise ConfigError("no C++ compiler found: apt install g++, or pip install ksflow[compiler] for one from PyPI")


def flags(compiler: Compiler, march: str) -> tuple[str, ...]:
    """Return the compiler's flags for a chip."""
    return (*_FLAGS, *compiler.flags, f"-march={march.replace('-', '_') if compiler.zig else march}")


def compile_kernel(problem: Problem, kernel: Kernel, target: Target) -> BuildResult:
    """Compile a C++ kernel to a shared object. Raises ConfigError if there is no compiler."""
    compiler = require_compiler()
    march = target.march.replace("-", "_") if compiler.zig else target.march
    if not compiler.zig and (done := _asked(compiler, f"-march={march}")).returncode:
        meant = re.search(r"did you mean '([^']+)'", done.stderr)
        hint = f"did you mean {meant[1]}?" if meant else "native stands for this machine"
        raise ConfigError(_MISTYPED.format(target.march, compiler.name, hint))
    machine = " ".join(cpu.read_cpu().flags) if target.march == "native" else ""
    try:
        wanted = compiler_flags(kernel.main, target.cores)
    except ValueError as error:
        return BuildResult(reason=str(error))
    taken = [flag for flag in wanted if not _asked(compiler, f"-march={march}", flag).returncode]
    own = (*taken, *defines(problem), *thread_defines(kernel, target))
    built = _compiled(compiler, kernel, (f"-march={march}", *own), problem.limits, machine)
    if compiler.zig and _ZIG_UNKNOWN in built.log:
        raise ConfigError(_MISTYPED.format(target.march, compiler.name, "see zig targets"))
    return built


def compile_loop() -> str:
    """Compile the library that calls native kernels in a sandbox; return its path, or "" on failure: Python calls
    then."""
    text = (Path(runners.__file__).parent / "loop.cpp").read_text(encoding="utf-8")
    limits = Limits(compile_s=120, check_s=0, time_s=0, memory_mb=1024)
    with contextlib.suppress(ConfigError):
        return _compiled(require_compiler(), Kernel("cpp", {"loop.cpp": text}), (), limits).artefact
    return ""


def _compiled(
    compiler: Compiler, kernel: Kernel, more_flags: Sequence[str], limits: Limits, machine: str = ""
) -> BuildResult:
    """Compile sources to a shared object. machine: further text for the cache key."""
    flags = [*_FLAGS, *compiler.flags, *more_flags]
    sources = [name for name in kernel.files if name.endswith(_SOURCES)]
    warm = home.cache("zig", f"warm-{digest(*flags, digits=32)}")
    limit = _FIRST_ZIG_S if compiler.zig and not warm.exists() else limits.compile_s
    memory_mb = limits.memory_mb * (4 if compiler.zig else 1)

    def make(artefact: Path) -> BuildResult:
        command = [*compiler.command, *flags, "-o", artefact.name, *sources]
        options: Json = {"extra": _parts(Path(compiler.command[0]))}
        if compiler.zig:  # its cache outlives the sandbox
            folder, order = lasting_folder(_ZIG_USER, "zig", "files")
            options |= {**order, "environment": boxed_environment({"ZIG_GLOBAL_CACHE_DIR": folder})}
        request = box_request(command, dict(kernel.files), artefact, limit, memory_mb, **options)
        answer = SHARED_SERVER.ask(request, limit)
        if compiler.zig and not answer["timed_out"]:
            warm.touch()  # zig compiles its C++ library on first use, once for each -march
        return outcome(answer, str(artefact), limit, memory_mb)

    name = digest(kernel.digest, *flags, *compiler.command, compiler.version, machine, digits=32)
    return cached_build(name, "so", make, _OWN_FAULT)


def _parts(command: Path) -> list[str]:
    """Return what a compiler may read where it is installed, maybe in a home: programs, libraries and headers."""
    program = command.resolve()
    paths = [path for pattern in _PROGRAMS for path in program.parent.glob(pattern)]
    paths += [path for pattern in _PARTS for path in program.parents[1].glob(pattern)]
    return sorted({str(path) for path in (command, program, *paths) if path.exists()})


@cache
def _asked(compiler: Compiler, *flags: str) -> "subprocess.CompletedProcess[str]":
    """Compile an empty file with these flags. Raises ConfigError on a timeout."""
    command = [*compiler.command, *flags, "-fsyntax-only", "-x", "c++", os.devnull]
    extra: Any = {"capture_output": True, "encoding": "utf-8", "env": child_environment({}), "start_new_session": True}
    try:
        return subprocess.run(command, check=False, timeout=_TRIVIAL_S, **extra)
    except subprocess.TimeoutExpired as error:
        words = f"{compiler.command[0]} does not compile an empty file within {_TRIVIAL_S:g} s"
        raise ConfigError(f"{words}: repair it, or put another C++ compiler before it in PATH") from error
