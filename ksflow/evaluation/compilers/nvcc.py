"""CUDA C++ by nvcc: cubins for strong mode, a shared object for host mode. Looks in PATH and /usr/local/cuda."""

import importlib.util
import re
import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ksflow.evaluation.compilers import resources
from ksflow.evaluation.compilers.boxes import CompileJob, CompileRequest, Toolchain
from ksflow.kernels.hardware import executables
from ksflow.kernels.source.contract import defines
from ksflow.records import Json

_FLAGS = ("-O3", "-std=c++20", "-w", "-Xptxas", "-v")
_PTXAS = re.compile(r"^(?:ptxas)[^;\n]*?(?:; )?(?:error|fatal)\s*: *", re.MULTILINE)
_HOPPER = 90  # the first architecture with programmatic dependent launch and bulk tensor copies
_INFO = re.compile(r"^(?:ptxas[\w-]* info +:|    \d+ bytes stack frame|\s*$)")


@dataclass(frozen=True, kw_only=True)
class Nvcc(Toolchain):
    """An nvcc of this machine."""

    command: str
    disassembler: str  # cuobjdump; empty if there is none
    platform: str = "cuda"

    def jobs(self, request: CompileRequest) -> list[CompileJob]:
        march = request.target.march
        plans = request.plans.values()
        newer = [f"launch: {step.kernel}: `pdl`" for plan in plans for step in plan.launches if step.pdl]
        newer += [f"launch: {plan.launches[0].kernel}: a tensor map" for plan in plans if plan.tensor_maps]
        if newer and int(re.sub(r"\D", "", march)) < _HOPPER:
            raise ValueError(f"{newer[0]} needs sm_{_HOPPER} or later, not {march}: leave it out")
        return [self._job(request, request.files(values), ("-cubin",), "kernel.cubin") for values in request.variants]

    def host(self, request: CompileRequest) -> CompileJob:
        return self._job(request, dict(request.kernel.files), ("-shared", "-Xcompiler", "-fPIC"), "kernel.so")

    def _job(self, request: CompileRequest, files: dict[str, str], kind: tuple[str, ...], output: str) -> CompileJob:
        march = request.target.march
        sources = [request.main] if output.endswith(".cubin") else [name for name in files if name.endswith(".cu")]
        compile = [self.command, *kind, "-lineinfo", *flags(march), *defines(request.problem), "-o", output, *sources]
        look = [self.disassembler or "false", "-sass", output]
        steps = [{"command": compile, "optional": False}, {"command": look, "optional": True}]
        order = {"headers": {}, "steps": steps, "files": [output]}
        programs = filter(None, [self.command, self.disassembler])
        extra = tuple({str(Path(program).resolve().parents[1]) for program in programs})
        return CompileJob("steps_box.py", order, files, self.version, _distilled, _explained, extra)


def flags(march: str) -> tuple[str, ...]:
    """Return nvcc's flags for an architecture."""
    return (*_FLAGS, f"-gencode=arch={march.replace('sm_', 'compute_', 1)},code={march}")


def _distilled(answer: Json) -> Json:
    log, code = answer["said"]
    (file,) = answer["files"].values()
    counts = resources.sass(code)
    kernels = {
        name: {**row, **({"instructions": counts[name]} if name in counts else {})}
        for name, row in resources.ptxas(log).items()
    }
    return {"code": file, "kernels": kernels}


def _explained(log: str) -> str:
    plain = _PTXAS.sub("ptxas error: ", log)
    lines = [line for line in plain.splitlines() if not _INFO.match(line)]
    return "\n".join(dict.fromkeys(lines) if plain != log else lines)  # ptxas repeats an error for every instruction


@cache
def find() -> Nvcc | None:
    """Return nvcc, None if it does not work."""
    command = executables.find("nvcc")
    release = re.search(r"V(\d[\d.]+)", executables.output("nvcc", "--version"))
    beside = Path(command).resolve().with_name("cuobjdump")
    disassembler = str(beside) if beside.is_file() else shutil.which("cuobjdump") or bundled_disassembler()
    return Nvcc(command=command, version=f"nvcc {release[1]}", disassembler=disassembler) if release else None


def bundled_disassembler() -> str:
    """Return Triton's cuobjdump, which fits its compiler, else that of PATH; "" if there is none."""
    triton = importlib.util.find_spec("triton")
    folders = (triton.submodule_search_locations or ()) if triton else ()
    own = [path for folder in folders if (path := Path(folder, "backends/nvidia/bin/cuobjdump")).is_file()]
    return str(own[0]) if own else shutil.which("cuobjdump") or ""
