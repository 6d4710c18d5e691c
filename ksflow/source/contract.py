"""What a kernel must define in each language, told to models and to people in the same words.

Text only, from what a problem says of itself. The grammar of launch lines is in `launches`, which reads
every one of `EXAMPLES`.
"""

from collections.abc import Mapping
from pathlib import Path

from ksflow.home import sections
from ksflow.records import DEVICE_LANGUAGES, Problem
from ksflow.source.expressions import numbers
from ksflow.source.flags import ALLOWED

ENDINGS = {"python": ".py", "cpp": ".cpp", "triton": ".py", "cuda": ".cu", "hip": ".hip"}
"""How the name of a kernel's main file ends."""

_TEXTS = {name: text.rstrip("\n") for name, text in sections(Path(__file__).with_name("contract.txt")).items()}
EXAMPLES: Mapping[str, str] = {
    "cuda": _TEXTS["C_EXAMPLE"],
    "hip": f"#include <hip/hip_runtime.h>\n{_TEXTS['C_EXAMPLE']}",
    "triton": _TEXTS["TRITON_EXAMPLE"],
}
"""Language -> the outline of a source in strong mode, for tensors x [m, n] and y [m] and the numbers m and n."""
_C_SHAPE = {
    "mark": "//",
    "shape": "[X, Y, Z] shared BYTES",
    "shape_doc": "a block alike; `shared BYTES` is dynamic shared memory",
    "optional": "it and `if ...`",
    "pairs": " as wide as the parameter; nothing else",
    "declared": "constexpr int BM = 64;` or `#define BM 64",
}
_TRITON_SHAPE = {
    "mark": "#",
    "shape": "warps COUNT stages COUNT",
    "shape_doc": "num_warps and num_stages",
    "optional": "`if ...`",
    "pairs": ", in the function's order; then NAME=EXPRESSION for each constexpr parameter",
    "declared": "BM = 64",
}


def contract(problem: Problem, language: str) -> str:
    """All that a kernel in one of the problem's languages must be."""
    if problem.origin.get("format") == "command":
        return problem.called
    if language == "python" or (language == "triton" and problem.called):
        return _python(problem)
    shown = " ".join(defines(problem))
    compiled = [f"Compiled with {shown}."] if shown else []
    if language == "cpp":
        lines = ["One file that defines exactly:", problem.signature, _TEXTS["C_NUMBERS"], *compiled]
        lines.append(_TEXTS["FLAGS"].format(flags=" ".join(ALLOWED)))
    elif language == "triton":
        lines = [
            f"Host mode: {_python(problem)}",
            f"{_TEXTS['STRONG']} `@triton.jit` functions and launch lines; no torch, no autotune, no tensor "
            "descriptors made on the device.",
            _grammar(problem, language),
        ]
    else:
        lines = [
            "One file in one of two modes. Host mode: device pointers, of any type you like; `strides` of every "
            f"tensor, in elements, on the host; launch on `stream` (a {language}Stream_t) and do not wait for it:",
            device_signature(problem),
            *compiled,
            _TEXTS["JUDGED"],
            f'{_TEXTS["STRONG"]} `extern "C" __global__` functions and launch lines.',
            _grammar(problem, language),
        ]
    return "\n".join(lines)


def newer_lines(language: str, march: str) -> str:
    """What launch lines may have beside the contract on this architecture, or nothing; models are told by notes."""
    return _TEXTS["HOPPER"] if language == "cuda" and march.startswith(("sm_9", "sm_1")) else ""


def short_contract(problem: Problem, language: str) -> str:
    """The same in a few lines, for who already knows another language's."""
    if problem.origin.get("format") == "command":
        return problem.called
    if problem.called and language in ("python", "triton"):
        return f"{language} (NAME.py): {problem.called}"
    match language:
        case "python":
            return "python (NAME.py): `custom_kernel(data)` with tensors, outputs last; it returns the outputs."
        case "cpp":
            return f"cpp (NAME.cpp): one file that defines `{problem.signature}`."
        case "triton":
            either = "`custom_kernel(data)`, or `@triton.jit` functions and launch lines"
        case _:
            either = f'`{device_signature(problem)}`, or `extern "C" __global__` functions and launch lines'
    note = " that imports triton" if language == "triton" else ""
    return f"{language} (NAME{ENDINGS[language]}{note}): {either}, for x [m, n] and y [m]:\n{EXAMPLES[language]}"


def device_signature(problem: Problem) -> str:
    """The C declaration of a `cuda` or `hip` kernel that launches itself."""
    return f"{problem.signature.removesuffix(')')}, void *stream)"


def _python(problem: Problem) -> str:
    if problem.called:
        beside = f" It may import {', '.join(problem.files)}, which lie beside it." if problem.files else ""
        return f"{problem.called}{beside}"
    names = ", ".join(arg.name for arg in problem.args)
    outputs = ", ".join(arg.name for arg in problem.args if arg.role == "out")
    entry = f"`custom_kernel(data)` with data = ({names}), tensors{{}}, outputs preallocated; it returns {outputs}."
    if not any(language in DEVICE_LANGUAGES for language in problem.languages):
        return entry.format("")
    return "\n".join([entry.format(" on the device"), _TEXTS["WAITING"], _TEXTS["JUDGED"]])


def _grammar(problem: Problem, language: str) -> str:
    return _TEXTS["GRAMMAR"].format(
        **(_TRITON_SHAPE if language == "triton" else _C_SHAPE),
        args=", ".join(arg.name for arg in problem.args),
        numbers=", ".join(numbers(problem.benchmarks[0].params)),
        example=EXAMPLES[language],
    )


def defines(problem: Problem) -> list[str]:
    """Of the compiler's command line; truth as a preprocessor knows it."""
    known = {name: int(value) if isinstance(value, bool) else value for name, value in problem.defines.items()}
    return [f"-D{name}={value}" for name, value in known.items()]
