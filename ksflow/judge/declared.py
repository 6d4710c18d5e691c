"""Does `generate_input` make what problem.yaml's `args` say: number, order, dtype, shape, layout?"""

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ksflow.hardware.cost_model import evaluate
from ksflow.records import Scalar

_STRIDES = re.compile(r"strides\s*(\(.*\))")


def mismatch(args: Sequence[Mapping[str, str]], data: Any, params: Mapping[str, Scalar]) -> str:
    """The first thing that differs, in words; "" when nothing does."""
    if not isinstance(data, tuple) or not all(isinstance(tensor, torch.Tensor) for tensor in data):
        return "generate_input does not return a tuple of tensors"
    roles = [arg["role"] for arg in args]
    if hasattr(data, "binding"):  # imported: how many inputs there are, and their types, is the case's own affair
        outputs = len(data.binding["outputs"])
        return "" if outputs == roles.count("out") else f"the reference has {outputs} outputs, not {roles.count('out')}"
    if len(data) != len(args):
        return f"generate_input makes {len(data)} tensors, args declares {len(args)}"
    if "out" not in roles or roles != sorted(roles, key=lambda role: role == "out"):
        return f"the roles are {', '.join(roles)}; inputs come first, then at least one preallocated output"
    found = (_differs(arg, tensor, params) for arg, tensor in zip(args, data, strict=True))
    return next((words for words in found if words), "")


def _differs(arg: Mapping[str, str], tensor: torch.Tensor, params: Mapping[str, Scalar]) -> str:
    name = arg["name"]
    dtype = str(tensor.dtype).removeprefix("torch.")
    if arg.get("dtype", dtype) != dtype:
        return f"{name} is {dtype}, args declares {arg['dtype']}"
    shape, strides = tuple(tensor.shape), tensor.stride()
    try:
        declared = _numbers(arg.get("shape", ""), params)
        steps = _numbers(written[1], params) if (written := _STRIDES.search(arg.get("layout", ""))) else None
    except (ValueError, SyntaxError) as error:
        return f"args of {name}: {error}"
    if declared is not None and declared != shape:
        return f"{name} has shape {shape}, args declares ({arg['shape']}) = {declared}"
    if steps is not None and not _same_layout(shape, strides, steps):
        return f"{name} has strides {strides}, args declares {steps}"
    if steps is None and arg.get("layout", "").startswith("row-major") and not tensor.is_contiguous():
        return f"{name} has strides {strides}, args declares row-major"
    return ""


def _same_layout(shape: tuple[int, ...], strides: tuple[int, ...], declared: tuple[int, ...]) -> bool:
    """The step of a dimension with one element means nothing."""
    if len(declared) != len(shape):
        return False
    return all(step == said for size, step, said in zip(shape, strides, declared, strict=True) if size > 1)


def _numbers(text: str, params: Mapping[str, Scalar]) -> tuple[int, ...] | None:
    """`m, k // 128` over a case's parameters; None where nothing is declared."""
    if not text.strip():
        return None
    parsed = ast.parse(text.strip(), mode="eval").body
    parts = parsed.elts if isinstance(parsed, ast.Tuple) else [parsed]
    return tuple(int(evaluate(ast.unparse(part), params)) for part in parts)
