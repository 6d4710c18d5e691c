"""TritonBench's files: the tests run here, and each call that they make of a function under test is a case.

`calls` tells which calls can be one.
"""

import copy
import inspect
import os
import signal
import sys
import time
import types
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch

from ksflow.errors import catch_foreign
from ksflow.evaluation.sandbox.runners.device_mapping import seeded
from ksflow.evaluation.sandbox.runners.pytree import Tree, build, flatten
from ksflow.formats.runtime import Params, SourceFiles, Task, vary_contents
from ksflow.records import Json

_MOST = 64  # calls of one file


class _Stop(BaseException):
    """The call that was asked for has been made, or the time is up."""


@dataclass(frozen=True)
class CapturedCall:
    """One call of a function under test, with its arguments as they were before it."""

    function: str
    arguments: list[Any]
    keywords: tuple[str, ...]  # names that the last arguments go by
    took_s: float = 0.0


class TritonBench(Task):
    """spec: `functions` under test, `rtol`, `atol`."""

    def __init__(self, files: SourceFiles, spec: Json) -> None:
        if not torch.cuda.is_available():
            os.environ["TRITON_INTERPRET"] = "1"
        self._golden = files.load("golden.py")
        self._tests = (files.folder / "tests_of_task.txt").read_text(encoding="utf-8")
        self._name = (files.folder / "name.txt").read_text(encoding="utf-8")
        self._spec = spec
        self._call = cache(lambda number: self._recorded(1, number)[-1])
        self.fixed = cache(self._fixed)

    def call_spec(self, params: Params) -> Json:
        call = self._call(int(params["call"]))
        return {"entry": call.function, "spread": True, "keywords": list(call.keywords)}

    def inputs(self, params: Params, seed: int) -> Tree:
        number = int(params["call"])
        fixed = self.fixed(number)
        shape, leaves = flatten(self._recorded(seed, number)[-1].arguments)
        seeded(seed)
        return build(shape, [vary_contents(leaf) if index in fixed else leaf for index, leaf in enumerate(leaves)])

    def answer(self, tree: Tree, params: Params) -> Tree:
        call = self._call(int(params["call"]))
        plain = len(tree) - len(call.keywords)
        named = dict(zip(call.keywords, tree[plain:], strict=True))
        return getattr(self._golden, call.function)(*tree[:plain], **named)

    def tolerance(self, output: torch.Tensor) -> tuple[float, float]:
        """As wide as a number format's own steps at least."""
        numbers = output.is_floating_point() or output.is_complex()
        step = 4 * torch.finfo(output.dtype).eps if numbers else 0.0
        return max(self._spec["rtol"], step), self._spec["atol"]

    def record_calls(self, most_s: float = 0.0) -> list[CapturedCall]:
        """All calls that the tests make, within that time where it is not 0. For the main thread."""

        def stop(*_: object) -> None:
            raise _Stop

        handler = signal.signal(signal.SIGALRM, stop)
        signal.setitimer(signal.ITIMER_REAL, most_s)
        try:
            return self._recorded(0, _MOST)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, handler)

    def _fixed(self, number: int) -> set[int]:
        """Tensors that tests fill alike for every seed; whole numbers, which may be indices, if nothing else varies."""
        left, right = (flatten(self._recorded(seed, number)[-1].arguments)[1] for seed in (1, 2))
        alike = [place for place, (mine, theirs) in enumerate(zip(left, right, strict=True)) if are_equal(mine, theirs)]
        floats = {place for place in alike if left[place].is_floating_point() and bool(left[place].double().any())}
        whole = {place for place in alike if not (left[place].is_floating_point() or left[place].is_complex())}
        return floats if floats or len(alike) < len(left) else whole

    def _recorded(self, seed: int, last: int) -> list[CapturedCall]:
        """The calls up to that one, made under a seed."""
        calls: list[CapturedCall] = []
        names = self._spec["functions"]
        under = {name: _recording(name, getattr(self._golden, name), calls, last) for name in names}
        module = types.ModuleType(self._name)
        module.__dict__.update(self._golden.__dict__ | under | {"__name__": "__main__"})
        before = sys.modules.get(self._name)
        sys.modules[self._name] = module
        seeded(seed)
        try:
            with catch_foreign() as caught, torch.enable_grad(), suppress(_Stop), redirect_stdout(sys.stderr):
                exec(compile(self._tests, f"{self._name} (tests)", "exec"), module.__dict__)
        finally:
            sys.modules.pop(self._name, None)
            sys.modules.update({self._name: before} if before else {})
        if caught and not calls:  # what was called before it failed counts
            raise caught[0]
        return calls


create = TritonBench


def are_equal(mine: torch.Tensor, theirs: torch.Tensor) -> bool:
    """Whether two tensors have one shape, and one content."""
    return mine.shape == theirs.shape and torch.equal(mine.nan_to_num(), theirs.nan_to_num())


def _recording(name: str, function: Callable[..., Any], calls: list[CapturedCall], last: int) -> Callable[..., Any]:
    """A function that notes its arguments, then answers."""
    signature = inspect.signature(function)

    def recorded(*arguments: Any, **keywords: Any) -> Any:
        bound = signature.bind(*arguments, **keywords)
        place = len(calls)
        calls.append(_noted(name, bound))
        if len(calls) > last or len(calls) >= _MOST:
            raise _Stop
        started = time.perf_counter()
        try:
            return function(*arguments, **keywords)
        finally:
            calls[place] = replace(calls[place], took_s=time.perf_counter() - started)

    return recorded


def _noted(name: str, bound: inspect.BoundArguments) -> CapturedCall:
    """The call with its arguments by place, defaults between them included, then those that only have names."""
    kinds = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
    by_place = {key: parameter for key, parameter in bound.signature.parameters.items() if parameter.kind not in kinds}
    named = {key: value for key, value in bound.kwargs.items() if key not in by_place}
    last = max((index for index, key in enumerate(by_place) if key in bound.arguments), default=-1)
    values: list[Any] = []
    for key, parameter in [*by_place.items()][: last + 1]:
        if parameter.kind is parameter.VAR_POSITIONAL:
            values += bound.arguments.get(key, ())
        else:
            values.append(bound.arguments.get(key, parameter.default))
    shape, leaves = flatten([*values, *named.values()])
    copies = [leaf.detach() for leaf in leaves]
    for index, leaf in enumerate(copies):  # where one element is seen often, a copy cannot have the same strides
        repeats = any(step == 0 and size > 1 for step, size in zip(leaf.stride(), leaf.shape, strict=True))
        copies[index] = leaf.contiguous() if repeats else leaf.clone()
    return CapturedCall(name, build(copy.copy(shape), copies), tuple(named))
