"""The table of a tuned kernel: which values of its tunables are for which sizes on which device.

`table.json` beside the winner's files has a row for each benchmark, and those that `ksflow tune` measured. Host code
takes the values of the nearest sizes (`configurations`); device code gets dispatch lines for them (`extended`).
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ksflow import home
from ksflow.kernels.languages import LANGUAGES, ON_DEVICE
from ksflow.kernels.source.answer import with_main
from ksflow.kernels.source.tunables import DISPATCH, assign, dispatches, has_launches, tunables
from ksflow.records import Case, Json, Kernel, Problem, Target, Trial
from ksflow.search.dispatch import effective

FILE = "table.json"


def why_none(kernel: Kernel) -> str:
    """Return why a kernel has no table; "" if it has one."""
    if not tunables(kernel.main):
        return "declares no tunables, so one configuration is for all sizes"
    if LANGUAGES[kernel.language].python and not has_launches(kernel.main):
        return f"is {kernel.language} without launch lines, of which ksflow writes no other configurations"
    return ""


def row(case: Case, device: str, values: Json, us: float, measured: str) -> Json:
    """Return a row of the table: a case, and what was best there. measured: by which trial, beside what."""
    place = {"case": case.name, "params": dict(case.params), "seed": case.seed, "device": device}
    return {**place, "values": values, "us": us, "measured": measured}


def before(file: Path) -> Json:
    """Return what a file of the winner before contains, which ksflow wrote; {} where it is missing or damaged."""
    with suppress(OSError, ValueError):
        content = json.loads(file.read_text(encoding="utf-8"))
        return content if isinstance(content, dict) else {}
    return {}


def update(folder: Path, problem: Problem, target: Target, trial: Trial, new: Sequence[Json] = ()) -> list[Json]:
    """Write a winner's table with its new rows, and return it; [] for a kernel without one. Rows of another winner are
    dropped."""
    kernel, evaluation, file = trial.kernel, trial.evaluation, folder / FILE
    assert kernel is not None
    assert evaluation is not None
    content = before(file)
    kept = content["rows"] if content.get("kernel") == kernel.digest else []
    file.unlink(missing_ok=True)
    if why_none(kernel):
        return []
    device, us = evaluation.evidence.device or target.chip, {timing.case: timing.us for timing in evaluation.timings}
    cases = [case for case in problem.benchmarks if case.name in us]
    own = [row(case, device, effective(kernel.main, case.params), us[case.name], trial.id) for case in cases]
    rows = [*{(each["case"], each["device"]): each for each in (*own, *kept, *new)}.values()]
    home.write(file, json.dumps({"kernel": kernel.digest, "rows": rows}, indent=1) + "\n")
    return rows


def nearest(rows: Sequence[Json]) -> str:
    """Return what chooses the configuration of a call in host code; "" if all rows have the same."""
    return "_nearest(*numbers)" if any(each["values"] != rows[0]["values"] for each in rows) else ""


def configurations(kernel: Kernel, dims: Sequence[str], rows: Sequence[Json]) -> tuple[list[str], Json]:
    """Return the main file's text of each configuration, the winner's first, and device -> (sizes, its number)."""
    texts, found = [kernel.main], dict[str, list[tuple[list[int], int]]]()
    for each in rows:
        text = assign(kernel.main, each["values"])
        texts += [] if text in texts else [text]
        found.setdefault(each["device"], []).append(([each["params"][dim] for dim in dims], texts.index(text)))
    return texts, found


def extended(problem: Problem, trial: Trial, rows: Sequence[Json], chip: str) -> tuple[Problem, Trial]:
    """Return the problem with the cases of a chip's rows, and device code with a dispatch line for each of them.

    Without rows for the chip, those for the device of the first row count, on which the winner was judged.
    """
    known, kernel = {case.name for case in problem.benchmarks}, trial.kernel
    device = next((each["device"] for each in rows if each["device"] == chip), rows[0]["device"] if rows else "")
    rows = [each for each in rows if each["device"] == device]
    cases = [Case(each["case"], each["params"], each["seed"]) for each in rows if each["case"] not in known]
    if kernel and kernel.language in ON_DEVICE and has_launches(kernel.main):
        old = {f"{DISPATCH}{when}": _pairs(values) for when, values in dispatches(kernel.main).items()}
        changed = [each for each in rows if each["values"] != effective(kernel.main, each["params"])]
        whens = [" and ".join(f"{dim} == {each['params'][dim]}" for dim in problem.dims) for each in changed]
        lines = {f"{DISPATCH}{when}": _pairs(each["values"]) for when, each in zip(whens, changed, strict=True)}
        text = assign(assign(kernel.main, dict.fromkeys(old, "")), {**lines, **old, **lines})
        trial = replace(trial, kernel=replace(kernel, files=with_main(kernel, text)))
    return replace(problem, benchmarks=(*problem.benchmarks, *cases)), trial


def _pairs(values: Json) -> str:
    return " ".join(f"{name}={value}" for name, value in values.items())
