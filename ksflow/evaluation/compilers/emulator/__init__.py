"""HIP kernels on a CPU: `emulated` turns a HIP kernel in strong mode into a C++ kernel for the CPU's judge.

`device/` holds the header that compiles HIP for AMD's chips without ROCm (an include path), `host/` the one that runs
it here: a fibre for each work-item, waves of 64 in lock-step at operations across lanes. Covered: what those headers
define (a missing builtin is named); reads and writes past the ends of workspaces, and of arguments if all of them
declare their shape. NOT covered: kernels in host mode, inline assembly, times (which say nothing of a GPU), races that
the order of the waves does not show.
"""

from collections.abc import Iterator, Mapping

from ksflow.evaluation.compilers.emulator import source
from ksflow.evaluation.compilers.emulator.source import DEVICE_HEADERS
from ksflow.kernels.hardware.cost_model import extents
from ksflow.kernels.source.launches import CasePlan, parse, plan_cases
from ksflow.records import Kernel, Problem, Scalar

__all__ = ["DEVICE_HEADERS", "emulate_kernel"]

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
    text = source.inline_includes(kernel)
    launch_plan = parse(text, kernel.language)
    if launch_plan is None:
        raise ValueError("a kernel that launches itself (no launch: line) cannot be emulated")
    source.check(text)
    cases = {case.name: case.params for case in (*problem.tests, *problem.benchmarks)}
    variants, plans = plan_cases(launch_plan, cases, [arg.name for arg in problem.args])
    by_dims: _ByDims = {}
    for case in (*problem.tests, *problem.benchmarks):
        dims = tuple(int(case.params[dim]) for dim in problem.dims)
        if by_dims.setdefault(dims, (plans[case.name], case.params))[0] != plans[case.name]:
            raise ValueError(f"case {case.name}: another with the same {', '.join(problem.dims)} has other launches")
    name = next(iter(kernel.files))
    parts = [
        *source.includes(text),
        f"#define KSFLOW_FNUZ {int(march in _FNUZ)}",
        *(f"#define {macro} 1" for macro in (f"__{march}__", *_PLATFORM)),
        source.headers(),
        *(source.variant(text, values, index, name) for index, values in enumerate(variants)),
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
