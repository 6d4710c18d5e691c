"""Whether a package of kernels pays: the whole model with them and without, replicate by replicate.

The statistics are the judge's: turns in random order, a fresh process for each replicate, and the interval of a
random-effects model over them. A way of calling the model in which no kernel ran has no result. Kernels and model run
in a process of their own, but in no sandbox: as in the program that they are for.
"""

import copy
import importlib
import json
import math
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from ksflow.errors import ConfigError, catch_foreign, one_line, reaching
from ksflow.evaluation.judge.outcome import CaseResult, CaseResults, Outcome
from ksflow.evaluation.judge.samples import Samples
from ksflow.formats.isolated import IsolatedFailure, answer_order, run_isolated
from ksflow.integrate.model.calls import watching
from ksflow.integrate.model.package import REGIONS
from ksflow.integrate.model.user_file import load, wait
from ksflow.kernels.hardware import cpu
from ksflow.records import Engaged, Json, Proof, Ratio, Way, amdahl, geomean, parse

_TIMEOUT_S = 3600.0
_LEAST, _MOST, _SECONDS = 12, 400, 12.0
"""Rounds of a replicate, and how long they may take beyond the least."""
_HOOKED = 9
_ROUNDINGS, _TIMES = 16, 4
"""How many roundings outputs may be apart, and how many times as far as torch.compile alone brings them."""


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
            runs.append(run_isolated("ksflow.integrate.model.prove", order | {"seed": number}, _TIMEOUT_S))
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
    cases = []
    for number in sets:
        samples = [
            {
                place: Samples(us=rows[number][0], wall=rows[number][0], cpu=[] if run["machine"] else rows[number][1])
                for place, rows in zip(("without", "with"), run["timed"][name], strict=True)
            }
            for run in runs
        ]
        cells = [CaseResult(one, frozenset(one), len(one["with"].us), 1, 0.0, [], 0) for one in samples]
        cases.append(CaseResults({"name": f"inputs {number}"}, cells))
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


def replicate(order: Json) -> Json:
    """In a process of its own: times of every call, which kernels were called, how far outputs are apart, and what
    modules take in the model."""
    user = load(Path(order["model"]))
    model, sets = user.model, user.inputs
    sys.path.insert(0, str(Path(order["package"]).parent))
    package = importlib.import_module(Path(order["package"]).name)
    weights = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    fast = package.install(copy.deepcopy(model, dict(weights)))  # a copy that has the same weights
    ways: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {"eager": (model, fast)}
    failed = ""
    with torch.no_grad():
        outputs = {"eager": [[way(*args, **named) for args, named in sets] for way in ways["eager"]]}
        with catch_foreign() as caught:
            both = [torch.compile(variant, mode=order["mode"], dynamic=False) for variant in (model, fast)]
            warm = [[[way(*args, **named) for args, named in sets] for _ in range(2)][-1] for way in both]
            ways["compiled"], outputs["compiled"] = (both[0], both[1]), warm
        if caught:
            failed = one_line(f"{type(caught[0]).__name__}: {caught[0]}", 300)
        timed, hits, last = _timed(ways, sets, package, user.gpu, int(order["seed"]))
        here = [_modules_us(variant, package, sets, user.gpu) for variant in (model, fast)]
    own = outputs["eager"][0]
    if not any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves(own)):
        raise TypeError(f"the model returns {type(own[0]).__name__}, in which no tensor is found to compare")
    usual = difference(outputs["compiled"][0], own) if not failed else 0.0
    least = max((torch.finfo(tensor.dtype).eps for tensor in tree_leaves(own) if _floats(tensor)), default=0.0)
    return {
        "timed": timed,
        "hits": hits,
        "calls": sum(len(walls) for walls, _ in timed["eager"][0]),
        "failed": failed,
        "difference": {
            name: max(difference(with_them, without) for without, with_them in (outputs[name], last[name]))
            for name in ways
        },
        "bound": max(_ROUNDINGS * least, _TIMES * usual),
        "here": here,
        "machine": torch.cuda.get_device_name() if user.gpu else "",
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }


def _timed(ways: Any, sets: Any, package: ModuleType, gpu: bool, seed: int) -> tuple[Json, Json, Json]:
    """Of each way, without kernels and with them, the µs of each call by both clocks, set by set; the kernels' hits and
    fallbacks in the calls with them; the last outputs."""
    calls = [(name, place) for name in ways for place in (0, 1)]
    timed: Json = {name: [[([], []) for _ in sets] for _ in (0, 1)] for name in ways}
    last: Json = {name: [[None] * len(sets) for _ in (0, 1)] for name in ways}
    hits: Json = {name: Counter() for name in ways}
    dice, rounds, until = random.Random(seed), 0, time.monotonic() + _SECONDS
    while rounds < _LEAST or (rounds < _MOST and time.monotonic() < until):
        rounds += 1
        for number, (args, named) in enumerate(sets):
            for name, place in dice.sample(calls, len(calls)):
                before = _counters(package)
                wait(gpu)
                cpu, wall = time.process_time(), time.perf_counter()
                last[name][place][number] = ways[name][place](*args, **named)
                wait(gpu)
                walls, cpus = timed[name][place][number]
                walls.append((time.perf_counter() - wall) * 1e6)
                cpus.append((time.process_time() - cpu) * 1e6)
                if place:
                    hits[name].update(_counters(package) - before)
    return timed, {name: [(*key, count) for key, count in counts.items()] for name, counts in hits.items()}, last


def _counters(package: ModuleType) -> Counter[tuple[str, str]]:
    """(region, why it fell back, or nothing for its hits) -> how often."""
    counts: Counter[tuple[str, str]] = Counter()
    for region, row in package.report().items():
        counts[region, ""] = row["hits"]
        counts.update({(region, why): count for why, count in row["fallbacks"].items()})
    return counts


def _modules_us(model: torch.nn.Module, package: ModuleType, sets: Any, gpu: bool) -> Json:
    """What a call of the model takes by its own clock, "" for the whole, and what of it the modules of each region."""
    names = {name: region.name for region in package.REGIONS for name in region.modules} | {"": ""}
    watched = [(name, module) for name, module in model.named_modules() if name in names]
    spans, began = list[tuple[str, Any, Any]](), dict[str, Any]()

    def begins(name: str, *_: Any) -> None:
        began[name] = _stamp(gpu)

    def ends(name: str, *_: Any) -> None:
        spans.append((names[name], began[name], _stamp(gpu)))

    times: dict[str, list[float]] = {}
    with watching(watched, begins, ends):
        for args, named in sets * _HOOKED:
            spans.clear()
            wait(gpu)
            model(*args, **named)
            wait(gpu)
            once: Counter[str] = Counter()
            for name, first, second in spans:
                once[name] += first.elapsed_time(second) * 1e3 if gpu else (second - first) * 1e6
            for name, us in once.items():
                times.setdefault(name, []).append(us)
    return {name: sorted(row)[len(row) // 2] for name, row in times.items()}


def _stamp(gpu: bool) -> Any:
    if not gpu:
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event


def difference(ours: Any, theirs: Any) -> float:
    """How far tensors are apart: the largest norm of a difference as a share of their own; infinite where what is no
    number, or not finite, is not the same."""
    most = 0.0
    pairs = list(zip(tree_leaves(ours), tree_leaves(theirs), strict=True))
    for own, other in ((a, b) for a, b in pairs if isinstance(a, torch.Tensor)):
        if not _floats(own):
            most = max(most, 0.0 if torch.equal(own, other) else math.inf)
            continue
        wide = torch.complex128 if own.is_complex() else torch.float64
        apart, size = (own.to(wide) - other.to(wide)).norm().item(), other.to(wide).norm().item()
        same = torch.allclose(own, other, rtol=0, atol=0, equal_nan=True)
        most = max(most, 0.0 if same else apart / size if size and math.isfinite(apart) else math.inf)
    return most


def _floats(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())


if __name__ == "__main__":
    answer_order(replicate)
