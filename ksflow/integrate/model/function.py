"""A function with the calls of one family, over the arrays in its arguments alone."""

import functools
import pickle
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from ksflow.errors import catch_foreign
from ksflow.formats.kernel.arrays import as_arrays, as_tensors
from ksflow.integrate.model import TEXTS
from ksflow.integrate.model.calls import Case, ModuleCall, meta
from ksflow.integrate.model.capture import Family, Seen, as_python, inside
from ksflow.integrate.model.graph import names_for
from ksflow.integrate.model.slices import Unsliceable, sliced
from ksflow.integrate.model.user_file import wait
from ksflow.records import Json

_AGAIN = 6
"""How often a function is called again with the arguments of a shape that was called once."""


class Function:
    """A function with the calls of one family, as it is called with the arrays alone."""

    def __init__(self, seen: Seen, family: Family, folder: Path) -> None:
        self._seen, self._folder = seen, folder
        self.family = family
        self.numpy = family.leaves[0][1] == "numpy"
        self.remarks: list[str] = []
        self.words = names_for([leaf[0] for leaf in family.leaves])
        file = Path(seen.facts["file"])
        self.roots = [at for at in seen.facts["path"] if file.is_relative_to(at) and not at.endswith("-packages")]
        """Where the package lies, if it is not an installed one."""
        self.module: torch.nn.Module | None = None
        self.inout = [word for word, leaf in zip(self.words, family.leaves, strict=True) if leaf[0] in family.written]
        self.returned, leaves, given = next(row["returns"] for row in family.rows if row["samples"])
        names = [leaf[0] for leaf in family.leaves]
        self.given = [names.index(name) if name in names else None for name in given]
        """Of each result the argument that it is, if it is one."""
        self._outputs = [at for at, name in enumerate(given) if name not in family.written]
        """Which of the results are no arguments that were changed."""
        places = _places(self.returned, "result")
        places = [
            places[at]
            if not self.numpy or leaves[at][3]
            else f"np.{'bool' if leaves[at][2] == 'bool' else 'positive'}({places[at]})"
            for at in self._outputs
        ]
        self.returns = places[0] if len(places) == 1 else f"({', '.join(places)})"

    @property
    def call(self) -> str:
        """The call over the arrays' names."""
        callee = self._seen.facts["callee"]
        arguments = []
        for name, by_name, node in self.family.nodes:
            if node[0] == "module":
                callee = f"module.{callee.rpartition('.')[2]}".removesuffix(".forward")
                continue
            text = as_python(node, self.words)
            arguments.append(f"{name}={text}" if by_name else text)
        return f"{callee}({', '.join(arguments)})"

    def case(self, number: int, row: Json, file: str) -> Case:
        """A call of which the contents are on record."""
        sys.path += [at for at in self.roots if not self.numpy and at not in sys.path]  # a module is of their own class
        record = pickle.loads((self._folder / file).read_bytes())
        self.module = self.module or record["module"]
        given, returned = as_tensors(record["in"]), as_tensors(record["out"])
        tensors = [
            torch.empty_strided(size, steps, dtype=tensor.dtype, device=tensor.device).copy_(tensor)
            for tensor, (_, _, _, size, steps, _) in zip(given, row["metas"], strict=True)
        ]
        inputs = tuple(map(meta, self.words, tensors))
        names = [leaf[0] for leaf in self.family.leaves]
        after = dict(zip(names, given, strict=True)) | as_tensors(record["after"])
        answer = [returned[at] for at in self._outputs]
        outputs = tuple(meta("", torch.empty_like(one)) for one in answer)
        changed = [after[name] for name in names if name in self.family.written]
        named = dict(zip(self.words, tensors, strict=True))
        made = ModuleCall("call", number, inputs, {}, outputs, None, "", named, tuple(self.inout))
        return Case(made, inputs, tuple(tensors), (*changed, *answer))

    def call_again(self, seconds: float) -> None:
        """Take the times of shapes that were called once, and so without warm caches, from further calls with the same
        arguments, for so many seconds. A time stays as it is where these fail or take longer."""
        rare = [row for row in self.family.rows if row["samples"] and len(row["times"]) == 1]
        until = float("inf")
        with catch_foreign():
            for row in sorted(rare, key=lambda row: -row["seconds"]):
                data, times = self.case(0, row, row["samples"][0]).data, list[float]()
                until = min(until, time.monotonic() + seconds * bool(self.alone))
                while len(times) < _AGAIN and time.monotonic() < until:
                    copies = [tensor.clone() for tensor in data]
                    wait(data[0].is_cuda)
                    began = time.perf_counter()
                    self.alone(*copies)
                    wait(data[0].is_cuda)
                    times.append(time.perf_counter() - began)
                if times[1:]:
                    row["again"] = statistics.median(times[1:])
                    row["seconds"] = min(row["again"] * row["calls"], row["seconds"])

    @functools.cached_property
    def alone(self) -> Callable[..., Any]:
        """The function over tensors alone, for further calls. Raises what their package raises, and Unsliceable."""
        if not self.numpy:
            return self.wrapped
        names: dict[str, Any] = {"as_arrays": as_arrays, "as_tensors": as_tensors}
        try:
            exec(self.forward(importing=False), names)
        except Unsliceable:
            exec(self.forward(importing=True), names)
        return cast("Callable[..., Any]", names["forward"])

    def source(self, importing: bool) -> str:
        """What defines the function: its own source with what that needs, or an import. Raises Unsliceable."""
        facts = self._seen.facts
        root = facts["callee"].partition(".")[0]
        classes = sorted({str(node[1]) for node in inside(self.family.nodes) if node[0] == "object"})
        head = TEXTS["OBJECT"] if classes else ""
        if not importing:
            return f"{sliced(Path(facts['file']), root, facts['path'], classes)}\n\n\n{head}"
        module = self._seen.target.partition(":")[0]
        path = f"import sys\n\nsys.path[:0] = {self.roots!r}\n" if self.roots else ""
        pairs = [one.replace("__main__:", f"{module}:").split(":") for one in (f"{module}:{root}", *classes)]
        lines = dict.fromkeys(f"from {where} import {name.partition('.')[0]}\n" for where, name in pairs)
        return f"{path}{''.join(lines)}\n\n{head}"

    def forward(self, importing: bool) -> str:
        """The reference's function in NumPy, over tensors."""
        words = ", ".join(self.words)
        return (
            f"import numpy as np\n\n{self.source(importing)}\n\ndef forward({words}):\n"
            f"    {words}{',' if len(self.words) == 1 else ''} = as_arrays(({words},))\n"
            f"    result = {self.call}\n    return as_tensors({self.returns})\n"
        )

    @functools.cached_property
    def wrapped(self) -> torch.nn.Module:
        """The function in torch as a module that takes the tensors alone. Raises what their package raises."""
        names: dict[str, Any] = {"torch": torch, "np": np}
        if self.module is None:
            exec(self.source(importing=True), names)
            self.remarks.append(f"{self._seen.target.partition(':')[0]} was imported to export it")
        names["module"] = self.module
        text = f"def forward({', '.join(self.words)}):\n    result = {self.call}\n    return {self.returns}\n"
        exec(text, names)
        made = torch.nn.Module()
        if self.module is not None:
            made.module = self.module
        made.forward = names["forward"]
        return made.eval()


def _places(node: Any, text: str) -> list[str]:
    """The arrays of a result, as Python."""
    if node[0] == "leaf":
        return [text]
    return [place for key, one in node[1] for place in _places(one, f"{text}[{key}]")] if node[0] != "const" else []
