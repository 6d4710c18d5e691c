"""The vendors' programs: paths and versions. PATH need not contain the folders of CUDA and ROCm."""

import os
import re
import shutil
import subprocess
import sys
from contextlib import suppress

_FOLDERS = ("/usr/local/cuda/bin", "/opt/rocm/bin")
_PATIENCE_S = 20


def find(name: str) -> str:
    """Return the path of a program, or ""."""
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), *_FOLDERS])) or ""


def output(*command: str) -> str:
    """Return a program's stdout; "" if it is missing, fails or takes too long."""
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run([find(command[0]), *command[1:]], capture_output=True, timeout=_PATIENCE_S, check=True)
        return done.stdout.decode(errors="replace")
    return ""


def version(name: str) -> str:
    """Return the line of `NAME --version` with the number, or ""."""
    lines = [line.strip() for line in output(name, "--version").splitlines() if re.search(r"\d+\.\d+", line)]
    return next((line for line in lines if "ersion" in line or "release" in line), lines[0] if lines else "")


def compilers() -> dict[str, str]:
    """Return compiler -> version line, of the installed ones."""
    versions = {name: version(name) for name in ("g++", "clang++", "nvcc", "hipcc")}
    versions["zig"] = output(sys.executable, "-m", "ziglang", "version").strip()
    return {name: line for name, line in versions.items() if line}
