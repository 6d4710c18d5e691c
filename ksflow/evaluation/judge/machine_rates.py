"""Rates of a kernel's cores of this machine: measured by the shipped probes in a sandbox, kept in the cache folder.

Of several cores, the probes run on all at once, because cores share a memory and a clock's budget.

The best of several measurements counts, because a busy machine only lowers rates; but at most a little above the second
best and what the processor's instructions can do, because a clock may jump. Rooflines and floors of CPU targets use the
rates. Where no probe can run, a target keeps the rates of its instruction sets.
"""

import json
import math
import platform
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ksflow import home
from ksflow.errors import ConfigError
from ksflow.evaluation.compilers.client import SHARED_SERVER, box_request
from ksflow.evaluation.compilers.cpp import compile_kernel, find
from ksflow.evaluation.processes import core_choice
from ksflow.evaluation.processes.deadline import locked_within
from ksflow.evaluation.processes.server_process import ALL_CORES
from ksflow.evaluation.sandbox.confine import PROCESSES
from ksflow.kernels.hardware import cpu
from ksflow.records import Json, Target, digest, parse

try:
    from ksflow.notes import probes
except ModuleNotFoundError:  # in a worker's copy of the code, which has neither notes nor yaml
    probes = None  # type: ignore[assignment]

_READ, _CLOCK, _FLOAT = "memory-read", "clock", "flops.fp32"
_PROBES = {_FLOAT: "fma", "flops.bf16": "bf16-dot", "flops.bf16.matrix": "amx", "hz": _CLOCK}
"""Rate -> the probe that measures it; rates of memory are added for each cache size."""
_UNIT = 1e9  # the probes report GB/s, GFLOP/s or GHz
_CALL_BYTES = 1 << 26  # bytes read in a call, short enough to escape preemption
_SHARE = 2  # a working set of a half surely fits a cache
_MAIN = (1 << 26, 1 << 30)
_BEYOND = 4  # multiple of the largest cache that is main memory, within these bounds
_LIMIT_S, _MEMORY_MB = 30.0, 2048
_RENEWED_S = 7 * 86400.0  # age after which rates are measured again
_KEPT = 6  # measurements kept
_ABOVE = 1.25  # limit of the best rate, as a multiple of the second best
_TURN_S = 60.0  # wait for another process' measurement


@dataclass(frozen=True)
class _Measurement:
    """Time of a measurement, and its rates by their names in `Target.measured`."""

    when: float
    rates: dict[str, float]


def with_measured_rates(target: Target, again: bool = False) -> Target:
    """Return a CPU target with the rates of its cores on this machine, measured once a week, or twice now if
    `again`, in two or three seconds. It is unchanged if nothing can be measured here (no compiler, sandbox or
    probes)."""
    if target.kind != "cpu" or probes is None:
        return target
    file = home.cache("rates", f"{_machine(target)}.json")
    known = _read(file)
    if (again or _is_old(known)) and find() is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        with open(file.with_suffix(".lock"), "w", encoding="utf-8") as lock:
            locked_within(lock.fileno(), _TURN_S)  # of several processes one measures, and the others read its result
            known = _read(file)
            if again or _is_old(known):
                rows = (_Measurement(time.time(), _measure(target)) for _ in range(2 if again else 1))
                known = [*known, *(row for row in rows if row.rates)][-_KEPT:]
                if known:
                    home.write(file, json.dumps([asdict(row) for row in known]))
    return replace(target, measured=_believed(known, target))


def _is_old(known: list[_Measurement]) -> bool:
    return not known or not 0 <= time.time() - known[-1].when < _RENEWED_S


def _believed(known: list[_Measurement], target: Target) -> dict[str, float]:
    rates = {}
    for key in {key: None for row in known for key in row.rates}:
        best, *others = sorted((row.rates[key] for row in known if key in row.rates), reverse=True)
        most = target.peaks.get("bytes.cache" if key.startswith("bytes") else key, math.inf)
        rates[key] = min(best, most, _ABOVE * others[0] if others else math.inf)
    return rates


def _machine(target: Target) -> str:
    asked = (probe.kernel.digest for probe in _able(target).values())
    several = [f"{target.cores} cores"] if target.cores > 1 else []
    return digest(platform.node(), target.chip, *cpu.read_cpu().flags, *map(str, cpu.cache_sizes()), *asked, *several)


def _read(file: Path) -> list[_Measurement]:
    try:
        return [*parse(tuple[_Measurement, ...], json.loads(home.text_of(file)))]
    except (ValueError, TypeError):  # also where there is no file
        return []


def _able(target: Target) -> "dict[str, probes.Probe]":
    names = {probe.name: probe for probe in probes.shipped_probes()}
    wanted = {**{key: names[name] for key, name in _PROBES.items()}, "bytes": names[_READ]}
    whole = replace(target, features=cpu.read_cpu().features)
    return {key: probe for key, probe in wanted.items() if not probe.lacks(whole)}


def _measure(target: Target) -> dict[str, float]:
    """Measure and return rates by their names in `Target.measured`; empty if no probe can run."""
    able, native = _able(target), replace(target, march="native")
    try:
        built = {key: compile_kernel(probe.problem, probe.kernel, native).artefact for key, probe in able.items()}
        able = {key: probe for key, probe in able.items() if built[key]}
        shots = _shots(able, target.cores)
        times = _run(shots, {f"{able[key].name}.so": built[key] for key in able}, target.cores)
    except ConfigError:
        return {}
    rates = {}
    for key, us in times.items():
        figure = next(iter(able[key if key in able else "bytes"].figures.values()))
        names = {name: value for name, value in shots[key].items() if isinstance(value, int | float)}
        rate = _UNIT * figure.calculated({**names, "us": us}) * (1 if key == "hz" else target.cores)
        if math.isfinite(rate) and rate > 0:
            rates[key] = rate
    return _complete(rates, target)


def _shots(able: "dict[str, probes.Probe]", cores: int) -> dict[str, Json]:
    """Return the arguments of each call: a probe's own case, or a core's share of a working set."""
    shots = {}
    for key, probe in able.items():
        if key != "bytes":
            numbers = {"each": 1, **next(iter(probe.cases.values()))}
            shots[key] = {**numbers, "library": f"{probe.name}.so", "cores": cores}
    if "bytes" in able:
        caches = cpu.cache_sizes(cores)
        main = min(max(_BEYOND * caches[-1], _MAIN[0]), _MAIN[1])
        for key, size in {**{f"bytes.{size}": size // _SHARE for size in caches}, "bytes": main}.items():
            n = size // cores // 512 * 128
            turns = max(_CALL_BYTES // (4 * n), 1)
            shots[key] = {"n": n, "turns": turns, "each": n, "library": f"{able['bytes'].name}.so", "cores": cores}
    return shots


def _run(shots: dict[str, Json], libraries: dict[str, str], cores: int) -> Json:
    script = Path(__file__).with_name("rates_box.py")
    files = {script.name: script.read_text(encoding="utf-8"), ".order.json": json.dumps(shots)}
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "made.json")
        command = [sys.executable, "-I", "-S", script.name]
        several: Json = {}
        if cores > 1:
            choice = core_choice.choose(core_choice.read(map(int, ALL_CORES.split())), cores)
            several = {"processes": PROCESSES + cores, "cpu_s": int(_LIMIT_S * cores)}
            several |= {"cores": [*choice.box]} if choice else {}
        request = box_request(command, files, result, _LIMIT_S, _MEMORY_MB, copies=libraries, kind="json", **several)
        answer = SHARED_SERVER.ask(request, _LIMIT_S)
        times = json.loads(result.read_text(encoding="utf-8")) if answer["words"].get("exit") == "0" else {}
    return {key: us for key, us in times.items() if key in shots and isinstance(us, int | float) and us > 0}


def _complete(rates: dict[str, float], target: Target) -> dict[str, float]:
    """Add rates of types that no probe measures: peak operations per cycle at the measured clock."""
    matrix, clock = rates.pop("flops.bf16.matrix", 0.0), rates.pop("hz", 0.0)
    if matrix:
        rates["flops.bf16"] = max(matrix, rates.get("flops.bf16", 0.0))
    if _FLOAT in rates:
        rates["flops.fp64"] = rates[_FLOAT] / 2
    share = clock / cpu.clock_hz()
    others = {key: peak * share for key, peak in target.peaks.items() if key.startswith("flops.") and share}
    return {**others, **rates}
