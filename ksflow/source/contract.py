"""What a kernel must define in each language, told to models and to people in the same words.

Text only, from what a problem says of itself. The grammar of launch lines is in `launches`, which reads
every one of `EXAMPLES`.
"""

from collections.abc import Mapping

from ksflow.records import DEVICE_LANGUAGES, Problem
from ksflow.source.expressions import numbers

ENDINGS = {"python": ".py", "cpp": ".cpp", "triton": ".py", "cuda": ".cu", "hip": ".hip"}
"""How the name of a kernel's main file ends."""

_C_EXAMPLE = """\
// workspace: part float32 m * SPLIT
// launch: sums [SPLIT, m] [T] shared 4 * T (x, part, y, n)
// launch: total [cdiv(m, 256)] [256] (part, y, m) if SPLIT > 1
// require: T * SPLIT <= 4096
// dispatch: if n >= 8192 and m <= 64: SPLIT=8 T=512
constexpr int T = 256;    // tune: 128 256 512 | block: threads of a share
constexpr int SPLIT = 2;  // tune: 1 2 4 8 | form: shares of a row
extern "C" __global__ void sums(const float *x, float *part, float *y, int n) { /* ... */ }
extern "C" __global__ void total(const float *part, float *y, int m) { /* ... */ }"""
EXAMPLES: Mapping[str, str] = {
    "cuda": _C_EXAMPLE,
    "hip": f"#include <hip/hip_runtime.h>\n{_C_EXAMPLE}",
    "triton": """\
import triton
import triton.language as tl
BLOCK = 1024  # tune: 512 1024 2048 | block: elements at a time
SPLIT = 2  # tune: 1 2 4 8 | form: shares of a row
# workspace: part float32 m * SPLIT
# launch: sums [SPLIT, m] warps 4 stages 2 (x, part, y, n, BLOCK=BLOCK, SPLIT=SPLIT)
# launch: total [cdiv(m, 256)] warps 4 stages 1 (part, y, m, SPLIT=SPLIT) if SPLIT > 1
# require: BLOCK * SPLIT <= 16384
# dispatch: if n >= 8192 and m <= 64: SPLIT=8 BLOCK=2048
@triton.jit
def sums(x, part, y, n, BLOCK: tl.constexpr, SPLIT: tl.constexpr):
    pass  # ...
@triton.jit
def total(part, y, m, SPLIT: tl.constexpr):
    pass  # ...""",
}
"""Language -> the outline of a source in strong mode, for tensors x [m, n] and y [m] and the numbers m and n."""

_GRAMMAR = """\
{mark} launch: FUNCTION [X, Y, Z] {shape} (ARGUMENTS) if CONDITION
  A grid of one to three sizes; {shape_doc}; {optional} may be left out. Launches run in the order written. \
ARGUMENTS: tensors ({args}) and workspaces by name, as pointers; expressions, as integers{pairs}.
{mark} workspace: NAME DTYPE COUNT
  Device memory of COUNT elements (float32, bfloat16, int32, uint8 ...), one for each case; arbitrary at first, kept \
between calls.
{mark} require: CONDITION
  Must hold for every case; else it is refused before it is compiled.
{mark} dispatch: if CONDITION: NAME=NUMBER NAME=NUMBER
  Other values of constants for the cases where it holds; the first that holds counts.
Expressions: a case's numbers ({numbers}), constants that the source declares at top level, one a line \
(`{declared}`) and named otherwise; + - * / // % **, comparisons, and or not, (X if C else Y), cdiv(x, y), min, max. \
Sizes are whole: divide by // or cdiv.
Example, x [m, n] and y [m]:
{example}"""
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
_HOPPER = """\
From sm_90 on: `pdl` right after a block ([256] pdl shared BYTES): the launch may begin before the one before it has \
ended; the function executes griddepcontrol.wait before it reads what that one writes. Never the first of a case.
// tensormap: NAME TENSOR DTYPE [EXTENTS] strides [STRIDES] box [SIDES] swizzle BYTES l2 BYTES
  A tensor map (cuTensorMapEncodeTiled), contiguous dimension first, for launches with NAME among their ARGUMENTS; the \
parameter is `const __grid_constant__ CUtensorMap`. STRIDES, in elements, of all dimensions but the first; they, \
swizzle and l2 may be left out."""
_STRONG = (
    "Strong mode, preferred (the device's own times are trusted, variants are compiled ahead, registers, spills and "
    "occupancy reported):"
)
_JUDGED = (
    "Every call has new contents, which do not exist yet when it is queued; the cache is flushed before. Inputs must "
    "not be written; workspaces may be kept between calls, results may not."
)
_WAITING = "Start all work on the current stream and return without waiting for it (no .item(), .cpu(), synchronize)."
_C_NUMBERS = (
    "8- and 16-bit floats come as their bits (uint8_t, uint16_t). `strides` has every tensor's strides in elements, "
    "one tensor after the other."
)


def contract(problem: Problem, language: str) -> str:
    """All that a kernel in one of the problem's languages must be."""
    if problem.origin.get("format") == "command":
        return problem.called
    if language == "python" or (language == "triton" and problem.called):
        return _python(problem)
    shown = " ".join(defines(problem))
    compiled = [f"Compiled with {shown}."] if shown else []
    if language == "cpp":
        lines = ["One file that defines exactly:", problem.signature, _C_NUMBERS, *compiled]
    elif language == "triton":
        lines = [
            f"Host mode: {_python(problem)}",
            f"{_STRONG} `@triton.jit` functions and launch lines; no torch, no autotune, no tensor "
            "descriptors made on the device.",
            _grammar(problem, language),
        ]
    else:
        lines = [
            "One file in one of two modes. Host mode: device pointers, of any type you like; `strides` of every "
            f"tensor, in elements, on the host; launch on `stream` (a {language}Stream_t) and do not wait for it:",
            device_signature(problem),
            *compiled,
            _JUDGED,
            f'{_STRONG} `extern "C" __global__` functions and launch lines.',
            _grammar(problem, language),
        ]
    return "\n".join(lines)


def newer_lines(language: str, march: str) -> str:
    """What launch lines may have beside the contract on this architecture, or nothing; models are told by notes."""
    return _HOPPER if language == "cuda" and march.startswith(("sm_9", "sm_1")) else ""


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
    return "\n".join([entry.format(" on the device"), _WAITING, _JUDGED])


def _grammar(problem: Problem, language: str) -> str:
    return _GRAMMAR.format(
        **(_TRITON_SHAPE if language == "triton" else _C_SHAPE),
        args=", ".join(arg.name for arg in problem.args),
        numbers=", ".join(numbers(problem.benchmarks[0].params)),
        example=EXAMPLES[language],
    )


def defines(problem: Problem) -> list[str]:
    """Of the compiler's command line; truth as a preprocessor knows it."""
    known = {name: int(value) if isinstance(value, bool) else value for name, value in problem.defines.items()}
    return [f"-D{name}={value}" for name, value in known.items()]
