"""Nsight Compute: its command line, its CSV, and a page of the results. Clocks are not changed."""

import csv
import io
import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from ksflow.evaluation.profiling.summary import KernelSummary, describe_utilization, limit, page, size
from ksflow.evaluation.profiling.tool_sandbox import ToolResult, program, refusal, run
from ksflow.evaluation.profiling.workload import Workload
from ksflow.kernels.hardware import executables
from ksflow.records import Json, ProfilePage

_DURATION = "gpu__time_duration.sum"
_OCCUPANCY, _ALLOWED = "sm__warps_active.avg.pct_of_peak_sustained_active", "sm__maximum_warps_per_active_cycle_pct"
_REGISTERS, _SHARED = "launch__registers_per_thread", "launch__shared_mem_per_block_allocated"
_WAVES = "launch__waves_per_multiprocessor"
_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"
_WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"
_USED = {
    "loads": "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct",
    "stores": "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.pct",
}
_UNITS = {
    "compute (SM)": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "tensor cores": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "L1 and shared memory": "l1tex__throughput.avg.pct_of_peak_sustained_active",
    "L2": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "DRAM": "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
}
METRICS = (
    *(_DURATION, _OCCUPANCY, _ALLOWED, _REGISTERS, _SHARED, _WAVES, _CONFLICTS, _WAVEFRONTS),
    *_USED.values(),
    *_UNITS.values(),
)
"""Metrics asked for; stall reasons come from the section WarpStateStats, which knows each chip's."""
_STALL = re.compile(r"smsp__average_warps_issue_stalled_(\w+)_per_issue_active\.ratio")
_MEANINGS = {
    "long_scoreboard": "waits for global or local memory: more loads in flight, better reuse",
    "short_scoreboard": "waits for shared memory or special functions: fewer or wider accesses, no bank conflicts",
    "barrier": "waits at __syncthreads: balance the warps, smaller blocks, finer barriers",
    "gmma": "waits for the warp group's matrix operations: more of them in flight",
    "math_pipe_throttle": "the arithmetic unit is full: near its limit, or a bad mix of instructions",
    "mio_throttle": "too many shared-memory or special instructions queued: wider accesses",
    "lg_throttle": "too many global accesses queued: wider, fewer",
    "tex_throttle": "the L1 queue is full: fewer, wider accesses",
    "wait": "fixed latency of dependent instructions: more independent work in a warp",
    "not_selected": "ready, but another warp was taken: no harm, there are warps enough",
    "membar": "waits at a memory fence",
    "branch_resolving": "waits for a branch: fewer branches, unroll",
    "no_instruction": "waits for code: large or jumping code",
    "imc_miss": "waits for a constant",
    "drain": "waits for its last stores",
    "dispatch_stall": "the dispatcher held it back",
    "sleeping": "sleeps by its own wish",
    "misc": "other hardware reasons",
}
_US = {"ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "usecond": 1.0, "ms": 1e3, "msecond": 1e3}
_TOP = 3
_REPORT = "report"
_REFUSALS = {
    "ERR_NVGPUCTRPERM": "counters are for administrators only here, and kernels never run as one: load the driver with "
    "NVreg_RestrictProfilingToAdminUsers=0",
    "LibraryNotLoaded": "ncu cannot load its library into the driver, as in many containers and virtual machines: "
    "start the container with NVIDIA_DRIVER_CAPABILITIES=all, or profile on the host",
    "driver is not compatible": "this ncu does not fit the driver: install the Nsight Compute of the driver's CUDA "
    "version",
    "Failed to load Nsight Compute CUDA modules": "ncu does not know this chip or driver: install a newer "
    "Nsight Compute",
    "Profiling is not supported on": "counters of this device cannot be read, as in most virtual machines: profile on "
    "bare metal",
    "driver resource was unavailable": "another profiler holds the counters (such as DCGM: `dcgmi profile --pause`): "
    "stop it",
    "Failed to find metric": "this ncu lacks a metric that is asked for: install a newer Nsight Compute",
    "No kernels were profiled": "no kernel was launched while ncu watched",
}  # text in ncu's output -> the cause, and the remedy


class ProfiledLaunch(NamedTuple):
    """One launch as reported by ncu; metrics in base units, durations in µs."""

    kernel: str
    grid: str
    block: str
    metrics: Mapping[str, float]


def command(watched: Sequence[str], report: str, ncu: str) -> list[str]:
    """Return ncu's command line: from the watched program's mark on, with a report file apart from the program's
    output."""
    return [
        *(ncu, "--clock-control", "none", "--profile-from-start", "off", "--target-processes", "all"),
        *("--csv", "--page", "raw", "--print-units", "base", "--print-kernel-base", "function"),
        *("--section", "WarpStateStats", "--metrics", ",".join(METRICS), "--log-file", report),
        *watched,
    ]


def profile(workload: Workload, timeout_s: float, environment: Mapping[str, str] | None = None) -> ProfilePage:
    """Return the page of one shape, or why there is none. environment: what the kernel needs."""
    path = executables.find("ncu")
    if not path:
        return ProfilePage(tool="ncu", refused="ncu is not installed: install Nsight Compute, of the CUDA toolkit")
    ran = run(command(program(), _REPORT, path), workload, timeout_s, environment, [_REPORT])
    text = ran.files.get(_REPORT, "")
    return ProfilePage(tool=executables.version("ncu") or "ncu", case=workload.case, **outcome(text, ran, timeout_s))


def outcome(report: str, ran: ToolResult, timeout_s: float) -> Json:
    """Return the fields of a page, or the reason in one sentence why there is none."""
    if ran.timed_out:
        return {"refused": f"ncu took longer than {timeout_s:g} s"}
    if launched := launches(report):
        kernels: dict[str, list[ProfiledLaunch]] = defaultdict(list)
        for launch in launched:
            kernels[launch.kernel].append(launch)
        return {"page": page([_summary(name, same) for name, same in kernels.items()])}
    why = refusal(f"{ran.output}\n{report}", _REFUSALS)
    return {"refused": why or f"ncu returned no counters: {ran.last_words}"}


def launches(report: str) -> list[ProfiledLaunch]:
    """Parse the launches of a report: lines of the tool, column names, units, a row for each launch."""
    start = report.find('"ID"')
    if start < 0:
        return []
    lines = [line for line in report[start:].splitlines() if line.startswith('"')]
    try:
        table: list[list[str]] = [*csv.reader(io.StringIO("\n".join(lines))), [], []]
    except csv.Error:
        return []
    names, units, *rows = table
    unit = dict(zip(names, units, strict=False))
    records = (dict(zip(names, row, strict=False)) for row in rows if row)
    return [
        ProfiledLaunch(
            kernel=row.get("Kernel Name", "?"),
            grid=size(re.findall(r"\d+", row.get("Grid Size", ""))),
            block=size(re.findall(r"\d+", row.get("Block Size", ""))),
            metrics=_metrics(row, unit),
        )
        for row in records
    ]


def _metrics(row: Mapping[str, str], unit: Mapping[str, str]) -> dict[str, float]:
    metrics = {}
    for name, text in row.items():
        try:
            value = float(text.replace(",", ""))
        except ValueError:
            continue
        if math.isfinite(value):
            metrics[name] = value * _US.get(unit.get(name, ""), 1.0) if name == _DURATION else value
    return metrics


def _summary(name: str, same: Sequence[ProfiledLaunch]) -> KernelSummary:
    means = _means(same)
    us = sum(launch.metrics.get(_DURATION, 0.0) for launch in same)
    shares = {unit: means[metric] for unit, metric in _UNITS.items() if metric in means}
    busy_line = describe_utilization(shares, means.get(_OCCUPANCY), means.get(_ALLOWED))
    lines = (limit(shares), busy_line, _stalls(means), _memory(means))
    sizes = list(dict.fromkeys(f"grid {launch.grid}, block {launch.block}" for launch in same))
    parts = [sizes[0] + (f" (and {len(sizes) - 1} other sizes)" if sizes[1:] else "")]
    figures = ((_REGISTERS, 1, ".0f", "registers"), (_SHARED, 1024, ".3g", "KiB shared"), (_WAVES, 1, ".3g", "waves"))
    parts += [f"{means[name] / unit:{form}} {word}" for name, unit, form, word in figures if name in means]
    return KernelSummary(name, len(same), us, ", ".join(parts), lines)


def _means(same: Sequence[ProfiledLaunch]) -> dict[str, float]:
    seen: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for launch in same:
        for name, value in launch.metrics.items():
            seen[name].append((value, launch.metrics.get(_DURATION, 1.0)))
    return {name: fmean(*zip(*pairs, strict=True)) for name, pairs in seen.items() if any(pair[1] for pair in pairs)}


def _stalls(means: Mapping[str, float]) -> str:
    """Describe the longest stalls of warps, as shares of their resident time; cycles in which they issue are left
    out."""
    stalls = {match[1]: value for name, value in means.items() if (match := _STALL.fullmatch(name))}
    whole = sum(stalls.values())
    reasons = sorted((name for name in stalls if name != "selected"), key=lambda name: -stalls[name])[:_TOP]
    parts = [f"{name} {stalls[name] / whole:.0%} ({_MEANINGS.get(name, 'see the guide')})" for name in reasons if whole]
    return f"stalls: {'; '.join(parts)}" if parts else ""


def _memory(means: Mapping[str, float]) -> str:
    used = {what: means[metric] for what, metric in _USED.items() if metric in means}
    parts = [f"global {what} use {share:.0f} % of the bytes they move" for what, share in used.items()]
    if means.get(_WAVEFRONTS):
        conflicts = means.get(_CONFLICTS, 0.0) / means[_WAVEFRONTS]
        parts.append(f"bank conflicts are {conflicts:.0%} of shared-memory cycles")
    return "; ".join(parts)
