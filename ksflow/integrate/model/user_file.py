"""A user's own file with a model: `model()`, `inputs()`, and `heldout()` for shapes that no model is to be shown.

The file runs here as it does in the user's program, with nothing around it.
"""

import inspect
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from ksflow.errors import ConfigError, catch_foreign, error_location, one_line
from ksflow.evaluation.sandbox.runners.torch_kernel import load_module

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
"""Of a call: those by place, those by name."""


@dataclass(frozen=True)
class UserModel:
    """A model, and the calls that count."""

    file: Path
    model: torch.nn.Module
    inputs: tuple[Arguments, ...]
    heldout: tuple[Arguments, ...]

    @cached_property
    def gpu(self) -> bool:
        """Whether it lies on one."""
        return any(tensor.is_cuda for tensor in (*self.model.parameters(), *self.model.buffers()))


def wait(gpu: bool) -> None:
    """Until a device has done what it was told."""
    if gpu:
        torch.cuda.synchronize()


def load(file: Path) -> UserModel:
    """What a file offers. A set of inputs is a tensor, a tuple of arguments or a mapping of named ones; several sets
    are a list. ConfigError where it lacks something, or its code fails."""
    if not file.is_file():
        raise ConfigError(f"there is no file {file}: name one that offers model() and inputs()")
    if inspect.getmodulename(str(file)) is None:
        raise ConfigError(f"{file} is no Python file: name one that offers model() and inputs()")
    if str(file.parent.resolve()) not in sys.path:
        sys.path.insert(0, str(file.parent.resolve()))
    with catch_foreign() as caught:
        module = load_module(file.stem, file)
        lacking = [name for name in ("model", "inputs") if not callable(getattr(module, name, None))]
        if not lacking:
            model, inputs = module.model(), module.inputs()
            held = module.heldout() if hasattr(module, "heldout") else []
    if caught:
        error = caught[0]
        raise ConfigError(
            f"{file}: {one_line(f'{type(error).__name__}: {error}', 300)}{error_location(error)}"
        ) from error
    if lacking:
        raise ConfigError(f"{file} offers no {lacking[0]}(): it needs model() and inputs()")
    if not isinstance(model, torch.nn.Module):
        raise ConfigError(f"{file}: model() returned {type(model).__name__}: return a torch.nn.Module in eval()")
    if model.training:
        raise ConfigError(
            f"{file}: model() is in training mode, in which no kernel is put in place: return it in eval()"
        )
    if not _sets(inputs):
        raise ConfigError(f"{file}: inputs() returned an empty list: return the arguments of at least one call")
    return UserModel(file.resolve(), model, _sets(inputs), _sets(held))


def _sets(value: Any) -> tuple[Arguments, ...]:
    return tuple(
        ((), dict(item)) if isinstance(item, Mapping) else (item if isinstance(item, tuple) else (item,), {})
        for item in (value if isinstance(value, list) else [value])
    )
