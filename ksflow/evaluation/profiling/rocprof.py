"""rocprofv3: its command lines, its CSV files, and a page of the results. Written from AMD's documentation.

The program is run once for each few counters: a request for more than the hardware has at once brings nothing, and so
does a counter that a chip lacks. Missing counters are left out of the page, and named below it.
"""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from ksflow.evaluation.profiling.summary import LINES, KernelSummary, describe_utilization, limit, page, size
from ksflow.evaluation.profiling.tool_sandbox import TEXTS, Workload, program, refusal, run
from ksflow.kernels.hardware import executables
from ksflow.records import Json, ProfilePage

_TABLES = TEXTS["rocprofv3"]
PASSES: list[list[str]] = _TABLES["passes"]
_NOT_OURS = ("__amd_rocclr", "at::native", "void at::native", "Cijk_")
"""Kernels of the runtime and of torch, which fill and copy."""
_TRACES, _COUNTS = "kernel_trace.csv", "counter_collection.csv"
_LONGEST = 200


@dataclass
class ProfiledKernel:
    """One kernel over all runs."""

    shape: str
    ns: list[float] = field(default_factory=list)  # of each launch in the first run
    counters: dict[str, list[float]] = field(default_factory=dict)


def command(counters: Sequence[str], folder: str, watched: Sequence[str], rocprofv3: str = "rocprofv3") -> list[str]:
    """Return the command line of one run: within the program's marks, CSV files into a folder."""
    return [
        *(rocprofv3, "--selected-regions", "--marker-trace", "--kernel-trace"),
        *(["--pmc", *counters] if counters else []),
        *("--output-format", "csv", "-d", folder, "-o", "run", "--"),
        *watched,
    ]


def profile(workload: Workload, timeout_s: float, environment: Mapping[str, str] | None = None) -> ProfilePage:
    """Return the page of one shape, or why there is none. timeout_s: of each run. environment: what the kernel
    needs."""
    path = executables.find("rocprofv3")
    if not path:
        return ProfilePage(tool="rocprofv3", refused="rocprofv3 is not installed: install rocprofiler-sdk, of ROCm")
    name: Json = {"tool": executables.version("rocprofv3") or "rocprofv3", "case": workload.case}
    files: dict[str, str] = {}
    for index, counters in enumerate(PASSES):
        ran = run(command(counters, str(index), program(), path), workload, timeout_s, environment, ["**/*.csv"])
        if ran.timed_out:
            return ProfilePage(**name, refused=f"rocprofv3 took longer than {timeout_s:g} s")
        if why := ran.fault or refusal("rocprofv3", ran.output):
            return ProfilePage(**name, refused=why)
        files |= ran.files
    try:
        text = read_profile(files)
    except (ValueError, KeyError, csv.Error) as error:
        return ProfilePage(**name, refused=f"the output of rocprofv3 cannot be read: {error}"[:_LONGEST])
    return ProfilePage(**name, page=text, refused="" if text else f"rocprofv3 returned no kernels: {ran.last_words}")


def read_profile(files: Mapping[str, str]) -> str:
    """Return the page of CSV files, name -> text, in a folder for each run; "" if they contain no kernel.

    Raises ValueError, KeyError or csv.Error for an invalid file.
    """
    kernels: dict[str, ProfiledKernel] = {}
    for row in _rows(text for name, text in files.items() if name.startswith("0/") and name.endswith(_TRACES)):
        parts = []
        for what, word in (("grid", "grid"), ("workgroup", "block")):
            if sizes := size([row.get(f"{what}_size_{axis}", "") for axis in "xyz"]):
                parts.append(f"{word} {sizes}")
        for column, word in _TABLES["taken"].items():
            if row.get(column, "0") != "0":
                parts.append(f"{row[column]} {word}")
        kernel = kernels.setdefault(row["kernel_name"], ProfiledKernel(shape=", ".join(parts)))
        kernel.ns.append(float(row["end_timestamp"]) - float(row["start_timestamp"]))
    for row in _rows(text for name, text in files.items() if name.endswith(_COUNTS)):
        if row["kernel_name"] in kernels:
            values = kernels[row["kernel_name"]].counters.setdefault(row["counter_name"], [])
            values.append(float(row["counter_value"]))
    if not kernels:
        return ""
    counted = {name for kernel in kernels.values() for name in kernel.counters}
    missing = [name for counters in PASSES for name in counters if name not in counted]
    text = page([_summary(name, kernel) for name, kernel in kernels.items()], LINES - bool(missing))
    return f"{text}\n(not counted here: {', '.join(missing)})" if missing else text


def _rows(files: Iterable[str]) -> Iterator[dict[str, str]]:
    for text in files:
        for row in csv.DictReader(io.StringIO(text, newline="")):
            fields = {name.lower(): value for name, value in row.items() if name and isinstance(value, str)}
            if not fields.get("kernel_name", _NOT_OURS[0]).startswith(_NOT_OURS):
                yield fields


def _summary(name: str, kernel: ProfiledKernel) -> KernelSummary:
    means = {counter: fmean(values) for counter, values in kernel.counters.items()}
    shares = {words: means[counter] for counter, words in _TABLES["busy"].items() if counter in means}
    us = sum(kernel.ns) * 1e-3
    lines = (
        limit(shares),
        describe_utilization(shares, means.get("OccupancyPercent")),
        _memory(means, us / len(kernel.ns)),
    )
    return KernelSummary(name, len(kernel.ns), us, kernel.shape, lines)


def _memory(means: Mapping[str, float], us: float) -> str:
    parts = [f"{text} {means[counter]:.1f} %" for counter, text in _TABLES["shares"].items() if counter in means]
    for counter, text in _TABLES["kilobytes"].items():
        if counter in means and us > 0:
            parts.append(f"{means[counter] / 1024:.4g} MiB {text} ({means[counter] * 1.024 / us:.3g} GB/s)")
    return "; ".join(parts)
