"""What the cases of a foreign problem are made of, found by running its reference in a process of its own.

    python -m ksflow.stages.evaluator.foreign.describe < order.json

The order: `reference` (a file), `device`, `memory` (bytes), `generate_s`, `run_s`, `total_s` (seconds), and `ladder`:
sets of cases, smallest first. Each set is tried until one takes too long or too much; the largest that did not is
described. Prints one line of JSON: `step` (which set), `cases` (for each the tensors) and `tried` (why others were not
taken).
"""

import contextlib
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

import torch

from ksflow.stages.evaluator.judge.cases import loaded

Json = dict[str, Any]
_FAILURES = (Exception, SystemExit)


def main() -> None:
    """Read the order, print what was found."""
    order = json.load(sys.stdin)
    answer = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        found = describe(order)
    answer.write(json.dumps(found) + "\n")


def describe(order: Json) -> Json:
    """The largest set that runs within the limits."""
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    if order["device"] == "cpu" and order["memory"]:
        resource.setrlimit(resource.RLIMIT_AS, (order["memory"] + (8 << 30), resource.RLIM_INFINITY))
    module = loaded("ksflow_described", Path(order["reference"]))
    found: Json = {"step": None, "cases": [], "tried": []}
    for step, cases in enumerate(order["ladder"]):
        rows, why = _rows(module, cases, order)
        if why and rows is not None and found["step"] is None:
            rows, why = _rows(module, cases, order)  # the first time may have been slow for being the first
        if why:
            found["tried"].append([step, why])
            if rows is not None:
                break  # larger ones take longer still
        else:
            found |= {"step": step, "cases": rows}
    return found


def _rows(module: Any, cases: list[Json], order: Json) -> tuple[list[Json] | None, str]:
    """What each case is made of, or why not; None in place of rows where a case cannot be at all."""
    rows: list[Json] = []
    for case in cases:
        try:
            row = _row(module, case, order["device"])
        except MemoryError:
            return [], f"{case['name']}: not enough memory"
        except _FAILURES as error:
            text = f"{case['name']}: {type(error).__name__}: {error}".splitlines()[0][:300]
            return ([], text) if "alloc" in text or "memory" in text else (None, text)
        rows.append(row)
        if order["device"] == "cpu" and row["bytes"] > order["memory"]:
            return [], f"{case['name']}: {row['bytes'] >> 20} MB"
        if row["generate_s"] > order["generate_s"] or row["run_s"] > order["run_s"]:
            return [], f"{case['name']}: {row['generate_s']:.1f} s to make, {row['run_s']:.1f} s to run"
        spent = sum(row["generate_s"] + row["run_s"] for row in rows)
        if len(order["ladder"]) > 1 and spent > order["total_s"]:
            return [], f"all {len(cases)} cases together take more than {order['total_s']:g} s"
    return rows, ""


def _row(module: Any, case: Json, device: str) -> Json:
    started = time.perf_counter()
    data = module.generate_input(**case["params"], seed=case["seed"], device=device)
    made = time.perf_counter()
    data = module.generate_input(**case["params"], seed=case["seed"] + 1, device=device)
    again = time.perf_counter()
    module.ref_kernel(data)
    if device != "cpu":
        torch.cuda.synchronize()
    ran = time.perf_counter()
    first = min(data.bind["outputs"])
    tensors = [
        {
            "dtype": str(tensor.dtype).removeprefix("torch."),
            "shape": list(tensor.shape),
            "strides": list(tensor.stride()),
            "out": place >= first,
        }
        for place, tensor in enumerate(data)
    ]
    return {
        "name": case["name"],
        "tensors": tensors,
        "bytes": sum(tensor.numel() * tensor.element_size() for tensor in data),
        "generate_s": min(made - started, again - made),
        "run_s": ran - again,
        "plain": bool(data.bind["plain"]),
        "inout": len(data.bind["inout"]),
    }


if __name__ == "__main__":
    main()
