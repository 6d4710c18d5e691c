"""Can a problem be judged at all? The reference must pass its own check, and lazy answers must not."""

from collections.abc import Callable
from typing import Any

import torch

from ksflow.stages.evaluator.judge.bound import Finding, compare
from ksflow.stages.evaluator.judge.cases import Reference
from ksflow.stages.evaluator.judge.suite import Source

_SCALE = 1.02

Outputs = tuple[torch.Tensor, ...]


def probe(source: Source) -> dict[str, Any]:
    """Rows of (name, ok, detail), over every case at its public seed."""
    cases = [*source.problem["tests"], *source.problem["benchmarks"]]
    answers: dict[str, Callable[[Outputs], Outputs]] = {
        "zeros": lambda right: tuple(torch.zeros_like(out) for out in right),
        "constant": lambda right: tuple(_constant(out) for out in right),
        "scaled": lambda right: tuple(_scaled(out) for out in right),
    }
    wrong, worst = [], 0.0
    caught = dict.fromkeys(answers, 0)
    for case in cases:
        data = source.reference.generate(**case["params"], seed=case["seed"])
        want = source.reference.expect(data)
        right = _reference(source.reference, data)
        findings = [compare(expected, out) for expected, out in zip(want, right, strict=True)]
        worst = max(worst, *(finding.worst for finding in findings))
        wrong += [f"{case['name']}: {finding.detail}" for finding in findings if not finding.right]
        for name, answer in answers.items():
            lazy: list[Finding] = [compare(w, o) for w, o in zip(want, answer(right), strict=True)]
            caught[name] += any(not finding.right for finding in lazy)
    passed = f"largest error {worst:.3g} of its bound"
    rows = [("reference", not wrong, wrong[0] if wrong else passed)]
    for name, count in caught.items():
        rows.append((f"{name} output", count > 0, f"rejected on {count} of {len(cases)} cases"))
    return {"rows": rows}


def _reference(reference: Reference, data: Outputs) -> Outputs:
    result = reference.kernel(data)
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


def _constant(out: torch.Tensor) -> torch.Tensor:
    mean = out.double().mean() if out.numel() else torch.zeros(())
    return torch.full(out.shape, float(mean)).to(out.dtype)


def _scaled(out: torch.Tensor) -> torch.Tensor:
    if out.dtype.is_floating_point:
        return (out.double() * _SCALE).to(out.dtype)
    return out + 1 if out.dtype != torch.bool else ~out
