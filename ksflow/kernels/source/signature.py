"""Checks the entry of a C-like kernel against its contract: name, arguments, pointer types. Reads text only.

What cannot be read (a macro, a type of the source's own) is accepted, and so is what may be intended: floats read as
words or bytes, a size as `int`, `strides` or `stream` left out at the end.
"""

import re
from typing import NamedTuple

from ksflow.kernels.languages import LANGUAGES
from ksflow.kernels.source.contract import device_signature
from ksflow.kernels.source.features import code_of
from ksflow.kernels.source.tunables import has_launches
from ksflow.records import Kernel, Problem

ENTRY = "custom_kernel"
_DEFINED = re.compile(r"\b([A-Za-z_]\w*)\s*\(([^()]*)\)\s*(?:noexcept\s*)?\{")
_NO_FUNCTIONS = {"if", "for", "while", "switch", "catch"}
_QUALIFIERS = {"const", "volatile", "restrict", "__restrict__", "__restrict", "register", "signed"}
_TYPES = {
    "char": "i1", "int8_t": "i1", "uint8_t": "i1", "byte": "i1", "bool": "i1", "void": "i1", "short": "i2",
    "int16_t": "i2", "uint16_t": "i2", "_Float16": "f2", "__half": "f2", "half": "f2", "__bf16": "f2",
    "__nv_bfloat16": "f2", "float": "f4", "double": "f8", "long": "i8", "int64_t": "i8", "uint64_t": "i8",
    "size_t": "i8", "ptrdiff_t": "i8", "int32_t": "i4", "uint32_t": "i4", "int": "i4", "unsigned": "i4",
}  # fmt: skip
"""Type -> float or integer, and its bytes. Of several words (`unsigned long int`) the first in this order counts."""
_SPARE = ("strides", "stream")


class _Parameter(NamedTuple):
    text: str
    name: str
    pointer: bool
    type: str  # as in `_TYPES`; empty if unknown


def fault(problem: Problem, kernel: Kernel, suspected: bool = False) -> str:
    """Return what is wrong with the entry of a kernel in C++, CUDA or HIP, in one line, or "". suspected: report also
    what is seldom right: arguments with each other's names, device pointers of other types.
    """
    if LANGUAGES[kernel.language].python or has_launches(kernel.main):
        return ""
    code = "\n".join(code_of(text, kernel.language) for text in kernel.files.values())
    contract = problem.signature if kernel.language == "cpp" else device_signature(problem)
    if ENTRY not in code and "##" not in code:
        there = [name for name, _ in _DEFINED.findall(code) if name not in _NO_FUNCTIONS]
        return f"it defines no {ENTRY}{f', but {there[-1]}' if there else ''}; the contract is {contract}"
    wanted = _parameters(contract[contract.index("(") + 1 : -1])
    entries = [_parameters(inside) for name, inside in _DEFINED.findall(code) if name == ENTRY]
    faults = [_compared(wanted, got, kernel.language == "cpp" or suspected, suspected) for got in entries]
    return "" if "" in faults or not faults else f"{ENTRY} {faults[0]}; the contract is {contract}"


def _parameters(inside: str) -> list[_Parameter]:
    return [] if inside.strip() in ("", "void") else [_parameter(" ".join(text.split())) for text in inside.split(",")]


def _parameter(text: str) -> _Parameter:
    head, star, tail = text.replace("[", "*").partition("*")
    words = [word for word in re.findall(r"\w+", head.replace("std::", "")) if word not in _QUALIFIERS]
    names = [word for word in re.findall(r"[A-Za-z_]\w*", tail) if word not in _QUALIFIERS]
    if len(words) > 1 and words[-1] not in _TYPES:
        names = [words.pop()]
    known = [kind for word, kind in _TYPES.items() if word in words] if set(words) <= _TYPES.keys() else []
    return _Parameter(text, names[-1] if names else "", bool(star), known[0] if known else "")


def _compared(wanted: list[_Parameter], got: list[_Parameter], typed: bool, named: bool) -> str:
    order = {want.name: index for index, want in enumerate(wanted)} if named else {}
    counted = "" if len(got) == len(wanted) else f"takes {len(got)} arguments and is called with {len(wanted)}: "
    for index, (want, have) in enumerate(zip(wanted, got, strict=False)):
        if _differs(want, have, typed) or order.get(have.name, index) != index:
            return f"{counted or 'does not fit: '}argument {index + 1} is `{have.text}` where `{want.text}` is passed"
    if left := [want for want in wanted[len(got) :] if want.name not in _SPARE]:
        return f"{counted}`{left[0].text}` is missing"
    return f"{counted}nothing is passed for `{got[len(wanted)].text}`" if len(got) > len(wanted) else ""


def _differs(want: _Parameter, have: _Parameter, typed: bool) -> bool:
    if want.pointer != have.pointer:
        return have.pointer or bool(have.type)
    if not want.pointer:
        return have.type.startswith("f")
    if not typed or not (want.type and have.type) or want.name in _SPARE:
        return False
    narrower = "1" not in have.type and have.type[1:] < want.type[1:]
    return narrower or (have.type[0] == "f" and have.type[1:] != want.type[1:])
