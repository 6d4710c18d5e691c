"""The winner as files a user can take away: the kernel, its evidence, and a Python module that runs it."""

import json
from pathlib import Path

from ksflow import schema
from ksflow.records import Problem, Target, Trial

_LOADER = '''"""{title}: kernel {id}, {score:.4g} µs ({aggregate} of {cases}) on {chip}.

`custom_kernel(data)` takes and returns what the problem's reference does. Built on first use with {compiler}.
"""

import ctypes
import os
import subprocess
import tempfile
from pathlib import Path

_HERE = Path(__file__).parent
_DEFINES = {defines!r}


def _build():
    folder = tempfile.mkdtemp(prefix="ksflow-")
    library = os.path.join(folder, "kernel.so")
    command = ["g++", "-std=c++20", "-O3", "-march={march}", "-fPIC", "-shared", *_DEFINES]
    subprocess.run([*command, "-o", library, str(_HERE / "{file}")], check=True)
    return ctypes.CDLL(library).custom_kernel


_kernel = _build()
_kernel.restype = None


def custom_kernel(data):
    """Runs on CPU tensors; the last of `data` is the preallocated output, which is returned."""
    pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in data]
    sizes = dict({sizes})
    dims = [ctypes.c_int64(sizes[name]) for name in {dims!r}]
    strides = [stride for tensor in data for stride in tensor.stride()]
    _kernel(*pointers, *dims, (ctypes.c_int64 * len(strides))(*strides))
    return data[-1]
'''


def write_best(folder: Path, problem: Problem, target: Target, trial: Trial, commit: str) -> Path:
    """Write `trial` under `folder`; the module to import."""
    assert trial.kernel is not None
    assert trial.evaluation is not None
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in trial.kernel.files.items():
        (folder / name).write_text(text)
    (folder / "evaluation.json").write_bytes(schema.dump("evaluation", trial.evaluation))
    origin = {
        "trial": trial.id,
        "commit": commit,
        "problem": problem.name,
        "digest": problem.digest,
    }
    (folder / "origin.json").write_text(json.dumps(origin, indent=1) + "\n")
    main = next(iter(trial.kernel.files))
    if trial.kernel.language != "cpp":
        return folder / main
    module = folder / "best.py"
    module.write_text(_loader(problem, target, trial, main))
    return module


def _loader(problem: Problem, target: Target, trial: Trial, file: str) -> str:
    names = ", ".join(_size(problem, dim) for dim in problem.dims)
    return _LOADER.format(
        title=problem.title,
        id=trial.id,
        score=trial.score_us,
        aggregate=problem.score,
        cases=", ".join(case.name for case in problem.benchmarks),
        chip=target.chip,
        compiler="g++",
        defines=[f"-D{name}={value}" for name, value in problem.defines.items()],
        march=target.march,
        file=file,
        dims=list(problem.dims),
        sizes=names,
    )


def _size(problem: Problem, dim: str) -> str:
    """`m=data[0].shape[1]`: where a dimension can be read off the arguments."""
    for position, arg in enumerate(problem.args):
        axes = [axis.strip() for axis in arg.shape.split(",")]
        if dim in axes:
            return f"{dim}=data[{position}].shape[{axes.index(dim)}]"
    return f"{dim}=None"
