"""Whether a package of kernels pays: the whole model with them and without, replicate by replicate.

The statistics are the judge's: turns in random order, a fresh process for each replicate, and the interval of a
random-effects model over them. A way of calling the model in which no kernel ran has no result. Kernels and model run
in a process of their own, but in no sandbox: as in the program that they are for.
"""

import json
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from ksflow.errors import ConfigError
from ksflow.formats.isolated import IsolatedFailure, run_isolated
from ksflow.hardware import cpu
from ksflow.judge.comparison import CaseResult, CaseResults, Outcome
from ksflow.judge.samples import Samples
from ksflow.model.package import REGIONS
from ksflow.records import Engaged, Json, Proof, Ratio, Way, amdahl, geomean, parse

_TIMEOUT_S = 3600.0


def prove(folder: Path, replicates: int, mode: str, begin: Callable[[str], None]) -> tuple[Proof, list[Json]]:
    """What a package does for its model, and what is on record of each of its kernels. ConfigError where it cannot run.

    mode: of torch.compile. begin: told of each replicate before it begins.
    """
    try:
        told: Json = json.loads((folder / REGIONS).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{folder} is no package that `model apply` wrote: {error.strerror}") from error
    order = {"model": told["model"], "package": str(folder.resolve()), "mode": mode}
    found: list[Json] = []
    for number in range(replicates):
        begin(f"replicate {number + 1}")
        try:
            found.append(run_isolated("ksflow.model.replicate", order | {"seed": number}, _TIMEOUT_S))
        except (IsolatedFailure, subprocess.TimeoutExpired) as error:
            raise ConfigError(f"{told['model']} with {folder.name}: {error}") from error
    kernels = [_engaged(region, found) for region in told["regions"]]
    ways, remarks = [], [f"compiled: not timed: {one['failed']}" for one in found if one["failed"]][:1]
    for name in found[0]["timed"]:
        if not any(kernel.hits[name] for kernel in kernels):
            why = Counter[str]()
            for kernel in kernels:
                why.update(kernel.fallbacks)
            told_why = ", ".join(f"{reason} {count}" for reason, count in why.items())
            remarks.append(f"{name}: no result: no kernel ran in the timed calls (fallbacks: {told_why or 'none'})")
            continue
        ways.append(way := _way(name, found, kernels))
        remarks += _explained(way, kernels)
    proof = Proof(
        model=Path(told["model"]).name,
        machine=found[0]["machine"] or cpu.read().chip,
        threads=found[0]["threads"],
        torch=found[0]["torch"],
        mode=mode,
        ways=tuple(ways),
        kernels=tuple(kernels),
        remarks=tuple(remarks),
    )
    return proof, [region["record"] for region in told["regions"]]


def _way(name: str, found: Sequence[Json], kernels: Sequence[Engaged]) -> Way:
    """The model called in one way: sets of inputs are what cases are to the judge."""
    sets = range(len(found[0]["timed"][name][0]))
    cases = [CaseResults({"name": f"inputs {number}"}, [_cell(one, name, number) for one in found]) for number in sets]
    row = Outcome(cases).ratio("with", "without")
    assert row
    lows = {place: geomean(s.low() for case in cases for s in case.samples(place)) for place in ("without", "with")}
    parts = [(one.shares.get(name), one.ratios.get(name)) for one in kernels]
    known = [(share, ratio) for share, ratio in parts if share is not None and ratio is not None]
    predicted = tuple(amdahl((share, ratio[place]) for share, ratio in known) for place in range(3))
    return Way(
        name=name,
        without_us=lows["without"],
        with_us=lows["with"],
        ratio=parse(Ratio, row),
        difference=max(one["difference"][name] for one in found),
        bound=max(one["bound"] for one in found),
        predicted=(predicted[0], predicted[1], predicted[2]) if len(known) == len(parts) else None,
    )


def _cell(one: Json, name: str, number: int) -> CaseResult:
    samples = {}
    for place, rows in zip(("without", "with"), one["timed"][name], strict=True):
        walls, cpus = rows[number]
        samples[place] = Samples(us=walls, wall=walls, cpu=[] if one["machine"] else cpus)
    return CaseResult(samples, frozenset(samples), len(walls), 1, 0.0, [], 0)


def _engaged(region: Json, found: Sequence[Json]) -> Engaged:
    name, record = region["name"], region["record"]
    calls = sum(one["calls"] for one in found)
    counts = {way: Counter[str]() for way in found[0]["timed"]}  # by the reason of a fallback, "" for hits
    for one in found:
        for way, count in counts.items():
            count.update({why: many for where, why, many in one["hits"][way] if where == name})
    whole, plain, fast = (
        geomean(one["here"][place].get(key, 0.0) or 1e-3 for one in found)
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
    said = [] if way.alike else [much]
    ratio, predicted = way.ratio, way.predicted
    if not predicted or (ratio.low <= predicted[2] and predicted[1] <= ratio.high) or way.name != "eager":
        return said
    here = [(one.share_here, one.ratio_here) for one in kernels]
    rows = "; ".join(
        f"{one.region} takes {100 * share:.3g} % (profile: {100 * one.shares['eager']:.3g} %), "
        f"its kernel is x{times:.3g} (judge: x{one.ratios['eager'][0]:.3g})"
        for one, (share, times) in zip(kernels, here, strict=True)
    )
    return [*said, f"{way.name}: in this model {rows}: by Amdahl's law x{amdahl(here):.3g}"]
