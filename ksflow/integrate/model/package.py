"""Winners of regions of a model as one package, which puts them in the place of the modules' forward.

    PACKAGE/__init__.py      `install(model)`, `uninstall(model)`, `report()`: the text of `installed.py`
    PACKAGE/regions.json     which modules, for which tensors, and what is on record of each kernel
    PACKAGE/REGION/module.py the kernel with what compiles and launches it, as any winner is handed over

Nothing of a kernel is run here but by the judge, which tries each file once.
"""

import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from ksflow import home
from ksflow.errors import ConfigError
from ksflow.integrate.handover import hand_over
from ksflow.integrate.handover.winner import case_facts
from ksflow.integrate.model import TEXTS
from ksflow.kernels.problem.texts import model_region
from ksflow.protocols import Evaluator
from ksflow.records import Json, Population, Problem, Speedup, Target, Trial
from ksflow.report.headline import baseline_name, headline, known_baselines

REGIONS = "regions.json"


@dataclass(frozen=True)
class Candidate:
    """The winner of a run whose problem is a region of a model."""

    problem: Problem
    target: Target
    trial: Trial
    lineage: Path
    run: str
    commit: str
    ratios: dict[str, Speedup]
    """How many times as fast it is as what it takes the place of, by `eager` or `compiled`; what is not known lacks."""

    @property
    def name(self) -> str:
        """Of its module and its operator."""
        return re.sub(r"\W", "_", self.problem.name if self.problem.name[:1].isalpha() else f"k_{self.problem.name}")


def winner(population: Population, problem: Problem) -> tuple[Trial, dict[str, Speedup]]:
    """A run's winner, and how it did beside the region as it was. ConfigError where nothing is to be put in place."""
    baselines = known_baselines(population, problem.seeds)
    claimed = headline(population, baselines)
    if claimed is None:
        raise ConfigError(f"{problem.name} has no accepted kernel yet: go on with its run first")
    if claimed.over is claimed.best:
        raise ConfigError(f"{problem.name}: {claimed}; there is nothing to put in place, so leave it out or search on")
    names = {"PyTorch": "eager", "the reference": "eager", "torch.compile": "compiled"}
    rows = {"eager": claimed.row} if claimed.row else {}
    for trial in baselines:
        row = population.speedup(claimed.best, trial)
        if row and (name := names.get(baseline_name(trial))):
            rows[name] = row
    return claimed.best, rows


def write_package(folder: Path, candidates: Sequence[Candidate], evaluate: Evaluator, exact: bool) -> list[str]:
    """Write the package; what there is to say of it. Raises ConfigError, and then leaves what was there as it was.

    exact: only kernels of which the judge finds that they answer what the reference does, to the last bit.
    """
    if folder.exists() and not (folder / REGIONS).is_file():
        raise ConfigError(f"{folder} is there and is no such package: name another by out=FOLDER")
    if not folder.name.isidentifier():
        raise ConfigError(f"{folder.name!r} cannot be imported: name another by out=FOLDER, of letters, digits and _")
    draft = folder.with_name(f".{folder.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    regions, lines = [], []
    for part in candidates:
        done = hand_over(draft / part.name, part.problem, part.target, part.trial, evaluate)
        wrong = not done.files or (done.error is not None and not isfinite(done.error))
        inexact = exact and done.error != 0
        if wrong or inexact:
            shutil.rmtree(draft / part.name, ignore_errors=True)
            off = "was not compared with the reference's" if done.error is None else f"is off by {done.error:.3g}"
            lines.append(f"{part.name}: left out: {done.said[0] if wrong else f'its answer {off}, and exact=true'}")
            continue
        regions.append(_region(part, done.error))
        lines += [f"{part.name}: {line}" for line in done.said]
    if not regions:
        shutil.rmtree(draft, ignore_errors=True)
        raise ConfigError(f"nothing is left to put in place: {'; '.join(lines)}")
    content = {"model": regions[0].pop("model"), "regions": regions}
    home.write(draft / REGIONS, json.dumps(content, indent=1) + "\n")
    for name in ("installed.py", "arguments.py", "operators.py"):
        text = Path(__file__).with_name(name).read_text(encoding="utf-8")
        home.write(draft / ("__init__.py" if name == "installed.py" else name), text)
    home.write(draft / "README.md", _readme(folder.name, regions))
    shutil.rmtree(folder, ignore_errors=True)
    draft.rename(folder)
    return lines


def region_of(problem: Problem) -> Json:
    """What `model profile` wrote of a problem's region. ConfigError where the problem is none."""
    region = model_region(problem)
    if region is None:
        raise ConfigError(f"{problem.name} is no region of a model: `model profile` writes such problems")
    if "function" in region:
        raise ConfigError(
            f"{problem.name} is the function {region['function']}, no region of a model: `apply NAME --patch`"
        )
    return region | {"model": str(Path(problem.root, region["model"]).resolve())}


def _region(candidate: Candidate, error: float | None) -> Json:
    assert candidate.trial.kernel
    region = region_of(candidate.problem)
    count = len(region["inputs"]) + len(region["parameters"])
    cases = []
    for inputs, (_, outputs, _), *_ in case_facts(candidate.problem, candidate.target, candidate.trial.kernel).rows:
        returned = [outputs[at] for at in sorted(outputs, key=int) if int(at) >= count]
        case = {"given": inputs[:count], "outputs": returned}
        cases += [case] if case not in cases else []
    kept = {key: region[key] for key in ("model", "class", "modules", "constants", "parameters", "device")}
    return kept | {
        "name": candidate.name,
        "inputs": [row["name"] for row in region["inputs"]],
        "returns": region.get("returns"),
        "changed": region.get("changed", []),
        "cases": cases,
        "namespace": f"ksflow_{candidate.trial.kernel.digest[:8]}",
        "record": {
            "lineage": str(candidate.lineage),
            "problem": candidate.problem.name,
            "run": candidate.run,
            "trial": candidate.trial.id,
            "commit": candidate.commit,
            "language": candidate.trial.kernel.language,
            "error": error,
            "ratios": {name: [row.ratio, row.low, row.high] for name, row in candidate.ratios.items()},
            "share": region.get("share"),
            "compiled_share": region.get("compiled_share"),
        },
    }


def _readme(name: str, regions: Sequence[Json]) -> str:
    rows = []
    for region in regions:
        record, modules = region["record"], region["modules"]
        many = f"{modules[0]} and {len(modules) - 1} more" if len(modules) > 1 else modules[0]
        ratios = ", ".join(f"x{mid:.3g} [{low:.3g}, {high:.3g}] over {over}"
                           for over, (mid, low, high) in record["ratios"].items())  # fmt: skip
        error = {None: "not compared", 0: "equal"}.get(record["error"], "within the bound")
        kernel = f"[{record['trial']}]({region['name']}/module.py), {record['language']}"
        rows.append(f"| `{many}` | `{region['class']}` | {kernel} | {ratios} | {error} |")
    return TEXTS["README"].format(name=name, rows="\n".join(rows))
