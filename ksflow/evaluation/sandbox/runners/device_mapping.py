"""Device mapping: code written for `cuda` runs on another device."""

import contextlib
import random
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_IGNORED = ("synchronize", "empty_cache", "manual_seed", "manual_seed_all", "set_device", "reset_peak_memory_stats")


@contextlib.contextmanager
def cuda_means(where: str) -> Iterator[None]:
    """Create tensors and generators on `where` if the block asks for `cuda`; no change if `where` is cuda."""
    if where.startswith("cuda"):
        yield
        return
    originals = {name: getattr(torch.cuda, name) for name in (*_IGNORED, "device")}
    generator = torch.Generator
    try:
        for name in _IGNORED:
            setattr(torch.cuda, name, _ignored(name))
        torch.cuda.device = _Nowhere  # type: ignore[assignment,misc]
        torch.Generator = _generator(generator, where)  # type: ignore[assignment,misc]
        with _DeviceMapping(where):
            yield
    finally:
        torch.Generator = generator  # type: ignore[misc]
        for name, function in originals.items():
            setattr(torch.cuda, name, function)


class _Nowhere(contextlib.nullcontext[None]):
    """Stands for `torch.cuda.device` without a GPU."""


def _ignored(name: str) -> Any:
    """Return a function that does nothing. torch.compile needs a separate function for each name."""

    def nothing(*_: Any, **__: Any) -> None: ...

    nothing.__name__ = name
    return nothing


def _generator(real: Any, where: str) -> type:
    class Generator(real):  # type: ignore[misc]
        """Still a type, for annotations and `isinstance`; creates real generators."""

        def __new__(cls, device: Any = "cpu") -> Any:
            return real(device=where if _is_cuda(device) else device)

    return Generator


def _is_cuda(value: object) -> bool:
    if isinstance(value, torch.device):
        return value.type == "cuda"
    return isinstance(value, str) and value.partition(":")[0] == "cuda"


class _DeviceMapping(TorchFunctionMode):
    """Replaces the devices in every torch call."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self._where = where

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") == "cuda" and args:
            return args[0].to(self._where)
        options = {name: self._where if _is_cuda(value) else value for name, value in (kwargs or {}).items()}
        return func(*(self._where if _is_cuda(value) else value for value in args), **options)


def seeded(seed: int) -> None:
    """Seed the random generators that foreign code uses."""
    random.seed(seed)
    torch.manual_seed(seed)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed & 0xFFFFFFFF)
