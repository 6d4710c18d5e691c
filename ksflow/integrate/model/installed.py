"""Kernels of ksflow in the place of modules' own forward.

    install(model)       from now on these modules compute with the kernels; counters begin at 0
    report()             of each kernel: its hits, and its fallbacks with the reason
    uninstall(model)     the model is what it was

`regions.json` beside this file says which modules, and for which tensors their kernels were judged: sizes, strides,
type and device. A call with others, one in training, under autocast, or one that needs a gradient, goes to the
module's own forward. Each kernel is an operator of torch, `torch.ops.<namespace>.<region>`, so `torch.compile` and
`torch.export` go through; a program that was exported with it needs this package imported before it is loaded. Hits are
counted when a kernel runs (not when a CUDA graph repeats it), fallbacks where nothing is compiled.

Not covered: hooks on modules within a replaced one, which its kernel does not call; several GPUs in one process.
"""

import functools
import importlib
import inspect
import json
from collections import Counter
from pathlib import Path
from types import MethodType
from typing import Any

import torch

from .arguments import apart, classes, together
from .operators import Operator

_BEFORE = "_forward_before_ksflow"
"""Where a module keeps a forward that was replaced by others before."""


class InstalledRegion:
    """Modules that compute alike, and the kernel for them."""

    def __init__(self, about: dict[str, Any], package: str) -> None:
        self.name: str = about["name"]
        self.modules: list[str] = about["modules"]
        self.kind: str = about["class"]
        self.hits = 0
        self.fallbacks: Counter[str] = Counter()
        self._inputs: list[str] = about["inputs"]
        self._constants: dict[str, Any] = about["constants"]
        self._returns: Any = about.get("returns")
        self._parameters: list[str] = about["parameters"]
        self._kernel = functools.cache(lambda: importlib.import_module(f".{self.name}.module", package).custom_kernel)
        changed = [self._inputs.index(name) for name in about.get("changed", [])]
        cases = [(case["given"], case["outputs"]) for case in about["cases"]]
        self._operator = Operator((about["namespace"], self.name), cases, changed, about["device"], self._counted)

    def _counted(self) -> Any:
        """The kernel, which is called now."""
        self.hits += 1
        return self._kernel()

    def replace(self, module: torch.nn.Module) -> None:
        """Put the kernel in the place of a module's forward, which stays at hand."""
        known = inspect.signature(module.forward).parameters
        names = [name for name, one in known.items() if one.kind is not one.VAR_KEYWORD]
        placed = [name for name in names if known[name].kind <= inspect.Parameter.POSITIONAL_OR_KEYWORD]
        several = next((name for name in names if known[name].kind is known[name].VAR_POSITIONAL), "")
        default = {name: apart(() if name == several else known[name].default, name, {}) for name in names}
        known_classes = classes(self._returns)
        further = len(names) < len(known)  # it takes names of any kind
        usual = default | {key: value for key, value in self._constants.items() if further or key in default}
        usual |= {name: {"tensor": name} for name in self._inputs if name in usual or (further and "." not in name)}

        def forward(self_: torch.nn.Module, /, *args: Any, **kwargs: Any) -> Any:
            given = {**dict(zip(placed, args)), **kwargs}  # noqa: B905 - more arguments are seen by their count
            if several:
                given[several] = args[len(placed) :]
            found: dict[str, torch.Tensor] = {}
            rest = {**default, **{name: apart(value, name, found) for name, value in given.items()}}
            tensors = [found.get(name) for name in self._inputs] + [_entry(self_, name) for name in self._parameters]
            why, case = "arguments", 0
            known_names = (several or len(args) <= len(placed)) and rest.keys() == usual.keys()
            if known_names and all(_same(rest[name], usual[name]) for name in rest):
                training = any(part.training for part in self_.modules())
                why, case = ("training", 0) if training else self._operator.case(tensors)
            if why:
                if not torch.compiler.is_compiling():
                    self.fallbacks[why] += 1
                before = self_.__dict__.get(_BEFORE)
                return before(*args, **kwargs) if before else type(self_).forward(self_, *args, **kwargs)
            result = self._operator.call(*tensors, case)
            if self._returns is None:
                return result
            made = iter([result] if isinstance(result, torch.Tensor) else result or [])
            return together(self._returns, made, {**given, **found}, known_classes)

        if "forward" in module.__dict__:  # somebody has replaced it before
            module.__dict__[_BEFORE] = module.__dict__["forward"]
        forward._of_ksflow = True  # type: ignore[attr-defined]
        module.__dict__["forward"] = MethodType(forward, module)  # a copy of the model copies it with its module


def install(model: torch.nn.Module) -> torch.nn.Module:
    """Put the kernels in place, and the counters to 0; the model itself. ValueError where it is another model."""
    modules = dict(model.named_modules())
    for region in REGIONS:
        for name in region.modules:
            kind = f"{type(modules[name]).__module__}.{type(modules[name]).__qualname__}" if name in modules else "none"
            if kind.rpartition(".")[2] != region.kind.rpartition(".")[2]:
                raise ValueError(f"{name} is to be a {region.kind} and is {kind}: the kernels are for another model")
    uninstall(model)
    for region in REGIONS:
        region.hits = 0
        region.fallbacks.clear()
        for name in region.modules:
            region.replace(modules[name])
    return model


def uninstall(model: torch.nn.Module) -> torch.nn.Module:
    """Give modules their own forward back; the model itself."""
    modules = dict(model.named_modules())
    for module in (modules[name] for region in REGIONS for name in region.modules if name in modules):
        if getattr(module.__dict__.get("forward"), "_of_ksflow", False):
            del module.__dict__["forward"]
            if _BEFORE in module.__dict__:
                module.__dict__["forward"] = module.__dict__.pop(_BEFORE)
    return model


def report() -> dict[str, dict[str, Any]]:
    """Of each region since `install`: `hits`, and `fallbacks` with the reason and how many there were."""
    return {region.name: {"hits": region.hits, "fallbacks": dict(region.fallbacks)} for region in REGIONS}


def _entry(module: torch.nn.Module, name: str) -> Any:
    """What a name in a module's state leads to."""
    return functools.reduce(getattr, name.split("."), module)


def _plain(value: Any) -> Any:
    """A constant as Python code gives it: JSON has no tuples."""
    return tuple(map(_plain, value)) if isinstance(value, list | tuple) else value


def _same(value: Any, other: Any) -> bool:
    if value is other:
        return True
    value, other = _plain(value), _plain(other)
    if type(value) is not type(other) or isinstance(value, torch.Tensor):
        return False
    if isinstance(value, tuple):
        return len(value) == len(other) and all(_same(*pair) for pair in zip(value, other, strict=True))
    if isinstance(value, dict):
        return value.keys() == other.keys() and all(_same(part, other[key]) for key, part in value.items())
    return bool(value == other) or (isinstance(value, float) and value != value and other != other)


_HERE = json.loads(Path(__file__).with_name("regions.json").read_text(encoding="utf-8"))
REGIONS = [InstalledRegion(about, __name__) for about in _HERE["regions"]]
