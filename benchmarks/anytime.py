"""How good the best kernel of a run is after so many seconds, and what its verdicts cost.

    python benchmarks/anytime.py [--at 30,60,120] [--json FILE] [--problem fp8_gemm] [--run main] FOLDER...

A folder is where a run was started; it holds `runs/lineage.git`. Seconds are working time, as pages have them. A ratio
is the best kernel's over the baseline that is fastest at the end, by all that is known then. The cost of a verdict is
what the judge spent: a win was ranked ahead of the best so far, a loss is more than a tenth behind it, all other
comparisons are ties. Rows of several folders are followed by the geometric mean of the ratios and the mean of the
costs. `ksflow report` draws the same curve, of several runs on one scale.
"""

import argparse
import json
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

from ksflow.lineage import Lineage
from ksflow.records import Origin, Trial
from ksflow.report.page.facts import RunFacts

_BEHIND = 0.9


def main() -> None:
    """Read the runs, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--at", default="30,60,120")
    parser.add_argument("--problem", default="fp8_gemm")
    parser.add_argument("--run", default="main")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    moments = [float(word) for word in options.at.split(",")]
    found = [curve(folder, options.problem, options.run) for folder in options.folders]
    kinds = ("win", "tie", "loss")
    print(
        "run | "
        + " | ".join(f"x after {at:g} s" for at in moments)
        + " | at the end | seconds of a "
        + ", a ".join(kinds)
    )
    rows = [([*(after(run, at) for at in moments), run["curve"][-1][1]], run["spent_s"]) for run in found]
    for folder, (ratios, spent) in zip(options.folders, rows, strict=True):
        costs = (
            f"{statistics.fmean(spent[kind]):.2f} ({len(spent[kind])})" if kind in spent else "-" for kind in kinds
        )
        print(f"{folder.name} | {' | '.join(f'{ratio:.2f}' for ratio in ratios)} | {', '.join(costs)}")
    means = (statistics.geometric_mean(column) for column in zip(*(ratios for ratios, _ in rows), strict=True))
    every = {kind: [each for _, spent in rows for each in spent.get(kind, ())] for kind in kinds}
    costs = (f"{statistics.fmean(each):.2f}" if each else "-" for each in every.values())
    print(f"mean | {' | '.join(f'{mean:.2f}' for mean in means)} | {', '.join(costs)}")
    if options.json:
        named = {folder.name: run for folder, run in zip(options.folders, found, strict=True)}
        options.json.write_text(json.dumps(named, indent=1) + "\n")


def curve(folder: Path, problem: str, run: str) -> dict[str, Any]:
    """`curve`: (seconds, ratio of the best so far) after each verdict; `spent_s`: kind of verdict -> its seconds."""
    path = folder / "runs" / "lineage.git"
    lineage = Lineage(path, problem, run, create=False)
    try:
        facts = RunFacts(lineage).read(details=False)
        population = lineage.population()
    finally:
        lineage.close()
    baseline = min(us for trial in population.baselines if (us := population.time_us(trial)))
    points = [
        (round(60 * row["minutes"], 1), round(baseline / row["best_us"], 4))
        for row in facts["trials"]
        if row["minutes"] is not None and row["best_us"]
    ]
    spent: dict[str, list[float]] = defaultdict(list)
    for trial in population.trials:
        if trial.origin is not Origin.SEED and trial.evaluation and (kind := kind_of(trial)):
            phases = trial.evaluation.evidence.spent_s.items()
            spent[kind].append(round(sum(seconds for phase, seconds in phases if not phase.endswith(" start")), 3))
    return {"curve": sorted(points), "spent_s": dict(spent)}


def kind_of(trial: Trial) -> str:
    """`win`, `tie` or `loss`; empty where nothing was compared."""
    evaluation = trial.evaluation
    if evaluation is None or not evaluation.evidence.against:
        return ""
    if evaluation.claim and evaluation.claim.faster:
        return "win"
    return "loss" if evaluation.evidence.against[0].high < _BEHIND else "tie"


def after(run: dict[str, Any], at: float) -> float:
    """The ratio after so many seconds; 1 before there is one."""
    return max((ratio for seconds, ratio in run["curve"] if seconds <= at), default=1.0)


if __name__ == "__main__":
    main()
