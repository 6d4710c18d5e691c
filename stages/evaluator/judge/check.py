"""Is it right? Every test case, on its public seed and on a secret one, in one box."""

import time
from typing import Any

from ksflow.stages.evaluator.judge.bound import compare, number, same_bytes
from ksflow.stages.evaluator.judge.box import Box
from ksflow.stages.evaluator.judge.cases import Entry, Reference
from ksflow.stages.evaluator.judge.suite import Item

SLOTS = 2


class Rejected(Exception):
    """The kernel is not accepted."""

    def __init__(self, verdict: str, reason: str, evidence: dict[str, Any] | None = None) -> None:
        super().__init__(reason)
        self.verdict = verdict
        self.reason = reason
        self.evidence = evidence or {}


class Checker:
    """Calls a box on test cases."""

    def __init__(self, box: Box, reference: Reference, seconds: float) -> None:
        self.box = box
        self.reference = reference
        self.deadline = time.monotonic() + seconds
        self.rows: list[dict[str, Any]] = []
        self.upstream = ""

    def run(self, item: Item) -> None:
        """One case, on its public seed and a secret one. Raises Rejected, Failure."""
        self.box.stage(item.layout, item.dims, SLOTS)
        worst = 0.0
        for turn, entry in enumerate(item.entries):
            slot = turn % SLOTS
            self.box.fill(slot, entry)
            self.box.go(bytes([slot]), self.deadline - time.monotonic())
            worst = max(worst, inspect(self.box, slot, item, entry))
            self._upstream(entry, slot, item)
        seeds = [entry.seed for entry in item.entries]
        self.rows.append({"case": item.name, "seeds": seeds, "worst": number(round(worst, 4))})

    def _upstream(self, entry: Entry, slot: int, item: Item) -> None:
        if self.reference.upstream is None or not entry.data or self.upstream:
            return
        region = self.box.region(slot, out=True)
        outputs = [piece.view(region) for piece in item.layout.outputs]
        said = self.reference.upstream(entry.data, outputs[0] if len(outputs) == 1 else tuple(outputs))
        if said:
            self.upstream = f"{item.name}: {said}"


def inspect(box: Box, slot: int, item: Item, entry: Entry) -> float:
    """The slot's outputs against the oracle; the worst share of the bound. Raises Rejected."""
    at = {"case": item.name, "seed": entry.seed}
    if not same_bytes(box.region(slot, out=False), entry.packed):
        raise Rejected("reject-incorrect", f"{item.name}: wrote into its inputs", {"failed": at})
    region = box.region(slot, out=True).clone()
    worst = 0.0
    for index, (piece, want) in enumerate(zip(item.layout.outputs, entry.expected, strict=True)):
        finding = compare(want, piece.view(region))
        if not finding.right:
            raise Rejected(
                "reject-incorrect",
                f"{item.name}: {_sentence(finding.detail)}",
                {"failed": {**at, "output": index, **finding.detail}},
            )
        worst = max(worst, finding.worst)
    return worst


def _sentence(detail: dict[str, Any]) -> str:
    got, want, bound = (_short(detail[name]) for name in ("got", "expected", "bound"))
    where = f"first at {detail['index']}: got {got}, expected {want} within {bound}"
    return f"{detail['bad']} of {detail['of']} elements are off, {where}"


def _short(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.6g}"
