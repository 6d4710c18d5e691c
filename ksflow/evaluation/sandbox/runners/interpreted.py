"""Triton kernels on a CPU, by Triton's interpreter: checks results where there is no GPU, never times.

Covered: the launches of a plan, and `custom_kernel(data)`, on tensors in main memory. Not covered: effects of a
compiler or a device, such as the rounding of its matrix unit, races between programs, memory limits. Arithmetic on
8-bit floats, assembly and external functions raise NotImplementedError.
"""

import linecache
import mmap
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from ksflow.evaluation.sandbox.runners.cpu import Call
from ksflow.evaluation.sandbox.runners.torch_kernel import Tensors, TorchRunner, tensors
from ksflow.kernels.source.launches import with_constants

_SWITCH = "TRITON_INTERPRET"
_STALE = 0xFF  # fill of workspaces: NaN in every float format, so that unwritten memory shows


class TritonInterpreted:
    """A Runner for Triton files: by launch lines if the order has `plans` and `variants`, else by host code."""

    def __init__(self, order: Mapping[str, Any]) -> None:
        """Prepare the interpreter. Call it before anything imports Triton, which then chooses how functions are
        compiled.

        order: `main`, the file in the working directory; `variants`, `plans`: of `launches.plan_cases`, as JSON.
        """
        assert "triton" not in sys.modules or os.environ.get(_SWITCH) == "1"
        os.environ[_SWITCH] = "1"
        _round_like_devices()
        _compute_like_devices()
        torch.set_num_threads(1)
        torch.set_grad_enabled(False)
        self._plans: Mapping[str, Any] | None = order.get("plans")
        if self._plans is None:
            self._host = TorchRunner(order["main"])
            return
        path = Path.cwd() / order["main"]
        text = path.read_text(encoding="utf-8")
        sys.path.insert(0, str(path.parent))
        texts = [with_constants(text, values) for values in order["variants"]]
        self._modules = [_module(f"kernel_{index}", str(path), source) for index, source in enumerate(texts)]

    def stage(self, case: dict[str, Any], inputs: mmap.mmap, outputs: mmap.mmap) -> list[Call]:
        """Return one ready call per slot. The slots share the workspaces."""
        if self._plans is None:
            return self._host.stage(case, inputs, outputs)
        plan = self._plans[case["name"]]
        regions = [torch.frombuffer(region, dtype=torch.uint8) for region in (inputs, outputs)]
        kinds = [(getattr(torch, space["dtype"]), space["elements"]) for space in plan["workspaces"]]
        spaces = tuple(torch.full((n * kind.itemsize,), _STALE, dtype=torch.uint8).view(kind) for kind, n in kinds)
        module = self._modules[plan["variant"]]

        def ready(data: Tensors) -> Call:
            launches = [_launch(module, step, data, spaces) for step in plan["launches"]]

            def call() -> None:
                for launch in launches:
                    launch()

            return call

        return [ready(tensors(case, regions, slot)) for slot in range(case["slots"])]


def _round_like_devices() -> None:
    """Patch Triton's interpreter: round float32 to bfloat16 to nearest even, where it truncates, and to 8-bit floats
    with a carry."""
    import numpy as np
    import triton.language as tl
    from triton.runtime import interpreter

    convert = interpreter._convert_float
    kinds = {tl.float8e4nv: torch.float8_e4m3fn, tl.float8e5: torch.float8_e5m2, tl.bfloat16: torch.bfloat16}
    to_zero = interpreter._ir.ROUNDING_MODE.RTZ

    def rounded(data: Any, source: Any, target: Any, mode: Any) -> Any:
        half = target == tl.bfloat16
        if source != tl.float32 or target not in kinds or (mode == to_zero and not half):
            return convert(data, source, target, mode)
        exact = torch.from_numpy(np.array(data, dtype=np.float32))
        most = torch.inf if half else torch.finfo(kinds[target]).max  # devices saturate 8-bit floats
        bits = exact.clamp(-most, most).to(kinds[target]).view(torch.int16 if half else torch.uint8).numpy()
        return bits.view(np.uint16) if half else bits

    interpreter._convert_float = rounded


_RESULT_OF = {"binary_op": 0, "unary_op": 0, "create_rsqrt": 0, "create_erf": 0, "ternary_op": 2, "create_fma": 2}
"""Computing method of Triton's interpreter -> index of the operand whose type its result has."""


def _compute_like_devices() -> None:
    """Patch Triton's interpreter, which computes with the bits of bfloat16 and 8-bit floats as integers: compute in
    float32 and round, as devices do, or raise NotImplementedError."""
    import numpy as np
    import triton.language as tl
    from triton.runtime import interpreter

    builder = interpreter.InterpreterBuilder
    cast, dot = builder.cast_impl, builder.create_dot

    def half(value: Any) -> bool:
        return bool(_kind(value) == tl.bfloat16)

    def wide(self: Any, value: Any) -> Any:
        return cast(self, value, tl.float32) if half(value) else value

    def computing(method: Any, result: int) -> Any:
        def computed(self: Any, *operands: Any) -> Any:
            if np.where in operands:
                return method(self, *operands)
            _refuse("compute in 8-bit floats", *map(_kind, operands))
            found = method(self, *(wide(self, each) for each in operands))
            rounds = half(operands[result]) and found.data.dtype != np.bool_
            return cast(self, found, tl.bfloat16) if rounds else found

        return computed

    def converted(self: Any, value: Any, to: Any) -> Any:
        _refuse("convert 8-bit floats so", _kind(value), to.scalar)
        through = half(value) != (to.scalar == tl.bfloat16) and tl.float32 not in (_kind(value), to.scalar)
        return cast(self, cast(self, value, tl.float32) if through else value, to)

    def multiplied(self: Any, a: Any, b: Any, sums: Any, *options: Any) -> Any:
        found = dot(self, wide(self, a), wide(self, b), wide(self, sums), *options)
        return cast(self, found, tl.bfloat16) if half(sums) else found

    for name, result in _RESULT_OF.items():
        setattr(builder, name, computing(getattr(builder, name), result))
    builder.cast_impl, builder.create_dot = converted, multiplied
    _refuse_narrow_sums(builder, interpreter.ReduceScanOpInterface, tl.bfloat16)


def _refuse_narrow_sums(builder: Any, reductions: Any, half: Any) -> None:
    """Make atomic updates and reductions of bfloat16 and 8-bit floats raise NotImplementedError."""
    atomic, apply = builder.create_atomic_rmw, reductions.apply

    def updated(self: Any, operation: Any, pointers: Any, value: Any, *options: Any) -> Any:
        _refuse("update these floats atomically", _kind(value), half=half)
        return atomic(self, operation, pointers, value, *options)

    def reduced(self: Any, values: Any) -> Any:
        each = values if isinstance(values, tuple) else (values,)
        _refuse("reduce these floats", *(_kind(value.handle) for value in each), half=half)
        return apply(self, values)

    builder.create_atomic_rmw, reductions.apply = updated, reduced


def _kind(value: Any) -> Any:
    return value.dtype.scalar if hasattr(value, "dtype") and hasattr(value, "data") else None


def _refuse(what: str, *kinds: Any, half: Any = None) -> None:
    """Raise NotImplementedError for 8-bit floats, and for type `half` if given."""
    for kind in kinds:
        if kind is not None and kind.is_floating() and (kind.primitive_bitwidth == 8 or kind == half):
            raise NotImplementedError(f"no way to {what} ({kind})")


def _module(name: str, path: str, text: str) -> ModuleType:
    file = f"{path}, {name}"  # Triton rereads the source
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    module = ModuleType(name)
    sys.modules[name] = module
    exec(compile(text, file, "exec"), module.__dict__)
    return module


def _launch(module: ModuleType, step: Mapping[str, Any], data: Tensors, spaces: Tensors) -> Callable[[], None]:
    kernel = getattr(module, step["kernel"], None)
    if kernel is None:
        raise AttributeError(f"launch: the source defines no function {step['kernel']}")
    places = {"arg": data, "workspace": spaces}
    arguments = [places[kind][value] if kind in places else value for kind, value in step["args"]]
    ready = kernel[tuple(step["grid"])]
    return lambda: ready(*arguments, **step["constants"])
