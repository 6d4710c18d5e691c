"""Runs Triton kernels by the interpreter in a process of its own, and prints how far each is from the oracle.

Reads a list of jobs from standard input: file, variant, values of constants, dispatch lines, shape. A tolerance of 1
is what the problem allows.
"""

import contextlib
import dataclasses
import json
import mmap
import os
import sys
from pathlib import Path
from typing import Any

import torch

from ksflow.evaluation.sandbox.runners.interpreted import TritonInterpreted
from ksflow.evaluation.sandbox.runners.torch_kernel import load_module
from ksflow.kernels.problem.loader import load
from ksflow.kernels.source.launches import parse, plan_cases
from ksflow.kernels.source.tunables import assign


def main() -> None:
    """One line of JSON for each job: the largest error as a share of what is allowed, or the error's text."""
    for job in json.load(sys.stdin):
        try:
            answer: Any = error_of(job)
        except Exception as error:  # noqa: BLE001 - what a kernel raises is the answer
            answer = f"{type(error).__name__}: {error}"
        sys.stdout.write(json.dumps(answer) + "\n")


def error_of(job: dict[str, Any]) -> float:
    """The kernel run twice, in one slot each, on different contents."""
    problem = load("fp8_gemm", variant=job["variant"])
    reference = load_module(f"reference_{problem.variant}", Path(problem.root, "reference.py"))
    shape = dict(zip("mnk", job["shape"], strict=True))
    Path("kernel.py").write_text(assign(Path(job["file"]).read_text(), job["values"]))
    data = [reference.generate_input(**shape, seed=seed) for seed in (1, 2)]
    case, inputs, outputs = staged(data)
    runner = TritonInterpreted({"main": "kernel.py", **planned(shape, [arg.name for arg in problem.args])})
    for call in runner.stage(case, inputs, outputs):
        call()
    found = torch.frombuffer(outputs, dtype=torch.bfloat16)
    worst = 0.0
    for slot, tensors in enumerate(data):
        got = found[slot * case["pitch"][1] // 2 :][: tensors[-1].numel()].view(tensors[-1].shape).double()
        row = reference.oracle(tensors)
        allowed = 8 * 2**-23 * shape["k"] ** 0.5 * row["magnitude"] + 2**-8 * row["expected"].abs()
        worst = max(worst, float(((got - row["expected"]).abs() / allowed).nan_to_num(1e9).max()))
    return worst


def planned(shape: dict[str, int], args: list[str]) -> dict[str, Any]:
    """What the judge's side adds to the order of a kernel in strong mode."""
    recipe = parse(Path("kernel.py").read_text())
    if recipe is None:
        return {}
    variants, made = plan_cases(recipe, {"tiny": shape}, args)
    return {"variants": variants, "plans": {name: dataclasses.asdict(plan) for name, plan in made.items()}}


def staged(data: list[tuple[torch.Tensor, ...]]) -> tuple[dict[str, Any], mmap.mmap, mmap.mmap]:
    """Slots as the judge lays them out: inputs in one region, the output in another."""
    pieces, ends = [], [0, 0]
    for tensor in data[0]:
        out = int(tensor is data[0][-1])
        size = tensor.numel() * tensor.element_size()
        pieces.append(
            {
                "out": out,
                "offset": ends[out],
                "bytes": size,
                "dtype": str(tensor.dtype).removeprefix("torch."),
                "sizes": list(tensor.shape),
                "strides": list(tensor.stride()),
            }
        )
        ends[out] += -(-size // 64) * 64
    regions = [mmap.mmap(-1, end * len(data)) for end in ends]
    for slot, tensors in enumerate(data):
        for piece, tensor in zip(pieces[:-1], tensors[:-1], strict=True):
            flat = torch.as_strided(tensor, (tensor.numel(),), (1,)).view(torch.uint8)
            start = slot * ends[0] + piece["offset"]
            regions[0][start : start + piece["bytes"]] = flat.numpy().tobytes()
    case = {"name": "tiny", "slots": len(data), "pitch": ends, "pieces": pieces, "returned": 1, "dims": []}
    return case, regions[0], regions[1]


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        os.environ.setdefault("TRITON_INTERPRET", "1")
        main()
