"""What one core of this machine does: the shipped probes in a box, and the latest measurements in the cache folder.

Of these the best counts, because a busy machine only makes rates lower; but no more than a little above the second
best, and no more than the processor's instructions can do: what a clock that jumped has shown once is no rate.
Rooflines and floors of CPU targets rest on it. Where no probe can run, a target keeps what its instruction sets say.
"""

import json
import math
import platform
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from ksflow import home
from ksflow.compilers.client import SHARED_SERVER, box_request, compile_kernel, find
from ksflow.errors import ConfigError
from ksflow.hardware import cpu
from ksflow.processes.deadline import locked_within
from ksflow.records import Json, Target, digest

try:
    from ksflow.notes import probes
except ModuleNotFoundError:  # in a worker's copy of the code, which has neither notes nor yaml
    probes = None  # type: ignore[assignment]

_READ, _CLOCK, _FLOAT = "memory-read", "clock", "flops.fp32"
_PROBES = {_FLOAT: "fma", "flops.bf16": "bf16-dot", "flops.bf16.matrix": "amx", "hz": _CLOCK}
"""What is measured -> the probe that measures it; one for each size of memory comes beside them."""
_UNIT = 1e9
"""All of these probes tell in GB/s, GFLOP/s or GHz."""
_CALL_BYTES = 1 << 26
"""Read in a call, which is then short enough to escape the others on the core."""
_SHARE = 2
"""A working set that surely fits a level takes half of it."""
_MAIN = (1 << 26, 1 << 30)
_BEYOND = 4
"""Times the largest cache, within these bounds: main memory."""
_LIMIT_S, _MEMORY_MB = 30.0, 2048
_RENEWED_S = 7 * 86400.0
"""After so long it is measured anew."""
_KEPT = 6
"""Measurements, the latest."""
_ABOVE = 1.25
"""So many times the second best counts at most of the best."""
_TURN_S = 60.0
"""Another process may measure for so long; then this one does, too."""


class _Measurement(NamedTuple):
    """When rates were measured, and what they were by their names in `Target.measured`."""

    when: float
    rates: dict[str, float]


def measured(target: Target, again: bool = False) -> Target:
    """The target with the rates of this machine's core, where it is a CPU: measured once a week, or `again`, twice.

    A first time takes two or three seconds. As it came where nothing can be measured here: no compiler, no box, no
    probes.
    """
    if target.kind != "cpu" or probes is None:
        return target
    file = home.cache("rates", f"{_machine(target)}.json")
    known = _read(file)
    if (again or _is_old(known)) and find() is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        with open(file.with_suffix(".lock"), "w", encoding="utf-8") as lock:
            locked_within(lock.fileno(), _TURN_S)  # of those who start at once one measures, and the others read that
            known = _read(file)
            if again or _is_old(known):
                rows = (_Measurement(time.time(), _measure(target)) for _ in range(2 if again else 1))
                known = [*known, *(row for row in rows if row.rates)][-_KEPT:]
                if known:
                    home.write(file, json.dumps([row._asdict() for row in known]))
    return replace(target, measured=_believed(known, target))


def _is_old(known: list[_Measurement]) -> bool:
    return not known or not 0 <= time.time() - known[-1].when < _RENEWED_S


def _believed(known: list[_Measurement], target: Target) -> dict[str, float]:
    """Name -> the rate that counts, of several measurements."""
    rates = {}
    for key in {key: None for row in known for key in row.rates}:
        best, *others = sorted((row.rates[key] for row in known if key in row.rates), reverse=True)
        most = target.peaks.get("bytes.cache" if key.startswith("bytes") else key, math.inf)
        rates[key] = min(best, most, _ABOVE * others[0] if others else math.inf)
    return rates


def _machine(target: Target) -> str:
    """Names this machine and what is asked of it."""
    asked = (probe.kernel.digest for probe in _able(target).values())
    return digest(platform.node(), target.chip, *cpu.read().flags, *map(str, cpu.cache_sizes()), *asked)


def _read(file: Path) -> list[_Measurement]:
    """What is on file; nothing where that cannot be read."""
    try:
        rows = json.loads(file.read_text(encoding="utf-8"))
        return [
            _Measurement(float(row["when"]), {str(key): float(rate) for key, rate in row["rates"].items()})
            for row in rows
        ]
    except (OSError, ValueError, AttributeError, TypeError, KeyError):
        return []


def _able(target: Target) -> "dict[str, probes.Probe]":
    """What is measured -> its probe, of those that this CPU can answer."""
    names = {probe.name: probe for probe in probes.ready()}
    wanted = {**{key: names[name] for key, name in _PROBES.items()}, "bytes": names[_READ]}
    whole = replace(target, features=cpu.read().features)
    return {key: probe for key, probe in wanted.items() if not probe.lacks(whole)}


def _measure(target: Target) -> dict[str, float]:
    """Rates by their names in `Target.measured`; none where no probe can run."""
    able, native = _able(target), replace(target, march="native")
    try:
        built = {key: compile_kernel(probe.problem, probe.kernel, native).artefact for key, probe in able.items()}
        able = {key: probe for key, probe in able.items() if built[key]}
        shots = _shots(able)
        times = _run(shots, {f"{able[key].name}.so": built[key] for key in able})
    except ConfigError:
        return {}
    rates = {key: _rate(able[key if key in able else "bytes"], shots[key], us) for key, us in times.items()}
    return _complete({key: rate for key, rate in rates.items() if math.isfinite(rate) and rate > 0}, target)


def _shots(able: "dict[str, probes.Probe]") -> dict[str, Json]:
    """The numbers of each call: one of a probe's own case, or as much of a level of memory as surely fits."""
    shots = {}
    for key, probe in able.items():
        if key != "bytes":
            numbers = {"each": 1, **next(iter(probe.cases.values()))}
            shots[key] = {**numbers, "library": f"{probe.name}.so"}
    if "bytes" in able:
        caches = cpu.cache_sizes()
        main = min(max(_BEYOND * caches[-1], _MAIN[0]), _MAIN[1])
        for key, size in {**{f"bytes.{size}": size // _SHARE for size in caches}, "bytes": main}.items():
            n = size // 512 * 128
            turns = max(_CALL_BYTES // (4 * n), 1)
            shots[key] = {"n": n, "turns": turns, "each": n, "library": f"{able['bytes'].name}.so"}
    return shots


def _run(shots: dict[str, Json], libraries: dict[str, str]) -> Json:
    """Key -> µs, out of a box."""
    script = Path(__file__).with_name("rates_box.py")
    files = {script.name: script.read_text(encoding="utf-8"), ".order.json": json.dumps(shots)}
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "made.json")
        command = [sys.executable, "-I", "-S", script.name]
        request = box_request(command, files, result, _LIMIT_S, _MEMORY_MB, copies=libraries, kind="json")
        answer = SHARED_SERVER.ask(request, _LIMIT_S)
        times = json.loads(result.read_text(encoding="utf-8")) if answer["words"].get("exit") == "0" else {}
    return {key: us for key, us in times.items() if key in shots and isinstance(us, int | float) and us > 0}


def _rate(probe: "probes.Probe", shot: Json, us: float) -> float:
    """What a time means, a second, as the probe's own figure has it."""
    figure = next(iter(probe.figures.values()))
    names = {name: value for name, value in shot.items() if isinstance(value, int | float)}
    return _UNIT * figure.calculated({**names, "us": us})


def _complete(rates: dict[str, float], target: Target) -> dict[str, float]:
    """The same with types that no probe measures: what their instructions do in a cycle, at the measured clock."""
    matrix, clock = rates.pop("flops.bf16.matrix", 0.0), rates.pop("hz", 0.0)
    if matrix:
        rates["flops.bf16"] = max(matrix, rates.get("flops.bf16", 0.0))
    if _FLOAT in rates:
        rates["flops.fp64"] = rates[_FLOAT] / 2
    share = clock / cpu.clock_hz()
    others = {key: peak * share for key, peak in target.peaks.items() if key.startswith("flops.") and share}
    return {**others, **rates}
