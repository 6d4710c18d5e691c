"""One replicate of a proof, in a process of its own: a model with kernels and without, eager and compiled, in turns.

`prove` asks it. Model and kernels run here as they do in a user's program, with no sandbox around them.
"""

import copy
import importlib
import math
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from ksflow.errors import catch_foreign, one_line
from ksflow.formats.isolated import answer_order
from ksflow.integrate.model.user_file import load, wait
from ksflow.records import Json

_LEAST, _MOST, _SECONDS = 12, 400, 12.0
"""Rounds of a replicate, and how long they may take beyond the least."""
_HOOKED = 9
_ROUNDINGS = 16
_TIMES = 4
"""How many roundings outputs may be apart, and how many times as far as torch.compile alone brings them."""


def replicate(order: Json) -> Json:
    """Times of every call, what kernels were called, how far outputs are apart, what modules take in the model."""
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
    modules, spans = dict(model.named_modules()), list[tuple[str, Any, Any]]()
    open_: dict[Any, Any] = {}
    handles = []
    for region in package.REGIONS:
        for module in (modules[name] for name in region.modules):
            handles += [
                module.register_forward_pre_hook(lambda *args: open_.update({args[0]: _stamp(gpu)})),
                module.register_forward_hook(
                    lambda *args, name=region.name: spans.append((name, open_[args[0]], _stamp(gpu)))
                ),
            ]
    times: dict[str, list[float]] = {}
    for _ in range(_HOOKED):
        for args, named in sets:
            spans.clear()
            wait(gpu)
            began = _stamp(gpu)
            model(*args, **named)
            spans.append(("", began, _stamp(gpu)))
            wait(gpu)
            once: Counter[str] = Counter()
            for name, first, second in spans:
                once[name] += first.elapsed_time(second) * 1e3 if gpu else (second - first) * 1e6
            for name, us in once.items():
                times.setdefault(name, []).append(us)
    for handle in handles:
        handle.remove()
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
