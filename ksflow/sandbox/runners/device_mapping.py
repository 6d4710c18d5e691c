"""Code that was written for one device, run on another: meanwhile, `cuda` means what the judge says."""

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
    """Meanwhile, tensors and generators asked for on `cuda` are made on `where`; nothing where that is cuda."""
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
    """A device to be on, where there is none."""


def _ignored(name: str) -> Any:
    """What there is to do on a device that is not there. Torch's compiler wants each to be a function of its own."""

    def nothing(*_: Any, **__: Any) -> None: ...

    nothing.__name__ = name
    return nothing


def _generator(real: Any, where: str) -> type:
    class Generator(real):  # type: ignore[misc]
        """Still a type, for annotations and `isinstance`; what it makes are the real ones."""

        def __new__(cls, device: Any = "cpu") -> Any:
            return real(device=where if _is_cuda(device) else device)

    return Generator


def _is_cuda(value: object) -> bool:
    if isinstance(value, torch.device):
        return value.type == "cuda"
    return isinstance(value, str) and value.partition(":")[0] == "cuda"


class _DeviceMapping(TorchFunctionMode):
    """Every call of torch's, with its devices exchanged."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self._where = where

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") == "cuda" and args:
            return args[0].to(self._where)
        options = {name: self._where if _is_cuda(value) else value for name, value in (kwargs or {}).items()}
        return func(*(self._where if _is_cuda(value) else value for value in args), **options)


def seeded(seed: int) -> None:
    """Seed what foreign code draws from."""
    random.seed(seed)
    torch.manual_seed(seed)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed & 0xFFFFFFFF)
