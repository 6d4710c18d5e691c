"""HIP sources for the emulator: finds what it lacks, and rewrites what differs in C++."""

import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from ksflow.kernels.source.launches import with_constants
from ksflow.records import Kernel

DEVICE_HEADERS = Path(__file__).parent / "device"  # include path for compiling HIP without ROCm

_HOST_HEADERS = Path(__file__).parent / "host"
_RUNTIME = "hip/hip_runtime.h"
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:<([^>\n]+)>|"([^"\n]+)").*$', re.MULTILINE)
_FOREIGN = re.compile(r"hip|roc|amd|ck/|__clang")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_BUILTIN = re.compile(r"\b__builtin_amdgcn_\w+")
_ASSEMBLY = re.compile(r"\b(?:__)?asm(?:__)?\b")
_WAIT = re.compile(
    r"""\b(?:__)?asm(?:__)?\s+(?:__)?volatile(?:__)?\s*\(\s*
        "(?:s_waitcnt|s_nop|s_setprio)\b[^";\\]*"\s*(?::[^;]*)?\)\s*;""",
    re.VERBOSE,
)  # matches one instruction that only waits, and can be dropped
_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.MULTILINE)
_RULES = tomllib.loads(Path(__file__).with_name("rewrites.toml").read_text(encoding="utf-8"))
_REWRITES = [(re.compile(pattern.replace("SIZED", _RULES["sized"])), new) for pattern, new in _RULES["rewrites"]]
_NAMES = {
    "": ("{}",),
    "AXIS": ("workitem_id_{}", "workgroup_id_{}", "workgroup_size_{}", "grid_size_{}"),
    "CONVERT": ("cvt_f32_{}", "cvt_pk_f32_{}", "cvt_pk_{}_f32"),
    "MFMA": ("mfma_{}",),
    "SCALED": ("mfma_scale_{}",),
}  # macro of the headers -> names of the builtins that it defines
_DEFINED = re.compile(rf"(?:^KSFLOW_({'|'.join(filter(None, _NAMES))})\(|\b__builtin_amdgcn_)(\w+)", re.MULTILINE)


def inline_includes(kernel: Kernel) -> str:
    """Return the kernel's first file, with its other files in place of their includes."""

    def text(match: re.Match[str]) -> str:
        return kernel.files[match[2]] if match[2] in kernel.files else match[0]

    return _INCLUDE.sub(text, kernel.main)


def check(source: str) -> None:
    """Raise ValueError, which names a missing feature, if the emulator cannot run the source."""
    code = _COMMENT.sub("", source)
    lost = [name for name in _BUILTIN.findall(code) if name not in _builtins()]
    if lost:
        raise ValueError(f"the emulator lacks {lost[0]}")
    if _ASSEMBLY.search(_WAIT.sub("", code)):
        raise ValueError("the emulator lacks inline assembly")
    for match in _INCLUDE.finditer(code):
        name = match[1] or match[2]
        if name != _RUNTIME and (_FOREIGN.match(name) or match[2]):
            raise ValueError(f"the emulator lacks the header {name}")


def includes(source: str) -> Iterator[str]:
    """Yield the includes of the C++ library, which must precede the namespace and HIP's macros."""
    for match in _INCLUDE.finditer(source):
        if match[1] and match[1] != _RUNTIME:
            yield match[0].strip()


def variant(source: str, values: dict[str, str], index: int, name: str) -> str:
    """Return the source with these values in a namespace of its own; its macros are undefined at the end."""
    text = _WAIT.sub("((void)0);", _INCLUDE.sub("", with_constants(source, values)))
    for pattern, words in _REWRITES:
        text = pattern.sub(words, text)
    undefine = [f"#undef {macro}" for macro in dict.fromkeys(_MACRO.findall(text))]
    opening = f'namespace variant_{index} {{ namespace {{\n#line 1 "{name}"'
    return "\n".join([opening, text, "}}", *undefine])


@cache
def headers(name: str = "hip_runtime.h") -> str:
    """Return the emulator in one text, or one of its headers with its includes."""
    folder = next(path for path in (_HOST_HEADERS, DEVICE_HEADERS) if (path / "hip" / name).is_file())
    text = (folder / "hip" / name).read_text(encoding="utf-8").replace("#pragma once\n", "")
    return _INCLUDE.sub(lambda match: headers(match[2]) if match[2] else match[0], text)


@cache
def _builtins() -> frozenset[str]:
    pairs = _DEFINED.findall(headers())
    return frozenset(f"__builtin_amdgcn_{form.format(name)}" for macro, name in pairs for form in _NAMES[macro])
