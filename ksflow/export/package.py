"""The winner as files a user can take away: the kernel, its evidence, and what runs it or says how it is run."""

import json
from collections.abc import Iterable
from pathlib import Path

from ksflow.export import templates
from ksflow.records import DEVICE_LANGUAGES, Problem, Target, Trial, schema
from ksflow.source.contract import defines, device_signature
from ksflow.source.tunables import launch_lines

_LOADER = '''"""{title}: kernel {id}, {score:.4g} µs ({aggregate} of {cases}) on {chip}.

`custom_kernel(data)` takes and returns what the problem's reference does. Compiled when it is first called.
"""

import ctypes
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

_HERE = Path(__file__).parent
_OPTIONS = {options!r}

{command}
@functools.cache
def _kernel():
    with tempfile.TemporaryDirectory(prefix="ksflow-") as folder:
        library = os.path.join(folder, "kernel.so")
        command = _command({march!r}, *_OPTIONS, "-o", library, *(str(_HERE / name) for name in {sources!r}))
        subprocess.run(command, check=True)
        found = ctypes.CDLL(library).custom_kernel
    found.restype = None
    return found


def custom_kernel(data{asked}):
    """Runs on CPU tensors; the last of `data` is the preallocated output, which is returned.{why}"""
    pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in data]
    sizes = dict({sizes})
    dims = [ctypes.c_int64(sizes[name]) for name in {dims!r}]
    strides = [stride for tensor in data for stride in tensor.stride()]
    _kernel()(*pointers, *dims, (ctypes.c_int64 * len(strides))(*strides))
    return data[-1]
'''


_STRONG = """\
It is device code without host code. The judge's launcher starts its functions one after the other on one stream, as
these lines of the source say: grid, block (or warps and stages), arguments.

    {lines}

Workspaces are device memory that stays allocated between calls. Names are the sizes of a case and the constants that
the source declares; a `dispatch:` line gives these other values for some cases, so compile once for each set of values.
`ksflow problem show` explains the lines. `handover/` has a Python file that compiles and launches it so."""
_TRITON = """\
It is a module: `custom_kernel(({data}))` takes tensors on the device, outputs preallocated, and returns the outputs."""
_HOST = """\
It launches itself on the stream that it is given. Pointers are the device's, `strides` holds every tensor's strides in
elements, one tensor after the other, on the host:

    {signature};"""
_NVCC = "nvcc -O3 -std=c++20 -gencode=arch={virtual},code={march} {defines}"
_HIPCC = "hipcc -O3 -std=c++20 --offload-arch={march} {defines}"
_BUILDS = {
    ("cuda", True): f"{_NVCC} -cubin -o kernel.cubin {{main}}",
    ("cuda", False): f"{_NVCC} -shared -Xcompiler -fPIC -o kernel.so {{main}}",
    ("hip", True): f"{_HIPCC} --genco -o kernel.hsaco {{main}}",
    ("hip", False): f"{_HIPCC} -shared -fPIC -o kernel.so {{main}}",
}
"""(language, strong mode) -> the command that compiles it."""


def write_best(folder: Path, problem: Problem, target: Target, trial: Trial, commit: str) -> Path:
    """Write `trial` under `folder`; the module to import, or for a GPU the source, with a README beside it."""
    assert trial.kernel is not None
    assert trial.evaluation is not None
    folder.mkdir(parents=True, exist_ok=True)
    _clear(folder)
    main = next(iter(trial.kernel.files))
    renamed = trial.kernel.language == "python" and "best.py" not in trial.kernel.files
    named = "best.py" if renamed else main  # the names of other languages' stand in what compiles them
    files = {named if name == main else name: text for name, text in trial.kernel.files.items()}
    for name, text in files.items():
        (folder / name).write_text(text)
    (folder / "evaluation.json").write_bytes(schema.dump("evaluation", trial.evaluation))
    origin = {
        "trial": trial.id,
        "commit": commit,
        "problem": problem.name,
        "digest": problem.digest,
        "files": [*files, "best.py", "README.md"],
    }
    (folder / "origin.json").write_text(json.dumps(origin, indent=1) + "\n")
    if trial.kernel.language in DEVICE_LANGUAGES:
        (folder / "README.md").write_text(_readme(problem, target, trial, main), encoding="utf-8")
    if trial.kernel.language != "cpp" or problem.origin:  # what other formats call is under handover/
        return folder / named
    module = folder / "best.py"
    module.write_text(_loader(problem, target, trial, files))
    return module


def _clear(folder: Path) -> None:
    """Away with the winner before, whose files may have other names."""
    try:
        before = json.loads((folder / "origin.json").read_text())["files"]
    except (OSError, ValueError, LookupError, TypeError):
        return
    for name in map(str, before):
        (folder / Path(name).name).unlink(missing_ok=True)


def _readme(problem: Problem, target: Target, trial: Trial, main: str) -> str:
    """How a kernel for a GPU is run."""
    assert trial.kernel is not None
    lines = [f"{kind}: {rest}" for kind, rest in launch_lines(trial.kernel.main)]
    strong = any(line.startswith("launch:") for line in lines)
    if strong:
        how = _STRONG.format(lines="\n    ".join(lines))
    elif trial.kernel.language == "triton":
        how = _TRITON.format(data=", ".join(arg.name for arg in problem.args))
    else:
        how = _HOST.format(signature=device_signature(problem))
    if found := _BUILDS.get((trial.kernel.language, strong)):
        virtual = target.march.replace("sm_", "compute_", 1)
        build = found.format(main=main, march=target.march, virtual=virtual, defines=" ".join(defines(problem)))
        how += f"\n\nTo compile it:\n\n    {' '.join(build.split())}"
    cases = ", ".join(case.name for case in problem.benchmarks)
    score = f"{trial.score_us:.4g} µs ({problem.score} of {cases}) on {target.chip}"
    return f"# {problem.title}: kernel {trial.id}\n\n`{main}`: {score}.\n\n{how}\n"


def _loader(problem: Problem, target: Target, trial: Trial, files: Iterable[str]) -> str:
    asked = [dim for dim in problem.dims if not _size(problem, dim)]
    names = ", ".join(_size(problem, dim) or f"{dim}={dim}" for dim in problem.dims)
    return _LOADER.format(
        title=problem.title,
        id=trial.id,
        score=trial.score_us,
        aggregate=problem.score,
        cases=", ".join(case.name for case in problem.benchmarks),
        chip=target.chip,
        command=templates.CPP,
        options=["-std=c++20", "-O3", "-fPIC", "-shared", *defines(problem)],
        march=target.march,
        sources=[name for name in files if name.endswith((".cpp", ".cc", ".c"))],
        dims=list(problem.dims),
        sizes=names,
        asked=f", *, {', '.join(asked)}" if asked else "",
        why=f" No shape says {', '.join(asked)}." if asked else "",
    )


def _size(problem: Problem, dim: str) -> str:
    """`m=data[0].shape[1]`, or `m=64` where all cases have that; empty where a caller must say it."""
    for position, arg in enumerate(problem.args):
        axes = [axis.strip() for axis in arg.shape.split(",")]
        if dim in axes:
            return f"{dim}=data[{position}].shape[{axes.index(dim)}]"
    values = {case.params[dim] for case in (*problem.tests, *problem.benchmarks)}
    return f"{dim}={values.pop()}" if len(values) == 1 else ""
