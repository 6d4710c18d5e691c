"""What a patched function takes in a program, beside the function as it was before.

Both are called in turns on the same arguments, which lie in the caches as those of a program do. They run in a process
of their own, but in no sandbox, as in the program that they are for: only a module that the judge found right is timed.
"""

import importlib
import inspect
import operator
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from ksflow.evaluation.sandbox.runners.torch_kernel import load_module
from ksflow.formats.isolated import IsolatedFailure, answer_order, run_isolated
from ksflow.integrate.model.user_file import wait
from ksflow.records import Json

_TIMEOUT_S = 120.0
"""Of the process, which imports the person's package and compiles the kernel."""
_SECONDS, _LEAST, _MOST = 8.0, 5, 1000
"""The time that all calls may take, and how often each function is called for a case."""


def time_beside(order: Json) -> tuple[list[Json], str]:
    """The rows of `replies`, or none where nothing was timed; and why what is not timed is not."""
    with tempfile.TemporaryDirectory(prefix="ksflow-") as scratch:
        try:
            rows: list[Json] = run_isolated("ksflow.integrate.model.timed", order | {"scratch": scratch}, _TIMEOUT_S)
        except IsolatedFailure as error:
            return [], str(error)
    why = ", ".join(sorted({row["why"] for row in rows if row["why"]}))
    return ([] if all(row["why"] for row in rows) else rows), why


def replies(order: Json) -> list[Json]:
    """In a process of its own: for each case its `name`, `before` and `after` in µs, and `why` where they are unknown.

    order: `root` and `device` of the problem, its `cases`, the number of arrays (`count`), `inout`, `arrays` (whether
    they are NumPy's), the person's `path`, `module`, `file` and `callee`, the new `text` of the file, and `beside`: the
    name and the text of the module with the kernel.
    """
    sys.path[:0] = [folder for folder in order["path"] if folder not in sys.path and not folder.endswith("-packages")]
    os.environ["XDG_CACHE_HOME"] = order["scratch"]  # where a patch keeps its compiled kernel
    reference = load_module("reference_of_problem", Path(order["root"], "reference.py"))
    original = importlib.import_module(order["module"])
    name, text = order["beside"]
    kernel = _executed(name, original, text, str(Path(order["file"]).with_name("beside.py")))
    sys.modules[name] = kernel
    modules = (original, _executed(original.__name__, original, order["text"], order["file"]))
    return [_timed(order, case, reference, modules, kernel) for case in order["cases"]]


def _executed(name: str, like: ModuleType, text: str, file: str) -> ModuleType:
    """A module of this text in the package of another."""
    made = ModuleType(name)
    own = ("__package__", "__path__", "__spec__")
    made.__dict__.update({key: value for key, value in vars(like).items() if key in own}, __file__=file)
    exec(compile(text, file, "exec", dont_inherit=True), made.__dict__)
    return made


def _timed(order: Json, case: Json, reference: ModuleType, modules: Sequence[ModuleType], kernel: ModuleType) -> Json:
    """The row of a case."""
    generate, gpu = reference.generate_input, order["device"] == "cuda"
    there = {"device": order["device"]} if "device" in inspect.signature(generate).parameters else {}
    data = [*generate(**case["params"], **there, seed=case["seed"])][: order["count"]]
    arrays = [one.numpy() for one in data] if order["arrays"] else data
    kept = [(arrays[at], data[at].clone()) for at in order["inout"]]
    calls = [_call(module, order["callee"], kernel.__dict__["_KSFLOW_ARGUMENTS"], arrays) for module in modules]

    def once(call: Callable[[], Any]) -> float:
        for one, contents in kept:
            one[...] = contents
        wait(gpu)
        began = time.perf_counter()
        answer = call()
        wait(gpu)
        took = (time.perf_counter() - began) * 1e6
        del answer
        return took

    kernel.__dict__["kernel_calls"].clear()
    until = time.monotonic() + _SECONDS / len(order["cases"])
    times = [[once(call) for _ in range(2)][1:] for call in calls]  # the first call compiles the kernel
    while len(times[0]) < _MOST and (len(times[0]) < _LEAST or time.monotonic() < until):
        for place in (0, 1) if len(times[0]) % 2 else (1, 0):
            times[place].append(once(calls[place]))
    why = ", ".join(set(kernel.__dict__["kernel_calls"]) - {"kernel"})
    before, after = map(statistics.median, times)
    return {
        "name": case["name"],
        "before": before,
        "after": after,
        "why": why and f"the kernel does not take the arguments of a recorded call when they are made again ({why})",
    }


def _call(module: ModuleType, callee: str, wanted: Json, arrays: Sequence[Any]) -> Callable[[], Any]:
    """A call of a module's function with the arguments that its kernel is for."""
    function = operator.attrgetter(callee)(module)
    bound = inspect.BoundArguments(
        inspect.signature(function),
        {name: _built(one, arrays, module) for name, one in wanted.items()},
    )
    args, named = bound.args, bound.kwargs
    return lambda: function(*args, **named)


def _built(wanted: Any, arrays: Sequence[Any], module: ModuleType) -> Any:
    """An argument as in the judged calls."""
    kind = type(wanted)
    if kind.__name__ == "_ksflow_array":
        return arrays[wanted.place]
    if kind.__name__ == "_ksflow_object":
        where, _, name = wanted.kind.partition(":")
        made: Any = operator.attrgetter(name)(module if where == module.__name__ else importlib.import_module(where))
        made = object.__new__(made)
        vars(made).update(_built(wanted.attributes, arrays, module))
        return made
    if kind is dict:
        return {key: _built(one, arrays, module) for key, one in wanted.items()}
    return kind(_built(one, arrays, module) for one in wanted) if kind in (list, tuple) else wanted


if __name__ == "__main__":
    answer_order(replies)
