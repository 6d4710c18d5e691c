"""What the cases of a foreign problem are made of, found by running its reference in a process of its own.

    python -m ksflow.formats.describe < order.json

The order: `reference` (a file), `device`, `memory` (bytes), `generate_s`, `run_s`, `total_s` (seconds), `ladder`: sets
of cases, smallest first, and `first`: whether the smallest that runs is wanted. Each set is tried until one takes too
long or too much, or fails in a way that no size would change; the largest that did not is described. Prints one line of
JSON: `step` (which set), `cases` (for each the tensors) and `tried` (of sets that were not taken: which, why, and
whether a `limit` was met, an `error` came up, or one that comes up `always`).
"""

import resource
import time
import traceback
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ksflow.errors import error_location, own_line
from ksflow.evaluation.judge.elements import is_constant, is_unsteady
from ksflow.evaluation.judge.tolerance import AT_RANDOM
from ksflow.evaluation.sandbox.runners.torch_kernel import load_module
from ksflow.formats.isolated import answer_order
from ksflow.formats.runtime import as_tuple
from ksflow.records import Json

_ALWAYS = (ArithmeticError, AttributeError, ImportError, NameError, NotImplementedError, SystemExit, TypeError)
"""Failures that have nothing to do with how large a case is."""
_MAKING = 10  # how much longer than its inputs the reference, such as a model, may take to be made


class _Narrowing(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the first line on which numbers in float64 go on in a narrower format."""

    line = ""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        wide = args and isinstance(args[0], torch.Tensor) and args[0].dtype is torch.float64
        if wide and isinstance(out, torch.Tensor) and out.is_floating_point() and out.dtype is not torch.float64:
            self.line = self.line or f"{str(out.dtype).removeprefix('torch.')}{own_line(traceback.extract_stack())}"
        return out


class Unfit(Exception):
    """A case that is not taken: `kind` as in `tried`, and why."""

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(why)
        self.kind = kind


def describe(order: Json) -> Json:
    """The largest set that runs within the limits."""
    if order["device"] == "cpu" and order["memory"]:
        most, hard = order["memory"] + (8 << 30), resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
    module = load_module("ksflow_described", Path(order["reference"]))
    description: Json = {"step": None, "cases": [], "tried": []}
    for step, cases in enumerate(order["ladder"]):
        try:
            try:
                rows = _rows(module, cases, order)
            except Unfit as unfit:
                if unfit.kind != "limit" or description["step"] is not None:
                    raise
                rows = _rows(module, cases, order)  # the first time may be slow for being the first
            description |= {"step": step, "cases": rows}
        except Unfit as unfit:
            description["tried"].append([step, str(unfit), unfit.kind])
            if unfit.kind != "error":
                break  # larger ones take longer still, or fail alike
        if order["first"] and description["step"] is not None:
            break
    return description


def _rows(module: Any, cases: list[Json], order: Json) -> list[Json]:
    """What each case is made of. Raises Unfit."""
    rows: list[Json] = []
    spent = 0.0
    for case in cases:
        try:
            row = _row(module, case, order["device"], not rows)
        except MemoryError as error:
            raise Unfit("limit", f"{case['name']}: not enough memory") from error
        except (Exception, SystemExit) as error:  # foreign code
            text = f"{case['name']}: {type(error).__name__}: {error}".splitlines()[0][:300] + error_location(error)
            short = "alloc" in text or "memory" in text
            kind = "limit" if short else "always" if isinstance(error, _ALWAYS) else "error"
            raise Unfit(kind, text) from error
        if row["unsteady"]:
            raise Unfit("always", f"{case['name']}: ref_kernel {AT_RANDOM}")
        if excess := _beyond(row, order):
            raise Unfit("limit", f"{case['name']}: {excess}")
        rows.append(row)
        spent += row["generate_s"] + row["run_s"]
        if len(order["ladder"]) > 1 and spent > order["total_s"]:
            raise Unfit("limit", f"all {len(cases)} cases together take more than the {order['total_s']:g} s they may")
    return rows


def _beyond(row: Json, order: Json) -> str:
    """Which limit a case is beyond, and by how much; empty for none."""
    if order["device"] == "cpu" and row["bytes"] > order["memory"]:
        return f"its inputs and outputs are {row['bytes'] >> 20} MB, and may be {order['memory'] >> 20}"
    if row["run_s"] > order["run_s"]:
        return f"the reference runs for {row['run_s']:.1f} s, and may for {order['run_s']:g}"
    if row["generate_s"] > order["generate_s"]:
        return f"its inputs take {row['generate_s']:.1f} s to make, and may take {order['generate_s']:g}"
    if row["first_s"] > _MAKING * order["generate_s"]:
        return f"the reference takes {row['first_s']:.1f} s to be made, and may take {_MAKING * order['generate_s']:g}"
    return ""


def _row(module: Any, case: Json, device: str, twice: bool) -> Json:
    times = [time.perf_counter()]
    sets = []
    for seed in (case["seed"], case["seed"] + 1):
        sets.append(data := module.generate_input(**case["params"], seed=seed, device=device))
        times.append(time.perf_counter())
    answer = as_tuple(module.ref_kernel(data))
    if device != "cpu":
        torch.cuda.synchronize()
    times.append(time.perf_counter())
    first_s, second_s, run_s = (after - before for before, after in pairwise(times))
    first = min(data.binding["outputs"])
    tensors = [
        {
            "dtype": str(tensor.dtype).removeprefix("torch."),
            "shape": list(tensor.shape),
            "out": index >= first,
            "same": index < first and all(one[index].numel() > 1 and is_constant(one[index]) for one in sets),
        }
        for index, tensor in enumerate(data)
    ]
    with _Narrowing() as narrowing:  # type: ignore[no-untyped-call]
        if any(tensor["out"] and tensor["dtype"] == "float64" for tensor in tensors):
            module.ref_kernel(data)
    return {
        "tensors": tensors,
        "narrowed": narrowing.line,
        "unsteady": twice and is_unsteady(answer, as_tuple(module.ref_kernel(data))),
        "bytes": sum(tensor.numel() * tensor.element_size() for tensor in data),
        "first_s": first_s,
        "generate_s": min(first_s, second_s),
        "run_s": run_s,
        "plain": bool(data.binding["plain"]),
        "inout": len(data.binding["inout"]),
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    answer_order(describe)
