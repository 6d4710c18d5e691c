"""Times kernels with CUDA events, as a user would by hand: no judge, no box, no protection.

`benchmarks/device.py` starts it in a process of its own, with a list of orders on stdin: see `_orders` there. Before
each call its inputs are replaced and 256 MB are written, which flushes the L2; the median of 30 calls counts. Every
case is timed twice: so, and with a long kernel run and 32 GB touched before that, after which no instruction and no
address translation of the timed one is at hand. Prints [{case: [us, us]}, ...] as its last line.
"""

import ctypes
import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

_ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(_ROOT))

import torch  # noqa: E402

from ksflow.evaluation.sandbox.driver import early_launch  # noqa: E402
from ksflow.evaluation.sandbox.runners.torch_kernel import load_module  # noqa: E402
from ksflow.evaluation.sandbox.tensor_maps import tensor_map  # noqa: E402
from ksflow.kernels.source.launches import CaseLaunch, CasePlan, parse, plan_cases, with_constants  # noqa: E402

_CALLS, _WARM = 30, 5
_STEPS = 16384
_FLUSH_BYTES = 256 << 20
_PAGES, _PAGE_BYTES = 16384, 2 << 20
_AHEAD = 1_000_000
"""Cycles that the GPU waits, so that the CPU has launched all before the first event: launching is not counted."""
_DYNAMIC_SHARED = 8
"""CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"""

_CUBIN, _OBJECT = ("-cubin",), ("-shared", "-Xcompiler", "-fPIC")

Call = Callable[[], object]
Data = tuple[torch.Tensor, ...]


def main() -> None:
    """Read the orders, compile all, time every case of each."""
    orders = json.load(sys.stdin)
    torch.zeros(1, device="cuda")
    with ThreadPoolExecutor() as pool:
        list(pool.map(_compiled, orders))
    cold = _chill()
    print(json.dumps([_timed(order, cold) for order in orders]))


def _timed(order: dict[str, Any], cold: Call) -> dict[str, list[float]]:
    reference = load_module("reference", order["reference"])
    bind = _binder(order)
    times = {}
    for name, (params, seed) in order["cases"].items():
        data, *others = (reference.generate_input(**params, seed=seed + more, device="cuda") for more in range(3))
        call = bind(name, params, data)
        times[name] = [_clock(call, partial(_renew, data, others, before)) for before in (lambda: None, cold)]
    return times


def _renew(data: Data, others: Sequence[Data], before: Call, number: int) -> None:
    """Other inputs in the same places, then what else comes before a call."""
    for tensor, new in zip(data, others[number % len(others)], strict=True):
        tensor.copy_(new)
    before()


def _clock(call: Call, before: Callable[[int], None]) -> float:
    scratch = torch.empty(_FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    samples = []
    for number in range(_WARM + _CALLS):
        before(number)
        torch.cuda._sleep(_AHEAD)
        scratch.zero_()
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        call()
        last.record()
        last.synchronize()
        samples.append(first.elapsed_time(last) * 1e3)
    return statistics.median(samples[_WARM:])


def _chill() -> Call:
    """Runs a kernel of much code and touches a word in each of many pages."""
    other_code = _long_kernel()
    pages = torch.zeros((_PAGES, _PAGE_BYTES // 8), dtype=torch.int64, device="cuda")

    def call() -> object:
        pages[:, 0].add_(1)
        return other_code()

    return call


def _long_kernel() -> Call:
    """A kernel of half a megabyte of code, after which the processors hold no instruction of another one."""
    steps = "\n".join(f"mad.lo.u32 %r1, %r1, {2 * step + 3}, %r2; xor.b32 %r1, %r1, {step};" for step in range(_STEPS))
    text = f""".version 7.0
.target sm_80
.address_size 64
.visible .entry long(.param .u64 out) {{
.reg .b32 %r<4>; .reg .b64 %rd<2>;
ld.param.u64 %rd1, [out];
mov.u32 %r1, %tid.x; mov.u32 %r2, %clock;
{steps}
st.global.u32 [%rd1], %r1;
ret;
}}"""
    code, function = ctypes.c_void_p(), ctypes.c_void_p()
    _ok(_cuda.cuModuleLoadData(ctypes.byref(code), text.encode()))
    _ok(_cuda.cuModuleGetFunction(ctypes.byref(function), code, b"long"))
    out = torch.zeros(1, dtype=torch.int32, device="cuda")
    array, held = _packed([out])

    def call() -> object:
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        _ok(_cuda.cuLaunchKernel(function, 264, 1, 1, 64, 1, 1, 0, stream, array, None))
        return held

    return call


def _binder(order: dict[str, Any]) -> Callable[[str, dict[str, Any], Data], Call]:
    """What makes a call for a case."""
    recipe, sources, made = _planned(order)
    if recipe is None:
        return _shared_object(order) if order["language"] == "cuda" else _python(order["source"])
    if order["language"] == "triton":
        modules = [load_module(file.stem, file) for file in sources]
        return lambda name, _, data: _triton(modules[made[name].variant], made[name], data)
    codes = [_cubin(file, order["defines"]) for file in sources]
    return lambda name, _, data: _driver(codes[made[name].variant], made[name], data)


def _planned(order: dict[str, Any]) -> tuple[Any, list[Path], Mapping[str, CasePlan]]:
    """The recipe of a kernel in strong mode, or None; the source of each variant; how each case is launched."""
    source = Path(order["source"])
    recipe = parse(text := source.read_text())
    if recipe is None:
        return None, [source], {}
    cases = {name: params for name, (params, _) in order["cases"].items()}
    variants, made = plan_cases(recipe, cases, order["args"])
    sources = []
    for number, values in enumerate(variants):
        sources.append(source.with_name(f"{source.stem}_variant{number}{source.suffix}"))
        sources[-1].write_text(with_constants(text, values))
    return recipe, sources, made


def _compiled(order: dict[str, Any]) -> None:
    """Compile what nvcc has to, as far as it is not there."""
    recipe, sources, _ = _planned(order)
    for source in sources if order["language"] == "cuda" else ():
        _compile(source, order["defines"], _OBJECT if recipe is None else _CUBIN)


def _python(source: str) -> Callable[[str, dict[str, Any], Data], Call]:
    function = load_module("kernel", source).custom_kernel

    def bind(_: str, __: dict[str, Any], data: Data) -> Call:
        def call() -> None:
            result = function(data)
            only = result[0] if isinstance(result, list | tuple) and len(result) == 1 else result
            if isinstance(only, torch.Tensor) and only is not data[-1]:
                data[-1].copy_(only)  # where the caller wants it

        return call

    return bind


def _shared_object(order: dict[str, Any]) -> Callable[[str, dict[str, Any], Data], Call]:
    target = _compile(Path(order["source"]), order["defines"], _OBJECT)
    function = ctypes.CDLL(str(target)).custom_kernel
    function.restype = None

    def bind(_: str, params: dict[str, Any], data: Data) -> Call:
        strides = [step for tensor in data for step in tensor.stride()]
        words = [ctypes.c_void_p(tensor.data_ptr()) for tensor in data]
        sizes = [ctypes.c_int64(params[dim]) for dim in order["dims"]]
        table = (ctypes.c_int64 * len(strides))(*strides)
        return lambda: function(*words, *sizes, table, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))

    return bind


def _triton(module: ModuleType, plan: CasePlan, data: Data) -> Call:
    places = {"arg": data, "workspace": _workspaces(plan)}

    def call() -> None:
        for step in plan.launches:
            settings = {"num_warps": step.warps, "num_stages": step.stages}
            getattr(module, step.kernel)[step.grid](*_arguments(step, places), **step.constants, **settings)

    return call


def _driver(code: ctypes.c_void_p, plan: CasePlan, data: Data) -> Call:
    """Launches by the driver. All parameters of the kernels are pointers or, as the recipe says, integers."""
    places: dict[str, Any] = {"arg": data, "workspace": _workspaces(plan)}
    places["tensor_map"] = [
        _tensor_map(places[kind][index], asdict(described))
        for described in plan.tensor_maps
        for kind, index in [described.place]
    ]
    steps = [(_function(code, step), step, _packed(_arguments(step, places))) for step in plan.launches]

    def call() -> None:
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        for function, step, (array, _) in steps:
            if step.pdl:
                config = early_launch((*step.grid, *step.block), step.shared, stream.value or 0)
                _ok(_cuda.cuLaunchKernelEx(config, function, array, None))
                continue
            _ok(_cuda.cuLaunchKernel(function, *step.grid, *step.block, step.shared, stream, array, None))

    return call


def _arguments(step: CaseLaunch, places: Mapping[str, Sequence[Any]]) -> list[Any]:
    return [value if kind == "int" else places[kind][value] for kind, value in step.args]


def _workspaces(plan: CasePlan) -> list[torch.Tensor]:
    return [torch.empty(room.elements, dtype=getattr(torch, room.dtype), device="cuda") for room in plan.workspaces]


def _tensor_map(tensor: torch.Tensor, described: dict[str, Any]) -> Any:
    made, arguments = tensor_map(tensor.data_ptr(), described)
    _ok(_cuda.cuTensorMapEncodeTiled(*arguments))
    return made


def _packed(arguments: list[Any]) -> tuple[Any, list[Any]]:
    """Eight bytes for each that is no tensor map, of which a kernel reads as many as its parameter has; with what must
    stay alive.
    """
    held = [
        one if isinstance(one, ctypes.Array) else ctypes.c_int64(one if isinstance(one, int) else one.data_ptr())
        for one in arguments
    ]
    return (ctypes.c_void_p * len(held))(*[ctypes.addressof(one) for one in held]), [held, arguments]


def _function(code: ctypes.c_void_p, step: CaseLaunch) -> ctypes.c_void_p:
    function = ctypes.c_void_p()
    _ok(_cuda.cuModuleGetFunction(ctypes.byref(function), code, step.kernel.encode()))
    _ok(_cuda.cuFuncSetAttribute(function, _DYNAMIC_SHARED, step.shared))
    return function


def _cubin(source: Path, defines: dict[str, Any]) -> ctypes.c_void_p:
    target = _compile(source, defines, _CUBIN)
    code = ctypes.c_void_p()
    _ok(_cuda.cuModuleLoad(ctypes.byref(code), str(target).encode()))
    return code


def _compile(source: Path, defines: dict[str, Any], mode: Sequence[str]) -> Path:
    """What nvcc makes of it, once."""
    major, minor = torch.cuda.get_device_capability()
    number = f"{major}{minor}" + ("a" if major >= 9 else "")
    words = ["-O3", "-std=c++20", f"-gencode=arch=compute_{number},code=sm_{number}"]
    flags = [f"-D{name}={value}" for name, value in defines.items()]
    target = source.with_suffix(".cubin" if mode == _CUBIN else ".so")
    if not target.exists():
        subprocess.run(["nvcc", *mode, *words, *flags, "-o", str(target), str(source)], check=True)
    return target


def _ok(code: int) -> None:
    if code:
        sys.exit(f"the driver says {code}")


if __name__ == "__main__":
    _cuda = ctypes.CDLL("libcuda.so.1")
    main()
