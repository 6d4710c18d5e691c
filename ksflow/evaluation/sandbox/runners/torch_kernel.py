"""Kernels in Python: torch tensors over the slots, `custom_kernel(data)`, results copied back into the slot."""

import ctypes
import importlib.util
import mmap
import os
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch

from ksflow.evaluation.sandbox.runners.cpu import Call, Json, WrongResult
from ksflow.evaluation.sandbox.runners.foreign import array_remedy, bound, missing_entry

Tensors = tuple[torch.Tensor, ...]


class TorchRunner:
    """Runs a module with `custom_kernel(data)`. `where`: torch's name of the device if regions are addresses."""

    def __init__(self, main: str, where: str = "cpu") -> None:
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
        torch.set_grad_enabled(False)
        sys.path.insert(0, os.getcwd())
        self._where = where
        self._module = load_module("ksflow_main", os.path.join(os.getcwd(), main))  # it may import a file kernel.py

    def stage(self, case: Json, inputs: mmap.mmap | int, outputs: mmap.mmap | int) -> list[Call]:
        """Return one ready call per slot."""
        regions = [
            device_bytes(region, pitch * case["slots"], self._where)
            if isinstance(region, int)
            else torch.frombuffer(region, dtype=torch.uint8)
            for region, pitch in zip((inputs, outputs), case["pitch"], strict=True)
        ]
        slots = [tensors(case, regions, slot) for slot in range(case["slots"])]
        if binding := case.get("binding"):
            return [*map(bound(self._module, binding, str(regions[0].device)), slots)]
        return [self._call(data, case) for data in slots]

    @property
    def function(self) -> Callable[[Tensors], object]:
        """The kernel's `custom_kernel`. Raises AttributeError if it has none."""
        function: Callable[[Tensors], object] | None = getattr(self._module, "custom_kernel", None)
        if function is None:
            raise missing_entry(self._module, "custom_kernel")
        return function

    def _call(self, data: Tensors, case: Json) -> Call:
        function, first = self.function, len(data) - case["returned"]
        changed = [tensor for tensor, piece in zip(data[:first], case["pieces"], strict=False) if piece["out"]]
        return lambda: _settle(returned_beside(function(data), changed), data[first:])


def load_module(name: str, path: str | os.PathLike[str]) -> ModuleType:
    """Execute a Python file as a module; use it only in processes dedicated to that."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


class _Bytes:
    """Device memory with the interface of other libraries' arrays."""

    def __init__(self, pointer: int, size: int) -> None:
        self.__cuda_array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (pointer, False), "version": 3}


def device_bytes(pointer: int, size: int, where: str) -> torch.Tensor:
    """Return existing device memory as a tensor of bytes."""
    if where == "cpu":
        return torch.frombuffer((ctypes.c_ubyte * size).from_address(pointer), dtype=torch.uint8)
    return torch.as_tensor(_Bytes(pointer, size), device=where)


def tensors(case: dict[str, Any], regions: list[torch.Tensor], slot: int) -> Tensors:
    """Return a slot's tensors, as views of the regions of inputs and outputs."""
    views = []
    for piece in case["pieces"]:
        start = slot * case["pitch"][piece["out"]] + piece["offset"]
        flat = regions[piece["out"]][start : start + piece["bytes"]].view(getattr(torch, piece["dtype"]))
        views.append(flat.as_strided(piece["sizes"], piece["strides"]))
    return tuple(views)


def returned_beside(result: Any, changed: Sequence[torch.Tensor]) -> Sequence[Any]:
    """Return the values that a call returned, without the arguments that it changed in place."""
    results = result if isinstance(result, (tuple, list)) else (result,)
    if not changed:
        return results
    return [one for one in results if one is not None and not any(one is own for own in changed)]


def _settle(results: Sequence[Any], outputs: Tensors) -> None:
    if len(results) != len(outputs):
        raise WrongResult(f"custom_kernel returned {len(results)} values, expected {len(outputs)}")
    for got, out in zip(results, outputs, strict=True):
        if got is out:
            continue
        if not isinstance(got, torch.Tensor):
            raise WrongResult(f"custom_kernel returned {type(got).__name__}, expected a tensor{array_remedy(got)}")
        if got.shape != out.shape or got.dtype != out.dtype:
            raise WrongResult(
                f"custom_kernel returned {tuple(got.shape)} {got.dtype}, expected {tuple(out.shape)} {out.dtype}"
            )
        if got.data_ptr() != out.data_ptr() or got.stride() != out.stride():
            out.copy_(got)
