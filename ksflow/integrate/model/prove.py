"""Whether a package of kernels pays: the whole model with them and without, replicate by replicate.

The statistics are the judge's: turns in random order, a fresh process for each replicate, and the interval of a
random-effects model over them. A way of calling the model in which no kernel ran has no result. Kernels and model run
in a process of their own, but in no sandbox: as in the program that they are for.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from ksflow.errors import ConfigError, reaching
from ksflow.evaluation.judge.outcome import CaseResult, CaseResults, Outcome
from ksflow.evaluation.judge.samples import Samples
from ksflow.formats.isolated import IsolatedFailure, run_isolated
from ksflow.integrate.model.package import REGIONS
from ksflow.kernels.hardware import cpu
from ksflow.records import Engaged, Json, Proof, Ratio, Way, amdahl, geomean, parse

_TIMEOUT_S = 3600.0


def prove(folder: Path, replicates: int, mode: str, begin: Callable[[str], None]) -> tuple[Proof, list[Json]]:
    """What a package does for its model, and what is on record of each of its kernels. ConfigError where it cannot run.

    mode: of torch.compile. begin: told of each replicate before it begins.
    """
    with reaching(f"{folder} is no package that `model apply` wrote", "name the folder that it wrote"):
        content: Json = json.loads((folder / REGIONS).read_text(encoding="utf-8"))
    order = {"model": content["model"], "package": str(folder.resolve()), "mode": mode}
    runs: list[Json] = []
    for number in range(replicates):
        begin(f"replicate {number + 1}")
        try:
            runs.append(run_isolated("ksflow.integrate.model.replicate", order | {"seed": number}, _TIMEOUT_S))
        except IsolatedFailure as error:
            raise ConfigError(f"{content['model']} with {folder.name}: {error}") from error
    kernels = [_engaged(region, runs) for region in content["regions"]]
    ways, remarks = [], [f"compiled: not timed: {run['failed']}" for run in runs if run["failed"]][:1]
    for name in runs[0]["timed"]:
        if not any(kernel.hits[name] for kernel in kernels):
            why = sum((Counter(kernel.fallbacks) for kernel in kernels), Counter[str]())
            reasons = ", ".join(f"{reason} {count}" for reason, count in why.items())
            remarks.append(f"{name}: no result: no kernel ran in the timed calls (fallbacks: {reasons or 'none'})")
            continue
        ways.append(way := _way(name, runs, kernels))
        remarks += _explained(way, kernels)
    proof = Proof(
        model=Path(content["model"]).name,
        machine=runs[0]["machine"] or cpu.read_cpu().chip,
        threads=runs[0]["threads"],
        torch=runs[0]["torch"],
        mode=mode,
        ways=tuple(ways),
        kernels=tuple(kernels),
        remarks=tuple(remarks),
    )
    return proof, [region["record"] for region in content["regions"]]


def _way(name: str, runs: Sequence[Json], kernels: Sequence[Engaged]) -> Way:
    """The model called in one way: sets of inputs are what cases are to the judge."""
    sets = range(len(runs[0]["timed"][name][0]))
    cases = [CaseResults({"name": f"inputs {number}"}, [_cell(run, name, number) for run in runs]) for number in sets]
    row = Outcome(cases).ratio("with", "without")
    assert row
    lows = {
        place: geomean(s.low_mean() for case in cases for s in case.samples(place)) for place in ("without", "with")
    }
    parts = [(kernel.shares.get(name), kernel.ratios.get(name)) for kernel in kernels]
    known = [(share, ratio) for share, ratio in parts if share is not None and ratio is not None]
    predicted = tuple(amdahl((share, ratio[place]) for share, ratio in known) for place in range(3))
    return Way(
        name=name,
        without_us=lows["without"],
        with_us=lows["with"],
        ratio=parse(Ratio, row),
        difference=max(run["difference"][name] for run in runs),
        bound=max(run["bound"] for run in runs),
        predicted=(predicted[0], predicted[1], predicted[2]) if len(known) == len(parts) else None,
    )


def _cell(run: Json, name: str, number: int) -> CaseResult:
    samples = {}
    for place, rows in zip(("without", "with"), run["timed"][name], strict=True):
        walls, cpus = rows[number]
        samples[place] = Samples(us=walls, wall=walls, cpu=[] if run["machine"] else cpus)
    return CaseResult(samples, frozenset(samples), len(walls), 1, 0.0, [], 0)


def _engaged(region: Json, runs: Sequence[Json]) -> Engaged:
    name, record = region["name"], region["record"]
    calls = sum(run["calls"] for run in runs)
    counts = {way: Counter[str]() for way in runs[0]["timed"]}  # by the reason of a fallback, "" for hits
    for run in runs:
        for way, count in counts.items():
            count.update({why: many for where, why, many in run["hits"][way] if where == name})
    whole, plain, fast = (
        geomean(run["here"][place].get(key, 0.0) or 1e-3 for run in runs)
        for place, key in ((0, ""), (0, name), (1, name))
    )
    shares = {"eager": record["share"] or plain / whole, "compiled": record["compiled_share"]}
    return Engaged(
        region=name,
        branch=f"{record['problem']}/{record['run']}/{record['trial']}",
        modules=len(region["modules"]),
        hits={way: count[""] / calls for way, count in counts.items()},
        fallbacks={why: many for why, many in counts["eager"].items() if why and many},
        shares={way: share for way, share in shares.items() if share is not None},
        ratios={way: (row[0], row[1], row[2]) for way, row in record["ratios"].items()},
        share_here=plain / whole,
        ratio_here=plain / fast,
    )


def _explained(way: Way, kernels: Sequence[Engaged]) -> list[str]:
    """Why the model does not gain what Amdahl's law predicts, where it does not."""
    much = f"{way.name}: outputs differ by {way.difference:.2g}, which is more than {way.bound:.2g}"
    remarks = [] if way.outputs_agree else [much]
    ratio, predicted = way.ratio, way.predicted
    if not predicted or (ratio.low <= predicted[2] and predicted[1] <= ratio.high) or way.name != "eager":
        return remarks
    here = [(kernel.share_here, kernel.ratio_here) for kernel in kernels]
    rows = "; ".join(
        f"{kernel.region} takes {100 * share:.3g} % (profile: {100 * kernel.shares['eager']:.3g} %), "
        f"its kernel is x{times:.3g} (judge: x{kernel.ratios['eager'][0]:.3g})"
        for kernel, (share, times) in zip(kernels, here, strict=True)
    )
    return [*remarks, f"{way.name}: in this model {rows}: by Amdahl's law x{amdahl(here):.3g}"]
