"""The compiler box: source -> one shared object, found again by what it was made from.

Covered: only the judge's own flags, a scrubbed environment, a folder of its own, a session that is killed as a whole,
limits on wall and CPU time, memory and file size, a cache that concurrent runs can share. NOT covered yet: a compiler
that is made to read the user's files (`#include`, `.incbin`) reads them.
"""

import contextlib
import hashlib
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ksflow import home
from ksflow.errors import ConfigError
from ksflow.records import Kernel, Problem, Target

_FLAGS = ("-std=c++20", "-O3", "-fPIC", "-shared", "-fno-fast-math", "-w", "-Wl,-z,defs")
_SOURCES = (".cpp", ".cc", ".c")
_LOG = 4000
_FILE_KB = 256 << 10
_FIRST_ZIG_S = 600
_ERROR = re.compile(r"(?:fatal )?error: |undefined reference|undefined symbol|: error:")
_OWN_FAULT = re.compile(r":\d+:\d+: (?:fatal )?error: |undefined reference|undefined symbol")
"""The source is to blame, so that trying again is in vain."""
_LIMITED = 'ulimit -c 0; ulimit -t "$1" && ulimit -f "$2" && ulimit -v "$3" && shift 3 && exec "$@"'


@dataclass(frozen=True)
class Compiler:
    """One that was found."""

    command: tuple[str, ...]
    version: str
    flags: tuple[str, ...]

    @property
    def name(self) -> str:
        """Short, for a fingerprint."""
        number = re.search(r"\d+(\.\d+)+", self.version)
        kind = "zig" if len(self.command) > 1 else Path(self.command[0]).name
        return f"{kind}{number[0] if number else ''}"


@dataclass(frozen=True)
class Built:
    """What came of compiling: a file, or why not."""

    artefact: str = ""
    reason: str = ""
    log: str = ""
    timed_out: bool = False
    cached: bool = False


@cache
def find() -> Compiler | None:
    """The first that works: g++, clang++, c++, else zig's from PyPI."""
    limits = {"g++": ("-fmax-errors=5",), "clang++": ("-ferror-limit=5",), "c++": ()}
    for name, flags in limits.items():
        path = shutil.which(name)
        if path and (version := _version((path, "--version"))):
            return Compiler((path,), version, ("-fdiagnostics-color=never", *flags))
    zig = (sys.executable, "-m", "ziglang")
    if version := _version((*zig, "version")):
        return Compiler((*zig, "c++"), version, ("-fno-sanitize=undefined", "-ferror-limit=5"))
    return None


def compile_kernel(problem: Problem, kernel: Kernel, target: Target, environment: Mapping[str, str]) -> Built:
    """A shared object for a C++ kernel. Raises ConfigError when there is no compiler."""
    compiler = find()
    if compiler is None:
        raise ConfigError("no C++ compiler found: apt install g++, or pip install ksflow[compiler] for one from PyPI")
    defines = [f"-D{name}={_plain(value)}" for name, value in problem.defines.items()]
    flags = [*_FLAGS, *compiler.flags, f"-march={_march(compiler, target)}", *defines]
    machine = _cpu() if target.march == "native" else ""
    name = _digest(kernel.digest, *flags, *compiler.command, compiler.version, machine)
    folder = home.cache("build", name[:2])
    done, failed = folder / f"{name}.so", folder / f"{name}.log"
    if done.exists():
        return Built(str(done), cached=True)
    if failed.exists():
        return _failure(failed.read_text(), cached=True)
    folder.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="tmp-", dir=folder))
    try:
        built = _compile(compiler, flags, kernel, work, problem, environment)
        if built.artefact:
            os.replace(built.artefact, done)
            return Built(str(done))
        if _OWN_FAULT.search(built.log):
            (work / "log").write_text(built.log)
            os.replace(work / "log", failed)
        return built
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _compile(
    compiler: Compiler,
    flags: list[str],
    kernel: Kernel,
    work: Path,
    problem: Problem,
    environment: Mapping[str, str],
) -> Built:
    for name, text in kernel.files.items():
        (work / name).write_text(text)
    sources = [name for name in kernel.files if name.endswith(_SOURCES)]
    zig = compiler.name.startswith("zig")
    warm = home.cache("zig", f"warm-{_digest(*flags)}")
    limit = _FIRST_ZIG_S if zig and not warm.exists() else problem.limits.compile_s
    extra = {"ZIG_GLOBAL_CACHE_DIR": str(home.cache("zig"))} if zig else {}
    limits = [int(limit) + 5, _FILE_KB * 2, (problem.limits.memory_mb << 10) * (4 if zig else 1)]
    command = [*compiler.command, *flags, "-o", "kernel.so", *sources]
    with (work / "errors").open("wb+") as log:
        process = subprocess.Popen(
            ["/bin/sh", "-c", _LIMITED, "sh", *map(str, limits), *command],
            cwd=work,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**environment, **extra, "TMPDIR": str(work), "LC_ALL": "C"},
            start_new_session=True,
        )
        try:
            status = process.wait(limit)
        except subprocess.TimeoutExpired:
            return Built(reason=f"compile: took longer than {limit:g} s", timed_out=True)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        log.seek(0)
        text = log.read(1 << 20).decode("utf-8", "replace").replace(f"{work}/", "")
    if zig:
        warm.touch()  # its own C++ library is compiled on first use, once for each -march
    if status == 0:
        return Built(str(work / "kernel.so"))
    return _failure(_trim(text) or f"the compiler ended with status {status}")


def _failure(log: str, cached: bool = False) -> Built:
    lines = log.splitlines()
    reason = next((line for line in lines if _ERROR.search(line)), lines[0])
    return Built(reason=reason[:300], log=log, cached=cached)


def _trim(text: str) -> str:
    """From the first error on, and not too much of it."""
    lines = text.splitlines()
    first = next((index for index, line in enumerate(lines) if _ERROR.search(line)), 0)
    return "\n".join(lines[max(first - 2, 0) :])[:_LOG]


def _plain(value: object) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def _version(command: tuple[str, ...]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except OSError:
        return ""
    return done.stdout.partition("\n")[0].strip() if done.returncode == 0 else ""


def _digest(*words: str) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:32]


def _march(compiler: Compiler, target: Target) -> str:
    """zig has its own spelling."""
    return target.march.replace("-", "_") if compiler.name.startswith("zig") else target.march


@cache
def _cpu() -> str:
    """What `-march=native` means here."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")
