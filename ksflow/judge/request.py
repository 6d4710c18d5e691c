"""What a judge is told of a problem and of a kernel, as JSON."""

from dataclasses import asdict
from typing import Any

from ksflow.compilers import Made
from ksflow.hardware.cost_model import floor_us
from ksflow.records import Case, Kernel, Problem, Target


def describe(problem: Problem, target: Target) -> dict[str, Any]:
    """What the judge needs to know of a problem."""
    return {
        "root": problem.root,
        "digest": problem.digest,
        "args": [asdict(arg) for arg in problem.args],
        "dims": list(problem.dims),
        "tests": [_case(case) for case in problem.tests],
        "benchmarks": [{**_case(case), "floor": floor_us(problem, case, target)} for case in problem.benchmarks],
        "check": {**asdict(problem.check), "unit": problem.check.unit(target.march)},
        "limits": asdict(problem.limits),
    }


def source(problem: Problem, kernel: Kernel, built: Made) -> dict[str, Any]:
    """A kernel, with the problem's own files and what was compiled of it."""
    files = {**kernel.files, **{name: text for name, text in problem.files.items() if name not in kernel.files}}
    return {"language": kernel.language, "files": files, "artefact": built.artefact, "mode": built.mode}


def _case(case: Case) -> dict[str, Any]:
    return {"name": case.name, "params": dict(case.params), "seed": case.seed}
