"""Locates a C++ kernel's crash: runs it again under AddressSanitizer, on public inputs, in a compiler's sandbox.

The result is a hint for the kernel's author; the verdict does not depend on it.
"""

import re
from pathlib import Path

from ksflow.evaluation.compilers.client import SHARED_SERVER, box_request, boxed_environment
from ksflow.evaluation.compilers.cpp import LIBRARY_FLAGS, find, flags
from ksflow.kernels.source.contract import defines, thread_defines
from ksflow.kernels.source.flags import compiler_flags
from ksflow.records import Json, Kernel, Problem, Target

_LIMIT_S = 30.0
_ROOM_MB = 1024  # memory of the sanitizer
_MAIN = "ksflow_crash.cpp"
_KIND = re.compile(r"ERROR: AddressSanitizer: ([A-Za-z-]+)")
_ACCESS = re.compile(r"^(READ|WRITE) of size \d+|caused by a (READ|WRITE) memory access", re.M)
_FRAME = re.compile(r"^\s*#\d+ .*?([\w.+-]+):(\d{1,9})\b", re.M)
_NEAR = re.compile(r"located (\d+) bytes (after|before|to the right of|to the left of) (\d+)-byte region")
_SIDES = {"after": "past the end of", "to the right of": "past the end of"}


def locate_crash(problem: Problem, kernel: Kernel, target: Target, contents: Json, inputs: Path) -> str:
    """Describe line and kind of a crash; "" if it does not recur, or is unclear.

    contents: a case's layout (`pieces`, `dims`); inputs: a file with the inputs.
    """
    compiler = find()
    if compiler is None or compiler.zig:
        return ""
    sources = [_MAIN, *(name for name in kernel.files if name.endswith((".cpp", ".cc", ".c")))]
    plain = [flag for flag in flags(compiler, target.march) if flag not in LIBRARY_FLAGS]
    own = [flag for flag in compiler_flags(kernel.main, target.cores) if flag == "-fopenmp"]
    plain += [*own, *defines(problem), *thread_defines(kernel, target)]
    asked = [*plain, "-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=address"]
    command = ["/bin/sh", "-c", '"$@" -o crash && ./crash', "sh", *compiler.command, *asked, *sources]
    options: Json = {"copies": {"inputs.bin": str(inputs)}, "open_files": 1024}
    options |= {"environment": boxed_environment({"ASAN_OPTIONS": "detect_leaks=0"})}
    files = {**kernel.files, _MAIN: _program(contents)}
    memory_mb = problem.limits.memory_mb + _ROOM_MB
    answer = SHARED_SERVER.ask(box_request(command, files, Path(), _LIMIT_S, memory_mb, **options), _LIMIT_S)
    return _summary(problem, kernel, contents, str(answer["log"]))


def _program(contents: Json) -> str:
    pieces, dims = contents["pieces"], contents["dims"]
    values = [f"tensor(file, {piece['offset']}, {piece['bytes']}, {piece['out']})" for piece in pieces]
    macros = {
        "STRIDES": ", ".join(str(step) for piece in pieces for step in piece["strides"]) or "0",
        "TYPES": ", ".join(["void *"] * len(pieces) + ["int64_t"] * len(dims) + ["int64_t *"]),
        "VALUES": ", ".join([*values, *map(str, dims), "strides"]),
    }
    defined = "".join(f"#define {name} {text}\n" for name, text in macros.items())
    return defined + Path(__file__).with_name("crash.cpp").read_text(encoding="utf-8")


def _summary(problem: Problem, kernel: Kernel, contents: Json, log: str) -> str:
    """Return only a kind, a line of the kernel's and an argument's name: the kernel may have written the report."""
    kind, access, near = _KIND.search(log), _ACCESS.search(log), _NEAR.search(log)
    frames = ((name, int(line)) for name, line in _FRAME.findall(log[kind.start() :] if kind else ""))
    for name, line in frames:
        lines = kernel.files.get(name, "").splitlines()
        if kind and 0 < line <= len(lines):
            how = f" ({(access[1] or access[2]).lower()})" if access else ""
            sizes = [piece["bytes"] for piece in contents["pieces"]]
            distance = ""
            if near and sizes.count(int(near[3])) == 1:
                argument = problem.args[sizes.index(int(near[3]))].name
                distance = f" {int(near[1])} bytes {_SIDES.get(near[2], 'before')} {argument}"
            return f"{name}, line {line}: {kind[1]}{how}{distance}: {lines[line - 1].strip()[:120]}"
    return ""
