"""What a tool's program is to run: one kernel on one case, as files of the box that both are in."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ksflow.errors import ConfigError
from ksflow.hardware.cost_model import work
from ksflow.records import Case, Problem, Scalar

JOB = ".job.json"
"""In the box, the file that the program reads."""
_REFERENCE, _ARTEFACT = ".reference.py", ".artefact"


@dataclass(frozen=True)
class Workload:
    """One kernel on one case."""

    mode: str
    """`launch`: device code in a container; `native`: a shared object; `torch`: a Python file."""
    file: str
    """The path of the container or of the shared object; or the name of the Python file among `files`."""
    reference: str
    """The path of the problem's reference.py."""
    case: str
    params: Mapping[str, Scalar]
    seed: int
    dims: tuple[int, ...]
    outputs: int
    """How many of the tensors, the last ones, are outputs."""
    device: str = "cuda"
    """As torch names it, on AMD too."""
    calls: int = 3
    """The last one is what counters are of."""

    files: Mapping[str, str] = field(default_factory=dict)
    """Of a Python kernel: name -> text."""
    memory_mb: int = 4096
    """What the kernel may take of the host's memory."""

    def texts(self) -> dict[str, str]:
        """The files of the box that are text: name -> text."""
        order = {
            "mode": self.mode,
            "file": self.file if self.mode == "torch" else _ARTEFACT,
            "reference": _REFERENCE,
            "case": self.case,
            "params": dict(self.params),
            "seed": self.seed,
            "dims": self.dims,
            "outputs": self.outputs,
            "device": self.device,
            "calls": self.calls,
        }
        return {**self.files, JOB: json.dumps(order), _REFERENCE: Path(self.reference).read_text()}

    def copies(self) -> dict[str, str]:
        """The files of the box that are copied as they are: name -> path."""
        return {} if self.mode == "torch" else {_ARTEFACT: self.file}


def job(problem: Problem, mode: str, file: str, case: str = "") -> Workload:
    """The job for a benchmark by its name, or else for the smallest. Raises ConfigError for a name that is none."""
    return _job(problem, mode, file, _named(problem, case) if case else smallest(problem, problem.benchmarks))


def jobs(problem: Problem, mode: str, file: str, files: Mapping[str, str] | None = None) -> tuple[Workload, ...]:
    """For the smallest benchmark, then for the smallest test, where tools are too slow for that."""
    cases = [smallest(problem, some) for some in (problem.benchmarks, problem.tests) if some]
    return tuple(replace(_job(problem, mode, file, case), files=files or {}) for case in cases)


def _job(problem: Problem, mode: str, file: str, found: Case) -> Workload:
    dims = tuple(int(found.params[name]) for name in problem.dims)
    outputs = sum(arg.role == "out" for arg in problem.args)
    reference = str(Path(problem.root, "reference.py"))
    fixed = Workload(mode, file, reference, found.name, dict(found.params), found.seed, dims, outputs)
    return replace(fixed, memory_mb=problem.limits.memory_mb)


def smallest(problem: Problem, cases: Sequence[Case]) -> Case:
    """The case with the least work: tools slow a kernel down a thousandfold."""

    def size(case: Case) -> float:
        need = work(problem, case)
        numbers = [value for value in case.params.values() if isinstance(value, int) and value > 0]
        return need.flops or need.bytes or math.prod(numbers)

    return min(cases, key=size)


def _named(problem: Problem, name: str) -> Case:
    for case in problem.benchmarks:
        if case.name == name:
            return case
    raise ConfigError(f"no benchmark {name!r}; those are: {', '.join(case.name for case in problem.benchmarks)}")
