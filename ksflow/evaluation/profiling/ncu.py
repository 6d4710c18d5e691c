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
from ksflow.evaluation.profiling.tool_sandbox import TEXTS, ToolResult, Workload, program, refusal, run
from ksflow.kernels.hardware import executables
from ksflow.records import Json, ProfilePage

_TABLES = TEXTS["ncu"]
_NAMED, _USED, _UNITS = _TABLES["metrics"], _TABLES["used"], _TABLES["units"]
METRICS = (*_NAMED.values(), *_USED.values(), *_UNITS.values())
_STALL = re.compile(r"smsp__average_warps_issue_stalled_(\w+)_per_issue_active\.ratio")
_US = {"ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "usecond": 1.0, "ms": 1e3, "msecond": 1e3}
_TOP = 3
_REPORT = "report"


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
    why = refusal("ncu", f"{ran.output}\n{report}")
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
            metrics[name] = value * _US.get(unit.get(name, ""), 1.0) if name == _NAMED["duration"] else value
    return metrics


def _summary(name: str, same: Sequence[ProfiledLaunch]) -> KernelSummary:
    means = _means(same)
    us = sum(launch.metrics.get(_NAMED["duration"], 0.0) for launch in same)
    shares = {unit: means[metric] for unit, metric in _UNITS.items() if metric in means}
    busy_line = describe_utilization(shares, means.get(_NAMED["occupancy"]), means.get(_NAMED["allowed"]))
    lines = (limit(shares), busy_line, _stalls(means), _memory(means))
    sizes = list(dict.fromkeys(f"grid {launch.grid}, block {launch.block}" for launch in same))
    parts = [sizes[0] + (f" (and {len(sizes) - 1} other sizes)" if sizes[1:] else "")]
    figures = (
        (_NAMED["registers"], 1, ".0f", "registers"),
        (_NAMED["shared"], 1024, ".3g", "KiB shared"),
        (_NAMED["waves"], 1, ".3g", "waves"),
    )
    parts += [f"{means[name] / unit:{form}} {word}" for name, unit, form, word in figures if name in means]
    return KernelSummary(name, len(same), us, ", ".join(parts), lines)


def _means(same: Sequence[ProfiledLaunch]) -> dict[str, float]:
    seen: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for launch in same:
        for name, value in launch.metrics.items():
            seen[name].append((value, launch.metrics.get(_NAMED["duration"], 1.0)))
    return {name: fmean(*zip(*pairs, strict=True)) for name, pairs in seen.items() if any(pair[1] for pair in pairs)}


def _stalls(means: Mapping[str, float]) -> str:
    """Describe the longest stalls of warps, as shares of their resident time."""
    stalls = {match[1]: value for name, value in means.items() if (match := _STALL.fullmatch(name))}
    whole = sum(stalls.values())
    reasons = sorted((name for name in stalls if name != "selected"), key=lambda name: -stalls[name])[:_TOP]
    meanings = _TABLES["stalls"]
    parts = [f"{name} {stalls[name] / whole:.0%} ({meanings.get(name, 'see the guide')})" for name in reasons if whole]
    return f"stalls: {'; '.join(parts)}" if parts else ""


def _memory(means: Mapping[str, float]) -> str:
    used = {what: means[metric] for what, metric in _USED.items() if metric in means}
    parts = [f"global {what} use {share:.0f} % of the bytes they move" for what, share in used.items()]
    if means.get(_NAMED["wavefronts"]):
        conflicts = means.get(_NAMED["conflicts"], 0.0) / means[_NAMED["wavefronts"]]
        parts.append(f"bank conflicts are {conflicts:.0%} of shared-memory cycles")
    return "; ".join(parts)
