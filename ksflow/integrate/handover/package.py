"""The winner as files a user can take away: the kernel, its evidence, and what runs it or says how it is run."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

from ksflow import home
from ksflow.integrate.handover.loader import TEXTS, compile_command, host_code
from ksflow.integrate.handover.table import before, nearest
from ksflow.kernels.languages import LANGUAGES, ON_DEVICE
from ksflow.kernels.source.contract import device_signature
from ksflow.kernels.source.tunables import launch_lines
from ksflow.records import Json, Kernel, Problem, Target, Trial, schema

_LAYOUTS = {"row-major": "row-major", "contiguous": "row-major", "column-major": "column-major"}
"""How an argument's layout begins in words -> what a call sees to; no other is touched."""


def write_best(  # noqa: PLR0913 - what is written, and what is said of it
    folder: Path,
    problem: Problem,
    target: Target,
    trial: Trial,
    commit: str,
    claim: str = "",
    tuned: Sequence[Json] = (),
) -> Path:
    """Write `trial` under `folder`; the module to import, or for a GPU the source, with a README beside it.

    claim: the run's figures, such as `47.1 µs, x4.82 [4.71, 4.9] over PyTorch`. tuned: the rows of its table.
    """
    assert trial.kernel is not None
    assert trial.evaluation is not None
    folder.mkdir(parents=True, exist_ok=True)
    for name in before(folder / "origin.json").get("files", ()):  # of the winner before, under other names
        (folder / Path(name).name).unlink(missing_ok=True)
    main = next(iter(trial.kernel.files))
    renamed = trial.kernel.language == "python" and "best.py" not in trial.kernel.files
    named = "best.py" if renamed else main  # the names of other languages' stand in what compiles them
    files = {named if name == main else name: text for name, text in trial.kernel.files.items()}
    for name, text in files.items():
        home.write(folder / name, text)
    home.write(folder / "evaluation.json", schema.dump("evaluation", trial.evaluation))
    origin: Json = {"trial": trial.id, "commit": commit, "problem": problem.name, "digest": problem.digest}
    origin["files"] = [*files, "best.py", "README.md"]
    home.write(folder / "origin.json", json.dumps(origin, indent=1) + "\n")
    cases = ", ".join(case.name for case in problem.benchmarks)
    score = f"{claim or f'{trial.score_us:.4g} µs'} ({problem.score_name} of {cases}) on {target.chip}"
    if trial.kernel.language in ON_DEVICE:
        how = _how_to_run(problem, target, trial.kernel, main)
        home.write(folder / "README.md", f"# {problem.title}: kernel {trial.id}\n\n`{main}`: {score}.\n\n{how}")
    if trial.kernel.language != "cpp" or problem.origin:  # what other formats call is under handover/
        return folder / named
    asked = [dim for dim in problem.dims if not _size(problem, dim)]
    call = TEXTS["ANY_SIZE"].format(
        dims=list(problem.dims),
        kinds=[arg.dtype for arg in problem.args],
        written=[index for index, arg in enumerate(problem.args) if arg.role != "in"],
        returned=", ".join(f"data[{index}]" for index, arg in enumerate(problem.args) if arg.role == "out") or None,
        layouts=[_LAYOUTS.get(re.split(r"\W* ", f"{arg.layout} ")[0], "") for arg in problem.args],
        sizes=", ".join(_size(problem, dim) or f"{dim}={dim}" for dim in problem.dims),
        asked=f", *, {', '.join(asked)}" if asked else "",
        why=f" No shape says {', '.join(asked)}." if asked else "",
        nearest=nearest(tuned),
    )
    head = TEXTS["BEST"].format(title=problem.title, id=trial.id, score=score)
    module = folder / "best.py"
    home.write(module, head + host_code(problem, target, trial.kernel, tuned=tuned) + call)
    return module


def _how_to_run(problem: Problem, target: Target, kernel: Kernel, main: str) -> str:
    lines = [f"{kind}: {rest}" for kind, rest in launch_lines(kernel.main)]
    strong = any(line.startswith("launch:") for line in lines)
    if strong:
        notes = TEXTS["RUN_EARLY"] if any(re.search(r"^launch:.*\]\s*pdl\b", line) for line in lines) else ""
        notes += TEXTS["RUN_MAPS"] if any(line.startswith("tensormap:") for line in lines) else ""
        how = TEXTS["RUN_STRONG"].format(lines="\n    ".join(lines), more=notes)
    elif LANGUAGES[kernel.language].python:
        how = TEXTS["RUN_TRITON"].format(data=", ".join(arg.name for arg in problem.args))
    else:
        how = TEXTS["RUN_HOST"].format(signature=device_signature(problem))
    if compiler := {"cuda": "nvcc", "hip": "hipcc"}.get(kernel.language):
        words = compile_command(problem, target, kernel.language, [main], device_only=strong)
        how += f"\nTo compile it:\n\n    {' '.join([compiler, *words])}\n"
    return how


def _size(problem: Problem, dim: str) -> str:
    """`m=data[0].shape[1]`, or `m=64` where all cases have that; empty where a caller must say it."""
    for position, arg in enumerate(problem.args):
        axes = [axis.strip() for axis in arg.shape.split(",")]
        if dim in axes:
            return f"{dim}=data[{position}].shape[{axes.index(dim)}]"
    values = {case.params[dim] for case in (*problem.tests, *problem.benchmarks)}
    return f"{dim}={values.pop()}" if len(values) == 1 else ""
