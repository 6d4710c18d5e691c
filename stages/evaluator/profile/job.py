"""What a tool's program is to run: one kernel on one case, as a JSON file."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ksflow.errors import ConfigError
from ksflow.records import Case, Problem, Scalar
from ksflow.work import work


@dataclass(frozen=True)
class Job:
    """One kernel on one case."""

    mode: str
    """`launch`: device code in a container; `native`: a shared object; `torch`: a Python file."""
    file: str
    """The container, the shared object or the Python file."""
    reference: str
    """The problem's reference.py."""
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

    def write(self, path: Path) -> Path:
        """To a file; its path."""
        path.write_text(json.dumps(asdict(self)))
        return path


def job(problem: Problem, mode: str, file: str, case: str = "") -> Job:
    """The job for a benchmark by its name, or else for the smallest. Raises ConfigError for a name that is none."""
    return _job(problem, mode, file, _named(problem, case) if case else smallest(problem, problem.benchmarks))


def jobs(problem: Problem, mode: str, file: str) -> tuple[Job, ...]:
    """For the smallest benchmark, then for the smallest test, where tools are too slow for that."""
    cases = [smallest(problem, some) for some in (problem.benchmarks, problem.tests) if some]
    return tuple(_job(problem, mode, file, case) for case in cases)


def _job(problem: Problem, mode: str, file: str, found: Case) -> Job:
    dims = tuple(int(found.params[name]) for name in problem.dims)
    outputs = sum(arg.role == "out" for arg in problem.args)
    reference = str(Path(problem.root, "reference.py"))
    return Job(mode, file, reference, found.name, dict(found.params), found.seed, dims, outputs)


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
