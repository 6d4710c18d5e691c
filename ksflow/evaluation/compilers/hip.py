"""HIP for AMD GPUs, device code alone: by ROCm's clang, or the one in the package ziglang.

Without ROCm the kernel gets our own `hip/hip_runtime.h`, and no device library. The compiler's lld links the code
object; an undefined function is an error. Host mode needs ROCm's hipcc.
"""

import importlib.util
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ksflow.evaluation.compilers import resources
from ksflow.evaluation.compilers.boxes import CompileJob, CompileRequest, Toolchain
from ksflow.evaluation.compilers.emulator import DEVICE_HEADERS
from ksflow.kernels.hardware.executables import output
from ksflow.kernels.source.contract import defines
from ksflow.records import Json

_DEVICE = ("-x", "hip", "--cuda-device-only", "-O3", "-std=c++20", "-w", "-ferror-limit=5", "-fno-color-diagnostics")
_OWN = ("-nogpulib", "-nogpuinc", "-Iinclude")
_MISSING = re.compile(r"'([^']+\.(?:h|hpp))' file not found")
_UNDECLARED = re.compile(r"unknown type name '__(global|device|shared|host)__'")
_ROCM = re.compile(r"(?:hip\w*|hsa|roc\w*|amd\w*|ck|ck_tile|thrust)/|(?:hip|roc)\w*\.h")
"""Headers of ROCm, not of the kernel."""


@dataclass(frozen=True, kw_only=True)
class Hip(Toolchain):
    """A HIP compiler of this machine."""

    clang: tuple[str, ...]
    linker: tuple[str, ...]
    hipcc: str = ""  # ROCm's; empty without ROCm
    platform: str = "hip"

    def jobs(self, request: CompileRequest) -> list[CompileJob]:
        return [self._job(request, request.files(values)) for values in request.variants]

    def host(self, request: CompileRequest) -> CompileJob | None:
        """Return the job for a shared object, None without ROCm."""
        if not self.hipcc:
            return None
        sources = [name for name in request.kernel.files if name.endswith(".hip")]
        flags = ["-shared", "-fPIC", "-O3", "-std=c++20", "-w", f"--offload-arch={request.target.march}"]
        build = [self.hipcc, *flags, *defines(request.problem), "-o", "kernel.so", *sources]
        order = {"headers": {}, "steps": [{"command": build, "optional": False}], "files": ["kernel.so"]}

        def shared(answer: Json) -> Json:
            return {"code": answer["files"]["kernel.so"], "kernels": {}}

        return self._boxed(order, dict(request.kernel.files), shared)

    def _job(self, request: CompileRequest, files: dict[str, str]) -> CompileJob:
        march = request.target.march
        own = () if self.hipcc else _OWN
        bare = ["--target=amdgcn-amd-amdhsa", f"-mcpu={march}"]
        commands = [
            [*self.clang, *flags(march), *own, *defines(request.problem), "-S", "-o", "kernel.s", request.main],
            ["cat", "kernel.s"],
            [*self.clang, *bare, "-c", "-o", "kernel.o", "kernel.s"],
            [*self.linker, "-shared", "--no-undefined", "-o", "kernel.hsaco", "kernel.o"],
        ]
        steps = [{"command": command, "optional": False} for command in commands]
        own_headers = () if self.hipcc else sorted(DEVICE_HEADERS.rglob("*"))
        headers = {
            f"include/{path.relative_to(DEVICE_HEADERS).as_posix()}": path.read_text(encoding="utf-8")
            for path in own_headers
            if path.is_file()
        }
        return self._boxed({"headers": headers, "steps": steps, "files": ["kernel.hsaco"]}, files, _distilled)

    def _boxed(self, order: Json, files: dict[str, str], distil: Callable[[Json], Json]) -> CompileJob:
        root = Path(self.hipcc).parent.parent  # the path as called, which may be a link, and its target
        extra = tuple(dict.fromkeys([str(root), str(root.resolve())])) if self.hipcc else ()
        settings = {"HIP_PLATFORM": "amd"}
        return CompileJob("steps_box.py", order, files, self.version, distil, _explained, extra, settings)


def _distilled(answer: Json) -> Json:
    return {"code": answer["files"]["kernel.hsaco"], "kernels": resources.amdgcn(answer["said"][1])}


def flags(march: str) -> tuple[str, ...]:
    """Return clang's flags for an architecture."""
    return (*_DEVICE, f"--offload-arch={march}")


def _explained(log: str) -> str:
    missing = _MISSING.search(log)
    if missing and _ROCM.match(missing[1]):
        cause = f"{missing[1]} is not installed; install ROCm (hip-dev, rocwmma-dev) or avoid it"
        return f"error: {cause}\n{log}"
    if _UNDECLARED.search(log):
        return f"error: HIP is not declared: begin the kernel with #include <hip/hip_runtime.h>\n{log}"
    return log


@cache
def find() -> Hip | None:
    """Return the first compiler that works: ROCm's, zig's; None if there is none."""
    return _rocm() or _zig()


def _rocm() -> Hip | None:
    root = Path(os.environ.get("ROCM_PATH", "/opt/rocm"))
    programs = [root / "llvm/bin/clang++", root / "llvm/bin/ld.lld", root / "bin/hipcc"]
    clang, linker, hipcc = map(str, programs)
    line = output(clang, "--version").partition("\n")[0] if all(path.is_file() for path in programs) else ""
    return Hip(clang=(clang,), linker=(linker,), version=f"ROCm {line}", hipcc=hipcc) if line else None


def _zig() -> Hip | None:
    zig = (sys.executable, "-m", "ziglang")
    number = output(*zig, "version").strip()
    clang = re.search(r"clang version ([\d.]+)", output(*zig, "clang", "--version"))
    if not (number and clang):
        return None
    spec = importlib.util.find_spec("ziglang")
    folders = (spec.submodule_search_locations or ()) if spec else ()
    own = [word for folder in folders for word in ("-idirafter", str(Path(folder, "lib", "include")))]  # stddef.h
    version = f"zig {number} / clang {clang[1]}"
    return Hip(clang=(*zig, "clang", *own), linker=(*zig, "ld.lld"), version=version)
