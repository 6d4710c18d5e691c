"""Calls of a model's modules: arguments and results as tensors without contents, and what is changed in place."""

import inspect
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch

from ksflow.errors import catch_foreign, one_line
from ksflow.integrate.model.arguments import apart, objects, others, replaced
from ksflow.integrate.model.user_file import Arguments
from ksflow.records import Json

Shapes = tuple[tuple[int, ...], ...]


class Meta(NamedTuple):
    """A tensor without its contents."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    stride: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * int(getattr(torch, self.dtype).itemsize)

    def __str__(self) -> str:
        plain = torch.empty(self.shape, device="meta").stride() == self.stride
        return f"{self.name} {list(self.shape)} {self.dtype}{'' if plain else f' strides {list(self.stride)}'}"


@dataclass(frozen=True)
class ModuleCall:
    """One call of a module, as it was met."""

    module: str
    number: int
    """Of the set of inputs."""
    inputs: tuple[Meta, ...]
    constants: Json
    """Arguments that are no tensors; those that hold some, as `arguments.apart` has them."""
    outputs: tuple[Meta, ...]
    returns: Any
    """Where they are in what it returns, as `arguments.apart` has it."""
    unfit: str
    """Why a kernel could not take its place; empty where it could."""
    given: dict[str, Any] = field(default_factory=dict, compare=False)
    """All arguments, where they were to be kept."""
    written: tuple[str, ...] = ()
    """The inputs that it changes in place."""

    @property
    def input_shapes(self) -> Shapes:
        return tuple(tensor.shape for tensor in self.inputs)

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        """The tensors in the arguments that were kept."""
        found = dict[str, torch.Tensor]()
        for name, value in self.given.items():
            apart(value, name, found)
        return tuple(found.values())


@dataclass(frozen=True)
class Case:
    """A call that is a case, with its tensors in the order of a kernel's."""

    call: ModuleCall
    tensors: tuple[Meta, ...]
    data: tuple[torch.Tensor, ...]
    answer: tuple[torch.Tensor, ...] = ()
    """The tensors that it changed, then those that it returned."""

    @property
    def every(self) -> tuple[Meta, ...]:
        """Its tensors, outputs last."""
        return (*self.tensors, *self.call.outputs)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        return tuple(tensor.shape for tensor in self.every)


def arguments_for(module: torch.nn.Module, given: dict[str, Any]) -> Arguments:
    """Arguments by name, as the module's forward takes them."""
    signature = inspect.signature(module.forward)
    bound = signature.bind_partial()
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            bound.arguments[name] = {key: given[key] for key in given if key not in signature.parameters}
        elif name in given:
            bound.arguments[name] = given[name]
    return bound.args, bound.kwargs


def call_again(
    module: torch.nn.Module, call: ModuleCall, tensors: Sequence[torch.Tensor] = ()
) -> tuple[torch.Tensor, ...]:
    """Call a module with copies of the arguments that were kept; the tensors that it changed, then those that it
    returned. tensors: in the places of the arguments' own, of which there are copies otherwise."""
    there = tensors or [tensor.clone() for tensor in call.tensors]
    named = dict(zip((tensor.name for tensor in call.inputs), there, strict=True))
    given = {name: replaced(value, name, named) for name, value in call.given.items()}
    args, kwargs = arguments_for(module, given)
    results = dict[str, torch.Tensor]()
    apart(module(*args, **kwargs), "", results, objects(given) | {id(named[name]): name for name in call.written})
    return (*(named[name] for name in call.written), *results.values())


def record_calls(
    model: torch.nn.Module, sets: Sequence[Arguments], keep: Collection[str] = (), first: int = 0
) -> list[ModuleCall]:
    """Every call of every module within a model. keep: of which modules arguments are kept. first: the sets' number."""
    calls: list[ModuleCall] = []
    begun: list[tuple[Any, ...]] = []
    number = first

    def begins(name: str, module: torch.nn.Module, args: Any, named: Any) -> None:
        bound, why = _bound(module, args, named)
        tensors, given = dict[str, torch.Tensor](), dict[str, Any]()
        shapes = {key: apart(value, key, tensors) for key, value in bound.items()}
        if name in keep:
            clones = {key: tensor.clone() for key, tensor in tensors.items()}
            given = {key: replaced(value, key, clones) for key, value in bound.items()}
        begun.append((name, bound, given, shapes, tensors, _versions(module, tensors), why))

    def ends(name: str, module: torch.nn.Module, _: Any, output: Any) -> None:
        while (call := begun.pop())[0] != name:
            pass  # one that raised, which a module around it caught
        _, bound, given, shapes, tensors, versions, why = call
        outputs = dict[str, torch.Tensor]()
        constants = {key: shape for key, shape in shapes.items() if key not in tensors}
        written, changes = _written(module, bound, shapes, versions)
        returns = apart(output, "", outputs, objects(bound) | {id(tensors[key]): key for key in written})
        why = why or _unfit(module, tensors, constants, written) or changes
        why = why or _unreturnable(output, outputs, returns, {name: tensors[name] for name in written})
        calls.append(
            ModuleCall(
                name,
                number,
                tuple(meta(key, tensor) for key, tensor in tensors.items()),
                constants if not why else {},
                tuple(meta("", torch.empty_like(tensor)) for tensor in outputs.values()),
                returns if outputs or returns is not None else {"plain": None},
                why,
                given,
                tuple(written),
            )
        )

    with watching([*model.named_modules()][1:], begins, ends):
        for number, (args, named) in enumerate(sets, start=first):  # noqa: B007 - read by the hooks
            model(*args, **named)
    return calls


@contextmanager
def watching(
    modules: Iterable[tuple[str, torch.nn.Module]], begins: Callable[..., None], ends: Callable[..., None]
) -> Iterator[None]:
    """Tell of each call of modules with these names; scripted ones cannot be watched.

    begins: takes the name, the module, and its arguments by place and by name. ends: takes the name, the module, its
    arguments by place, and what it returns.
    """
    handles = []
    for name, part in modules:
        if not isinstance(part, torch.jit.ScriptModule):
            handles.append(part.register_forward_pre_hook(partial(begins, name), with_kwargs=True))
            handles.append(part.register_forward_hook(partial(ends, name)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _bound(module: torch.nn.Module, args: Any, named: Any) -> tuple[dict[str, Any], str]:
    """Arguments by name; where the module's forward does not take them as it says, none and why."""
    with catch_foreign() as caught:
        signature = inspect.signature(module.forward)
        bound = dict(signature.bind(*args, **named).arguments)
        for name, parameter in signature.parameters.items():
            if parameter.kind is parameter.VAR_KEYWORD:
                bound |= bound.pop(name, {})
        return bound, ""
    return {}, f"is called otherwise than its forward says ({one_line(str(caught[0]), 100)})"


def _written(module: torch.nn.Module, bound: Json, shapes: Json, versions: Json) -> tuple[list[str], str]:
    """The inputs that a call wrote into, and what else it changed, as a reason against a kernel."""
    tensors, names = dict[str, torch.Tensor](), list[str]()
    for key, value in bound.items():
        if repr(apart(value, key, tensors)) != repr(shapes[key]):
            return [], f"changes {key}, a {type(value).__name__}, otherwise than by writing into its tensors"
    for name, (tensor, version) in _versions(module, tensors).items():
        before, known = versions.get(name, (None, -1))
        if tensor is before and version == known:
            continue
        if name not in tensors or tensor is not before:
            return [], f"writes into its {name}" if name not in tensors else f"replaces its input {name}"
        names.append(name)
    return names, ""


def _versions(module: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> dict[str, tuple[torch.Tensor, int]]:
    """Each tensor that a call could write into, with torch's count of the writes (which inference mode leaves out)."""
    there = {**inputs}
    there |= {f"parameter {name}": tensor for name, tensor in module.named_parameters()}
    there |= {f"buffer {name}": tensor for name, tensor in module.named_buffers()}
    return {name: (tensor, 0 if tensor.is_inference() else tensor._version) for name, tensor in there.items()}


def _unfit(module: torch.nn.Module, tensors: dict[str, torch.Tensor], constants: Json, written: Sequence[str]) -> str:
    """Why no kernel could take a module's place in a call with these arguments; empty where one could."""
    if strange := [value for shape in constants.values() for value in others(shape) if not _plain(value)]:
        return f"takes a {type(strange[0]).__name__}"
    if not tensors:
        return "takes no tensor"
    if any(size > 1 and not step for t in tensors.values() for size, step in zip(t.shape, t.stride(), strict=True)):
        return "takes an expanded input"
    if trains := [name for name, part in module.named_modules() if part.training]:
        return f"is in training mode{trains[0] and f' in {trains[0]}'}"
    memory = Counter(tensor.untyped_storage().data_ptr() for tensor in tensors.values())
    if shared := [name for name in written if memory[tensors[name].untyped_storage().data_ptr()] > 1]:
        return f"writes into its input {shared[0]}, whose memory is another input's, too"
    return ""


def _unreturnable(output: Any, outputs: dict[str, torch.Tensor], returns: Any, written: dict[str, torch.Tensor]) -> str:
    """Why a kernel could not return what a module returned; empty where it could."""
    if not (outputs or written) or any(value is not None for value in others(returns)):
        return f"returns a {type(output).__name__}"
    if "<locals>" in repr(returns):
        return f"returns a {type(output).__name__}, which no other program can import"
    memory = {tensor.untyped_storage().data_ptr(): name for name, tensor in written.items()}
    for tensor in outputs.values():
        if name := memory.get(tensor.untyped_storage().data_ptr()):
            return f"writes into its input {name} and returns a view of it"
    return ""


def meta(name: str, tensor: torch.Tensor) -> Meta:
    """A tensor without its contents."""
    return Meta(name, tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), tuple(tensor.stride()))


def _plain(value: Any) -> bool:
    """Whether JSON holds it."""
    return (
        value is None
        or isinstance(value, bool | int | float | str)
        or (isinstance(value, list | tuple) and all(map(_plain, value)))
    )
