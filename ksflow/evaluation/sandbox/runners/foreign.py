"""Calls of candidates in another project's format: arguments are made of a slot's tensors, results written to it.

`binding`, from the judge: `entry`: a function's name, or `class:NAME` for a module that is created once per case from
`init` (packed arguments) after seeding with `seed` (of several names the first that exists); `state`: a module beside
the kernel, whose `Model` hands its weights over; `spread`: arguments are passed one by one, not as one; `keywords`:
names of the last arguments; `types`: the types of the reference's results, one for each of `results`; `device`: the
meaning of `cuda` where there is none.
"""

import contextlib
import importlib
import math
import zlib
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, cast

import torch
from torch.nn.parameter import is_lazy

from ksflow.evaluation.sandbox.runners.cpu import Call, Json, WrongResult
from ksflow.evaluation.sandbox.runners.device_mapping import cuda_means, seeded
from ksflow.evaluation.sandbox.runners.pytree import build, flatten_result, ordered, unpack

_SPREAD, _TINY = 0.1, 0.02  # a constant is drawn with a spread of a tenth, at least so much


def bound(module: ModuleType, binding: Json, where: str) -> Callable[[Sequence[torch.Tensor]], Call]:
    """Return a function: tensors of a slot -> a ready call."""
    function = _function(module, binding, where)
    tree = unpack(binding["tree"])
    like = unpack(binding["result_tree"])

    def ready(tensors: Sequence[torch.Tensor]) -> Call:
        data = build(tree, [tensors[place] for place in binding["order"]])
        outputs = [tensors[place] for place in binding["results"]]
        arguments = [*data] if binding.get("spread") else [data]
        keywords = binding.get("keywords", ())
        named = dict(zip(keywords, arguments[len(arguments) - len(keywords) :], strict=True))
        arguments = arguments[: len(arguments) - len(keywords)]

        def call() -> None:
            result = function(*arguments, **named)
            _settle(result, like, outputs, binding["types"])

        def mapped() -> None:
            with cuda_means(binding["device"]):
                call()

        return mapped if binding["device"] else call

    return ready


def missing_entry(module: ModuleType, name: str) -> AttributeError:
    """Return the error for a kernel without its entry, which names a function that exists."""
    own = [other for other, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
    return AttributeError(f"the kernel defines no {name}{f', but {own[-1]}' if own else ''}")


def _function(module: ModuleType, binding: Json, where: str) -> Callable[..., Any]:
    kind, _, name = binding["entry"].rpartition(":")
    names = name.split(",")
    entry = next((found for one in names if (found := getattr(module, one, None)) is not None), None)
    if entry is None:
        raise missing_entry(module, " and no ".join(names))
    if kind != "class":
        return cast(Callable[..., Any], entry)
    init = unpack(binding["init"])
    with cuda_means(binding["device"] or "cuda"):
        state = binding.get("state")
        instance = make(entry, init, binding["seed"], where, where if state else None)
        if state:
            model = make(importlib.import_module(state).Model, init, binding["seed"], where, where)
            instance.load_state_dict(model.state_dict(), strict=True)
        if dtype := binding.get("dtype"):
            instance = instance.to(getattr(torch, dtype))
    if not binding.get("training", True):  # else as its author left it: a part may be in eval()
        instance.eval()
    return cast(Callable[..., Any], instance)


def make(kind: Callable[..., Any], arguments: Sequence[Any], seed: int, where: str, on: str | None) -> Any:
    """Return a model on a device, with weights that depend on the seed alone. on: where tensors are made first."""
    seeded(seed)
    with torch.device(on) if on else contextlib.nullcontext():
        return draw_constants(kind(*arguments)).to(where)


def draw_constants(model: Any) -> Any:
    """Return the model, with constant parameters and running statistics drawn around their value.

    A kernel then has to read a weight of 1 or a bias of 0. The draw depends on the tensor's shape and on the number of
    such tensors before it, so two models with the same parameters in the same order stay alike.
    """
    statistics = [(name, one) for name, one in model.named_buffers() if name.endswith(("running_mean", "running_var"))]
    seen: dict[tuple[int, ...], int] = {}
    with torch.no_grad():
        for _, tensor in (*model.named_parameters(), *statistics):
            if is_lazy(tensor) or not (tensor.is_floating_point() and tensor.numel()):
                continue
            value = float(tensor.flatten()[0])
            if not (math.isfinite(value) and bool((tensor == value).all())):
                continue
            shape = tuple(tensor.shape)
            number = seen[shape] = seen.get(shape, 0) + 1
            generator = torch.Generator().manual_seed(zlib.crc32(repr((shape, number)).encode()))
            drawn = torch.randn(shape, generator=generator).mul_(max(abs(value) * _SPREAD, _TINY))
            tensor.copy_(value + (math.copysign(1.0, value) * drawn.abs() if value else drawn))
    return model


def array_remedy(result: Any) -> str:
    """Return the end of a message about a result that is, or holds, an array of NumPy; empty for any other."""
    several = result if isinstance(result, tuple | list) else (result,)
    held = any(type(one).__name__ == "ndarray" for one in several)
    return ": an array becomes a tensor with torch.from_numpy" if held else ""


def _settle(result: Any, like: Any, outputs: Sequence[torch.Tensor], types: Sequence[str]) -> None:
    """Copy the result into the slot; dicts in the order of `like`, the reference's result.

    A tensor must have the output's type, or the type that the reference returns, which may be wider. A number counts as
    a tensor of any type. Raises WrongResult.
    """
    try:
        tensors = flatten_result(ordered(result, like))
    except KeyError as error:
        raise WrongResult(f"the kernel returned a dict {error.args[0]}") from error
    if len(tensors) != len(outputs):
        remedy = array_remedy(result)
        raise WrongResult(f"the kernel returned {len(tensors)} tensors, expected {len(outputs)}{remedy}")
    for got, out, kind in zip(tensors, outputs, types, strict=True):
        value = got if isinstance(got, torch.Tensor) else torch.as_tensor(got)
        if value.shape != out.shape:
            raise WrongResult(f"the kernel returned {tuple(value.shape)}, expected {tuple(out.shape)}")
        known = {out.dtype, getattr(torch, kind)}
        if isinstance(got, torch.Tensor) and got.dtype not in known:
            raise WrongResult(f"the kernel returned {got.dtype}, expected {' or '.join(sorted(map(str, known)))}")
        if value.data_ptr() != out.data_ptr():
            out.copy_(value)
