"""Checks that a problem is sound: its parts fit together, and its own reference passes its check."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ksflow.evaluation.judge.buffers import Tensors
from ksflow.evaluation.judge.cases import Reference
from ksflow.evaluation.judge.elements import bits, same_bits
from ksflow.evaluation.judge.mutants import Right
from ksflow.evaluation.judge.tolerance import first_error
from ksflow.kernels.hardware.cost_model import extents
from ksflow.records import Scalar
from ksflow.records.base import Json

_STRIDES = re.compile(r"strides\s*(\(.*\))")


def _arguments(reference: Reference, case: Json) -> str:
    data = reference.in_place.given(reference.data(case, case["seed"]))
    fault = _mismatch(reference.problem["args"], data, case["params"])
    return f"case {case['name']}: {fault}; correct args in problem.yaml or generate_input" if fault else ""


def _seeds(reference: Reference, case: Json) -> str:
    data = reference.data(case, case["seed"])
    inputs = _bytes(reference, data)
    again, other = (_bytes(reference, reference.data(case, case["seed"] + step)) for step in (0, 1))
    if not _equal(inputs, again):
        return (
            f"case {case['name']}: generate_input returns other contents at each call for seed {case['seed']}, so a "
            "verdict cannot be repeated; draw everything from a torch.Generator seeded with `seed`"
        )
    # another format's tests may be the same each time: they are not timed
    foreign_test = hasattr(data, "binding") and case not in reference.problem["benchmarks"]
    if _equal(inputs, other) and not foreign_test:
        return (
            f"case {case['name']}: generate_input returns the same contents for seeds {case['seed']} and "
            f"{case['seed'] + 1}, so a kernel could keep its answer; draw from a torch.Generator seeded with `seed`"
        )
    return ""


def _inputs(reference: Reference, case: Json) -> str:
    data = reference.data(case, case["seed"])
    before = _bytes(reference, data)
    calls: dict[str, Callable[[Tensors], Any]] = {"oracle": reference.expect, "ref_kernel": reference.kernel}
    for function, call in calls.items():
        call(data)
        pairs = zip(reference.names, before, _bytes(reference, data), strict=False)
        changed = [name for name, old, new in pairs if not same_bits(old, new)]
        if changed:
            return (
                f"case {case['name']}: {function} changes its input {changed[0]}, so later calls are judged on "
                "other contents; make it change a copy"
            )
    return ""


def _reference(reference: Reference, case: Json) -> str:
    right = Right.of(reference, case)
    shapes = [(str(out.dtype), tuple(out.shape)) for out in right.outputs]
    declared = [(str(out.dtype), tuple(out.shape)) for out in right.data[-len(right.outputs) :]]
    if shapes != declared or len(shapes) != reference.outputs:
        return f"case {case['name']}: ref_kernel returns {shapes}, the preallocated outputs are {declared}"
    for want, out in zip(right.want, right.outputs, strict=False):
        if detail := first_error(want, out):
            own = "correct ref_kernel, or the oracle's expected value or magnitude"
            if right.foreign:  # the tolerance is the format's
                own = "correct it, or set its tolerance (problem.rtol=0 problem.atol=0 where answers are exact)"
            return (
                f"case {case['name']}: the reference fails its own bound: {detail['bad']} of {detail['of']} elements, "
                f"first at {detail['index']}: got {detail['got']}, the oracle expects {detail['expected']} within "
                f"{detail['bound']}; {own}"
            )
    objection = reference.objection(right.data, right.outputs)
    return f"case {case['name']}: the reference fails property_check: {objection}" if objection else ""


SOUND: tuple[tuple[str, Callable[[Reference, Json], str], str], ...] = (
    ("arguments", _arguments, "generate_input returns what problem.yaml declares"),
    ("seeds", _seeds, "same seed, same contents; other seed, other contents"),
    ("inputs", _inputs, "reference and oracle leave them alone"),
    ("reference", _reference, "passes its own check"),
)


def _bytes(reference: Reference, data: Tensors) -> list[torch.Tensor]:
    return [bits(tensor.clone()) for tensor in data[: len(data) - reference.outputs]]


def _equal(first: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return len(first) == len(other) and all(map(same_bits, first, other))


def _mismatch(args: Sequence[Mapping[str, str]], data: Any, params: Mapping[str, Scalar]) -> str:
    if not isinstance(data, tuple) or not all(isinstance(tensor, torch.Tensor) for tensor in data):
        return "generate_input does not return a tuple of tensors"
    roles = [arg["role"] for arg in args]
    if hasattr(data, "binding"):  # imported: number and types of the inputs may vary by case
        outputs = len(data.binding["outputs"])
        return "" if outputs == roles.count("out") else f"the reference has {outputs} outputs, not {roles.count('out')}"
    if len(data) != len(args):
        return f"generate_input returns {len(data)} tensors, args declares {len(args)}"
    if {*roles} == {"in"} or roles != sorted(roles, key=lambda role: role == "out"):
        needs = "inputs come first, then at least one preallocated output (unless one is changed in place: inout)"
        return f"the roles are {', '.join(roles)}; {needs}"
    faults = (_argument_differs(arg, tensor, params) for arg, tensor in zip(args, data, strict=True))
    return next((words for words in faults if words), "")


def _argument_differs(arg: Mapping[str, str], tensor: torch.Tensor, params: Mapping[str, Scalar]) -> str:
    name = arg["name"]
    dtype = str(tensor.dtype).removeprefix("torch.")
    if arg.get("dtype", dtype) != dtype:
        return f"{name} is {dtype}, args declares {arg['dtype']}"
    shape, strides = tuple(tensor.shape), tensor.stride()
    try:
        declared = extents(arg.get("shape", ""), params)
        steps = extents(written[1], params) if (written := _STRIDES.search(arg.get("layout", ""))) else None
    except (ValueError, SyntaxError) as error:
        return f"args of {name}: {error}"
    if declared is not None and declared != shape:
        return f"{name} has shape {shape}, args declares ({arg['shape']}) = {declared}"
    if steps is not None and not (
        len(steps) == len(shape)
        and all(step == want for size, step, want in zip(shape, strides, steps, strict=True) if size > 1)
    ):
        return f"{name} has strides {strides}, args declares {steps}"
    if steps is None and arg.get("layout", "").startswith("row-major") and not tensor.is_contiguous():
        return f"{name} has strides {strides}, args declares row-major"
    return ""
