"""The winner as a repository that Hugging Face's `kernels` loads: `get_local_kernel(Path("hub"), backend="cpu")`.

    README.md                           the card: what was measured where, how it is used and published, licences
    build/torch-BACKEND/__init__.py     `custom_kernel(data)`, which compiles its source when it is first called
    build/torch-BACKEND/metadata.json   name, licence, backend, and on which chips it runs
    benchmarks/benchmark.py             the judged cases beside the reference, for `kernels benchmark`

Nothing is published: that, and whether the licences allow it, is a person's. Not covered: files that are compiled
already, and problems whose ecosystem calls something else than `custom_kernel`.
"""

import json
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ksflow import home
from ksflow.integrate.handover.loader import TEXTS
from ksflow.integrate.handover.winner import handover_problem
from ksflow.protocols import Evaluator
from ksflow.records import Json, Kernel, Problem, Target, Trial, Verdict

_OTHER = "other"
"""What a card says of a licence that Hugging Face has no name for."""
_COMPILERS = {"cpp": "a C++ compiler", "cuda": "nvcc", "hip": "hipcc"}


@dataclass(frozen=True)
class Standing:
    """What a card says of a winner beside its times."""

    claim: str
    """The run's figure; empty without a baseline."""
    held_out: str
    """How it did on shapes that its author was not shown; empty where there are none."""
    date: str
    """Of the verdict."""
    licence: str
    """Of the kernel and of what it was made from, as SPDX; empty where that is not known."""
    hub_licence: str
    """Hugging Face's name for it; empty where it has none."""


def write_hub(  # noqa: PLR0913 - what is written, and what is said of it
    folder: Path,
    problem: Problem,
    target: Target,
    trial: Trial,
    modules: Iterable[Path],
    standing: Standing,
    evaluate: Evaluator,
) -> str:
    """Write the winner's repository, with the first of the modules that the judge finds right or cannot try.

    Returns how to load it, or why there is none: all of them are wrong.
    """
    kernel, evaluation = trial.kernel, trial.evaluation
    assert kernel is not None
    assert evaluation is not None
    shutil.rmtree(folder, ignore_errors=True)  # of the winner before
    text, fault = _right_module(problem, modules, evaluate)
    if fault:
        return f"no repository for Hugging Face's kernels: {fault}"
    backend = "cpu" if target.kind == "cpu" else "rocm" if target.march.startswith("gfx") else "cuda"
    name = re.sub(r"[^a-z0-9]+", "-", f"{problem.name} {problem.variant}".lower()).strip("-")
    name = name if re.fullmatch(r"[a-z].*[a-z0-9]", name) else f"kernel-{name}"
    built, benchmarks = folder / "build" / f"torch-{backend}", folder / "benchmarks"
    built.mkdir(parents=True)
    benchmarks.mkdir()
    spdx = f"# SPDX-License-Identifier: {standing.licence}\n" if standing.licence else ""
    home.write(built / "__init__.py", f'{spdx}{text.rstrip()}\n\n\n__all__ = ["custom_kernel"]\n')
    metadata: Json = {
        "id": f"_{name.replace('-', '_')}_{backend}_{kernel.digest[:8]}",
        "name": name,
        "version": 1,
        "license": standing.hub_licence or _OTHER,
        "python-depends": [],
        "backend": {"type": backend, **_archs(kernel.language, target)},
    }
    home.write(built / "metadata.json", json.dumps(metadata, indent=2) + "\n")
    cases = {case.name: {**case.params, "seed": case.seed} for case in problem.benchmarks}
    words = {"title": problem.title, "listing": problem.listing.strip(), "cases": repr(cases)}
    home.write(benchmarks / "benchmark.py", spdx + TEXTS["HUB_BENCHMARK"].format(**words))
    held = evaluation.evidence.heldout
    times = {row.case: row.us for row in evaluation.timings}
    times |= {f"{case} (held out)": time for case, time in (held.right if held else {}).items()}
    compiler = _COMPILERS.get(kernel.language)
    claim = f"{standing.claim} ({problem.score_name} of the cases, timed in turns)" if standing.claim else "Times"
    card = TEXTS["HUB_CARD"].format(
        licence=standing.hub_licence or _OTHER,
        spdx=standing.licence or "unknown, so settle it before anything else",
        name=name,
        title=problem.title,
        backend=backend,
        data=", ".join(arg.name for arg in problem.args),
        sizes="It takes the sizes, strides and types below and no others. " if _is_sized(text) else "",
        needs=f"It is compiled when it is first called, which needs {compiler}." if compiler else "",
        measured=f"{claim} on {target.chip} ({target.march}), {standing.date}, by {evaluation.judge or 'no judge'}.",
        held_out=f" It is {standing.held_out}." if standing.held_out else "",
        rows="\n".join(f"| {case} | {time:.4g} |" for case, time in times.items()),
        trial=trial.id,
        statement=re.sub(r"\A# .*\n", "", problem.statement.split("\n## ")[0].strip()).strip(),
    )
    home.write(folder / "README.md", card)
    return f'{folder}: kernels.get_local_kernel(Path("{folder}"), backend="{backend}")'


def _right_module(problem: Problem, modules: Iterable[Path], evaluate: Evaluator) -> tuple[str, str]:
    """Return the text of the first module that the judge finds right or cannot try, and why there is none."""
    fault = "there is no module"
    for module in modules:
        text = module.read_text(encoding="utf-8")
        shapes = () if _is_sized(text) else problem.heldout
        outcome = evaluate.measure(handover_problem(problem, shapes), Kernel("python", {"kernel.py": text}, ""))
        if outcome is None or outcome.verdict in (Verdict.UNTIMED, Verdict.HARNESS):
            return text, ""
        fault = outcome.reason
    return "", fault


def _is_sized(module: str) -> bool:
    """Whether a module takes the judged sizes alone."""
    return "_ROWS = {" in module


def _archs(language: str, target: Target) -> dict[str, list[str]]:
    """The chips that compiled device code runs on; all of the backend's where there is none."""
    if language == "cuda" and (match := re.fullmatch(r"sm_(\d+)(\d)([af]?)", target.march)):
        return {"archs": [f"{match[1]}.{match[2]}{match[3]}"]}
    return {"archs": [target.march]} if language == "hip" else {}
