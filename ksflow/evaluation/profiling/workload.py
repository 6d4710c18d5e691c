"""Workloads: one kernel on one case, as files of the sandbox in which a tool watches it."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ksflow.kernels.hardware.cost_model import work
from ksflow.records import Case, Problem, Scalar

WORKLOAD = ".workload.json"  # the program's input file in the sandbox
_REFERENCE, _ARTEFACT = ".reference.py", ".artefact"


@dataclass(frozen=True)
class Workload:
    """One kernel on one case."""

    mode: str  # `launch`: device code in a container; `native`: a shared object; `torch`: a Python file
    file: str  # path of the container or shared object; or the name of the Python file among `files`
    reference: str  # path of the problem's reference.py
    case: str
    params: Mapping[str, Scalar]
    seed: int
    dims: tuple[int, ...]
    outputs: int  # number of outputs, the last of the tensors
    memory_mb: int  # host memory of the kernel
    device: str = "cuda"  # torch's name, on AMD too
    calls: int = 3  # counters are read in the last one
    files: Mapping[str, str] = field(default_factory=dict)  # of a Python kernel: name -> text

    def texts(self) -> dict[str, str]:
        """Return the sandbox's text files: name -> text."""
        order = asdict(self) | {"file": self.file if self.mode == "torch" else _ARTEFACT, "reference": _REFERENCE}
        del order["files"]
        return {**self.files, WORKLOAD: json.dumps(order), _REFERENCE: Path(self.reference).read_text(encoding="utf-8")}

    def copies(self) -> dict[str, str]:
        """Return the sandbox's copied files: name -> path."""
        return {} if self.mode == "torch" else {_ARTEFACT: self.file}


def workloads(
    problem: Problem, mode: str, file: str, files: Mapping[str, str] | None = None, at: str = ""
) -> tuple[Workload, ...]:
    """Return a kernel on the case `at`, or else on the smallest benchmark and the smallest test, for tools that are too
    slow for the benchmark."""
    named = [case for case in (*problem.tests, *problem.benchmarks) if case.name == at][:1]
    return tuple(
        Workload(
            mode=mode,
            file=file,
            reference=str(Path(problem.root, "reference.py")),
            case=case.name,
            params=dict(case.params),
            seed=case.seed,
            dims=tuple(int(case.params[name]) for name in problem.dims),
            outputs=sum(arg.role == "out" for arg in problem.args),
            memory_mb=problem.limits.memory_mb,
            files=files or {},
        )
        for case in named or (smallest(problem, cases) for cases in (problem.benchmarks, problem.tests) if cases)
    )


def smallest(problem: Problem, cases: Sequence[Case]) -> Case:
    """Return the case with the least work: tools slow a kernel down a thousandfold."""

    def size(case: Case) -> float:
        need = work(problem, case)
        numbers = [value for value in case.params.values() if isinstance(value, int) and value > 0]
        return need.flops or need.bytes or math.prod(numbers)

    return min(cases, key=size)
