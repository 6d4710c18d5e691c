"""HIP kernels on a CPU: `emulated` turns a HIP kernel in strong mode into a C++ kernel for the CPU's judge.

`device/` holds the header that compiles HIP for AMD's chips without ROCm (an include path), `host/` the one that runs
it here: a fibre for each work-item, waves of 64 in lock-step at operations across lanes. Covered: what those headers
define (a missing builtin is named); reads and writes past the ends of workspaces, and of arguments if all of them
declare their shape. NOT covered: kernels in host mode, inline assembly, times (which say nothing of a GPU), races that
the order of the waves does not show.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from ksflow.kernels.hardware.cost_model import extents
from ksflow.kernels.source.launches import CasePlan, parse, plan_cases, with_constants
from ksflow.records import Kernel, Problem, Scalar

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
_FNUZ = ("gfx940", "gfx941", "gfx942")  # chips whose 8-bit floats are the fnuz ones
_PLATFORM = ("__HIP__", "__HIPCC__", "__HIP_DEVICE_COMPILE__", "__HIP_PLATFORM_AMD__", "__AMDGCN__", "__GFX9__")

_ByDims = dict[tuple[int, ...], tuple[CasePlan, Mapping[str, Scalar]]]


def emulate_kernel(problem: Problem, kernel: Kernel, march: str) -> Kernel:
    """Return a `cpp` kernel of one file that runs a HIP kernel's launches for the problem's cases, as a GPU `march`
    would.

    Called with other dimensions than the cases' it aborts with a message. Raises ValueError for another language, a
    missing or invalid launch plan, or a feature that the emulator lacks.
    """
    if kernel.language != "hip" or not march.startswith("gfx"):
        raise ValueError(f"only HIP for gfx chips can be emulated, not {kernel.language} for {march}")
    text = _INCLUDE.sub(lambda found: kernel.files.get(found[2], found[0]), kernel.main)
    launch_plan = parse(text, kernel.language)
    if launch_plan is None:
        raise ValueError("a kernel that launches itself (no launch: line) cannot be emulated")
    _check(text)
    cases = {case.name: case.params for case in (*problem.tests, *problem.benchmarks)}
    variants, plans = plan_cases(launch_plan, cases, [arg.name for arg in problem.args])
    by_dims: _ByDims = {}
    for case in (*problem.tests, *problem.benchmarks):
        dims = tuple(int(case.params[dim]) for dim in problem.dims)
        if by_dims.setdefault(dims, (plans[case.name], case.params))[0] != plans[case.name]:
            raise ValueError(f"case {case.name}: another with the same {', '.join(problem.dims)} has other launches")
    name = next(iter(kernel.files))
    parts = [
        # the C++ library's headers precede the namespaces and HIP's macros
        *(found[0].strip() for found in _INCLUDE.finditer(text) if found[1] not in (None, _RUNTIME)),
        f"#define KSFLOW_FNUZ {int(march in _FNUZ)}",
        *(f"#define {macro} 1" for macro in (f"__{march}__", *_PLATFORM)),
        _headers(),
        *(_variant(text, values, index, name) for index, values in enumerate(variants)),
        *_entry(problem, by_dims),
    ]
    return Kernel("cpp", {"emulated.cpp": "\n".join(parts) + "\n"}, kernel.report)


def _entry(problem: Problem, by_dims: _ByDims) -> Iterator[str]:
    """Yield the lines of `custom_kernel`, which runs the launches of the case with its dimensions."""
    yield f"{problem.signature} {{"
    yield f"  void *const given[] = {{{', '.join(f'(void *){arg.name}' for arg in problem.args)}}};"
    for sizes, (plan, params) in by_dims.items():
        yield f"  if ({' && '.join(f'{dim} == {size}' for dim, size in zip(problem.dims, sizes, strict=True))}) {{"
        guarded = _rooms(problem, params)
        own = [f"ksflow::enter_room(room[{index}], given[{index}])" for index, _ in enumerate(guarded)]
        if guarded:
            yield f"    static const ksflow::Room *const room[] = {{{', '.join(guarded)}}};"
        yield f"    void *const arg[] = {{{', '.join(own or (f'given[{n}]' for n, _ in enumerate(problem.args)))}}};"
        if plan.workspaces:  # they last from call to call
            rooms = ", ".join(f"ksflow::workspace({workspace.bytes})" for workspace in plan.workspaces)
            yield f"    static void *const workspace[] = {{{rooms}}};"
        for step in plan.launches:
            grid, block = (f"{{{', '.join(f'{size}u' for size in lengths)}}}" for lengths in (step.grid, step.block))
            arguments = ", ".join(
                f"int64_t({value})" if kind == "int" else f"ksflow::Pointer{{{kind}[{value}]}}"
                for kind, value in step.args
            )
            call = f"variant_{plan.variant}::{step.kernel}({arguments})"
            yield f"    ksflow::launch({grid}, {block}, {step.shared}, [&] {{ {call}; }});"
        yield from (f"    ksflow::leave_room(room[{index}], given[{index}]);" for index, _ in enumerate(guarded))
        yield "    return;\n  }"
    shown, values = (", ".join(form.format(dim) for dim in problem.dims) for form in ("{} = %lld", "(long long){}"))
    yield f'  ksflow::fail("no launches are known for {shown}", {values});'
    yield "}"


def _rooms(problem: Problem, params: Mapping[str, Scalar]) -> list[str]:
    """Return the arguments' memory in a case, in C++; empty if one declares no shape."""
    rooms, first = [], 0
    for arg in problem.args:
        sizes = extents(arg.shape, params)
        if sizes is None:
            return []
        span = f"ksflow::span({{{', '.join(map(str, sizes))}}}, strides + {first})"
        rooms.append(f'ksflow::make_room("{arg.name}", {span} * sizeof *{arg.name})')
        first += len(sizes)
    return rooms


def _check(source: str) -> None:
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


def _variant(source: str, values: dict[str, str], index: int, name: str) -> str:
    """Return the source with these values in a namespace of its own; its macros are undefined at the end."""
    text = _WAIT.sub("((void)0);", _INCLUDE.sub("", with_constants(source, values)))
    for pattern, words in _REWRITES:
        text = pattern.sub(words, text)
    undefine = [f"#undef {macro}" for macro in dict.fromkeys(_MACRO.findall(text))]
    opening = f'namespace variant_{index} {{ namespace {{\n#line 1 "{name}"'
    return "\n".join([opening, text, "}}", *undefine])


@cache
def _headers(name: str = "hip_runtime.h") -> str:
    """Return the emulator in one text, or one of its headers with its includes."""
    folder = next(path for path in (_HOST_HEADERS, DEVICE_HEADERS) if (path / "hip" / name).is_file())
    text = (folder / "hip" / name).read_text(encoding="utf-8").replace("#pragma once\n", "")
    return _INCLUDE.sub(lambda match: _headers(match[2]) if match[2] else match[0], text)


@cache
def _builtins() -> frozenset[str]:
    pairs = _DEFINED.findall(_headers())
    return frozenset(f"__builtin_amdgcn_{form.format(name)}" for macro, name in pairs for form in _NAMES[macro])
