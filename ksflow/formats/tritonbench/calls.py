"""Which calls of a TritonBench file's tests can be cases: those that repeat, that are fast enough, that can be judged.

    python -m ksflow.formats.tritonbench.calls < order.json

The order: `files`, `spec`, `device`, and what a case may take on a CPU: `generate_s`, `run_s` (seconds). Prints a list
as one line of JSON: `call`, `function`, `fixed` (contents that do not follow from a seed), `outputs` (how many) and
`why` it cannot be a case (empty: it can).
"""

import pickle
import re
import time
from collections import Counter
from dataclasses import asdict
from typing import Any

import torch

from ksflow.errors import catch_foreign
from ksflow.evaluation.judge.cases import Reference
from ksflow.evaluation.judge.probes import probe
from ksflow.evaluation.sandbox.runners.device_mapping import cuda_means, seeded
from ksflow.evaluation.sandbox.runners.pytree import Flat, flatten
from ksflow.formats.assembly import ACCUMULATE
from ksflow.formats.isolated import answer_order
from ksflow.formats.runtime import ImportedReference, SourceFiles
from ksflow.formats.tritonbench.runtime import CapturedCall, TritonBench, are_equal
from ksflow.records import Check, Json

_WHERE = re.compile(r"^(?:accepted on )?case [^:]*: ")
_PATIENCE = 4  # how much longer than it may a call may take in the tests, where it is the first


def classify_calls(order: Json) -> list[Json]:
    """A row for each call."""
    device, slow = order["device"], _PATIENCE * (float(order["generate_s"]) + float(order["run_s"]))
    with cuda_means(device):
        task = TritonBench(SourceFiles(order["files"]), order["spec"])
        calls = task.record_calls(slow if device == "cpu" else 0.0)  # later calls would take too long to come to
    reference = LoadedReference(task, device)
    rows: list[Json] = []
    before_s = 0.0
    for number, call in enumerate(calls):
        row = {"call": number, "function": call.function, "fixed": False, "outputs": 0, "why": ""}
        why = _slow(order, before_s, call.took_s, _PATIENCE)
        with catch_foreign() as caught:
            with cuda_means(device):
                ran_s, why = (0.0, why) if why else _repeats(task, number, call)
                fixed = not why and bool(task.fixed(number))
            why = why or _slow(order, 0.0, ran_s)
            row |= {"why": why} if why else {"fixed": fixed, **reference.classify(number)}
        for error in caught:
            row["why"] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        rows.append(row)
        before_s += call.took_s
    counts = Counter(row["outputs"] for row in rows if not row["why"])
    most = max(counts, key=counts.__getitem__, default=0)
    for row in rows:  # all cases of a problem have as many outputs
        if not row["why"] and row["outputs"] != most:
            row["why"] = f"it has {row['outputs']} outputs, where most calls have {most}"
    return rows


def _slow(order: Json, before_s: float, ran_s: float, patience: float = 1.0) -> str:
    if order["device"] != "cpu":
        return ""
    if before_s > order["generate_s"]:
        return f"the calls before it take {before_s:.1f} s here"
    return f"it takes {ran_s:.1f} s here" if ran_s > patience * order["run_s"] else ""


def _repeats(task: TritonBench, number: int, call: CapturedCall) -> tuple[float, str]:
    """How long it runs, and why it is no case."""
    shape, _ = flatten(call.arguments)
    pickle.dumps(shape)
    if any(map(callable, call.arguments)):
        return 0.0, "an argument is code"
    took = []
    for seed in (3, 4):
        outputs = []
        for draw in (5, 6):
            tree = task.inputs({"call": number}, seed)
            seeded(draw)
            started = time.perf_counter()
            result = task.answer(tree, {"call": number})
            took.append(time.perf_counter() - started)
            outputs.append([leaf.detach().clone() for leaf in (*flatten(result)[1], *flatten(tree)[1])])
        first, again = outputs
        if not first:
            return min(took), "neither takes nor returns a tensor"
        if any(out.is_complex() for out in first):
            return min(took), "complex numbers"
        if any(out.is_sparse or out.is_quantized for out in first):
            return min(took), "a tensor that is not dense"
        if len(first) != len(again) or not all(map(are_equal, first, again)):
            return min(took), "its answer is drawn at random"
    return min(took), ""


class LoadedReference(Reference):
    """The judge's reference, over a task that is loaded already: one call of it at a time."""

    def __init__(self, task: TritonBench, where: str) -> None:
        foreign = ImportedReference(task)
        self.where = where
        self._there = {"device": where}
        self._check = {**asdict(Check(accumulate=ACCUMULATE)), "unit": 0.0}
        self.generate, self.kernel, self.oracle = foreign.generate_input, foreign.ref_kernel, foreign.oracle
        self.property_check = self.upstream = None

    def classify(self, number: int) -> Json:
        """`outputs`, and `why` the judge would let a wrong answer pass."""
        case: dict[str, Any] = {"name": f"call={number}", "params": {"call": number}, "seed": 0}
        data = self.data(case, 0)
        assert isinstance(data, Flat)
        self.outputs = len(data.binding["outputs"])
        inputs = len(data) - self.outputs
        args = [{"name": f"x{index}", "role": "in" if index < inputs else "out"} for index in range(len(data))]
        self.problem = {"args": args, "check": self._check, "tests": [], "benchmarks": [case]}
        faults = [detail for _, ok, detail in probe(self, shortcuts=False) if not ok]
        why = _WHERE.sub("", faults[0].partition("; ")[0]) if faults else ""
        return {"outputs": self.outputs, "why": why}


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    answer_order(classify_calls)
