"""What a file that compiles and launches a kernel must know of its cases, found by making them.

    python -m ksflow.integrate.handover.facts < order.json

The order: `root` (the problem's folder), `device`, `outputs` (how many), `inout` (places of what is changed in place),
`args`, `dims`, `cases`, `source`. Prints one line of JSON: `rows`, of each case [tensors that are given (sizes,
strides, type), [places, outputs, places that are returned], numbers, plan], and `sources`: where `source` has launch
lines, its text for each variant, and a plan in each row; else nothing and null. Where the device is not here, cases
are made on the CPU.
"""

import inspect
import sys
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from ksflow.evaluation.sandbox.runners.pytree import Flat, Tensors
from ksflow.evaluation.sandbox.runners.torch_kernel import load_module
from ksflow.formats.isolated import answer_order
from ksflow.kernels.source.launches import CasePlan, parse, plan_cases, with_constants

Json = dict[str, Any]


def _facts(order: Json) -> Json:
    sys.path.insert(0, order["root"])
    reference = load_module("reference_of_problem", Path(order["root"], "reference.py"))
    sources: list[str] = []
    planned: dict[str, CasePlan] = {}
    if order["source"]:
        launch_plan = parse(order["source"])
        assert launch_plan is not None
        cases = {case["name"]: case["params"] for case in order["cases"]}
        variants, planned = plan_cases(launch_plan, cases, order["args"])
        sources = [with_constants(order["source"], values) for values in variants]
    rows = [
        [*_row(reference, case, order), asdict(planned[case["name"]]) if planned else None] for case in order["cases"]
    ]
    return {"rows": rows, "sources": sources}


def _row(reference: ModuleType, case: Json, order: Json) -> list[Any]:
    generate = reference.generate_input
    device = order["device"] if torch.cuda.is_available() else "cpu"
    there = {"device": device} if "device" in inspect.signature(generate).parameters else {}
    data: Tensors = generate(**case["params"], **there, seed=case["seed"])
    first = len(data) - order["outputs"]
    binding = data.binding if isinstance(data, Flat) else {}
    returned = list(binding.get("results", ())) or list(range(first, len(data)))
    places = [*binding.get("order", range(len(data)))]
    types = [str(tensor.dtype).removeprefix("torch.") for tensor in data]
    outputs = {
        place: [list(data[place].shape), list(data[place].stride()), types[place]]
        for place in (*order["inout"], *range(first, len(data)))
    }
    steps = [  # 0 where there is one element: any would do there
        [step if size > 1 else 0 for size, step in zip(tensor.shape, tensor.stride(), strict=True)] for tensor in data
    ]
    inputs = [[list(data[place].shape), steps[place], types[place]] for place in places]
    return [inputs, [places, outputs, returned], [int(case["params"][name]) for name in order["dims"]]]


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    answer_order(_facts)
