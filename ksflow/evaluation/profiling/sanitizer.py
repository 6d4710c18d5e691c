"""compute-sanitizer: faults that a kernel's results do not show. Its command lines, findings and refusals."""

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from ksflow.evaluation.profiling.tool_sandbox import TEXTS, ToolResult, Workload, program, refusal, run
from ksflow.kernels.hardware import executables
from ksflow.records import Kernel, SanitizerFinding

TOOLS = ("memcheck", "racecheck", "initcheck")
"""Accesses out of bounds; races in shared memory; uninitialised reads."""
_ENVIRONMENT = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
"""One allocation per tensor, else an access out of bounds hits the next tensor."""
_SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d{1,9})\b")
_ACCESS = re.compile(r"Invalid __(\w{1,20})__ (\w{1,20}) of size (\d{1,9})")
_LINE = re.compile(r" in (?:\S*/)?([\w.+-]+):(\d{1,9})\b")
_NEAR = re.compile(r"is (\d{1,20}) bytes (before|after) the nearest allocation")
_RACE = "Error: Race reported"
"""Begins the finding of a race that is an error; if an order may be intended, it is a warning."""
_MARK = "========="
_HEAD = ("COMPUTE-SANITIZER", "ERROR SUMMARY", "RACECHECK SUMMARY", "LEAK SUMMARY", "Program hit")
_FRAMES = ("Saved host backtrace", "Host Frame", "Device Frame")
_LONG = 500


def command(tool: str, watched: Sequence[str], sanitizer: str = "compute-sanitizer") -> list[str]:
    """Return the command line of a tool."""
    options = ("--report-api-errors", "no", "--show-backtrace", "no", "--print-limit", "20")
    return [sanitizer, "--tool", tool, *options, *watched]


def sanitize(
    workloads: Sequence[Workload],
    timeout_s: float,
    chosen: Sequence[str] = TOOLS,
    environment: Mapping[str, str] | None = None,
) -> tuple[SanitizerFinding, ...]:
    """Return the findings of each tool.

    The tools run at the same time, each on the first workload, and after a time-out on the next one. environment: what
    the kernel needs. If the first tool is refused, only its row is returned.
    """
    path = executables.find("compute-sanitizer")
    if not path:
        missing = "compute-sanitizer is not installed: install the CUDA toolkit"
        return (SanitizerFinding(tool="compute-sanitizer", refused=missing),)

    def look(tool: str) -> SanitizerFinding:
        for workload in workloads:
            ran = run(command(tool, program(), path), workload, timeout_s, {**(environment or {}), **_ENVIRONMENT})
            row = replace(outcome(tool, ran, timeout_s), case=workload.case)
            if not ran.timed_out:
                break
        return row

    with ThreadPoolExecutor(len(chosen)) as pool:
        rows = tuple(pool.map(look, chosen))
    return rows[:1] if rows[0].refused in TEXTS["refusals"]["compute-sanitizer"].values() else rows


def outcome(tool: str, ran: ToolResult, timeout_s: float) -> SanitizerFinding:
    """Return the finding of one tool."""
    summary = _SUMMARY.search(ran.output)
    if ran.timed_out:
        why = f"it took longer than {timeout_s:g} s"
    else:
        why = refusal("compute-sanitizer", ran.output) or ("" if summary else f"it gave no summary: {ran.last_words}")
    if why or not summary:
        return SanitizerFinding(tool=tool, refused=why)
    lines: list[str] = []
    for line in ran.output.splitlines():
        text = line.removeprefix(_MARK).strip() if line.startswith(_MARK) else ""
        if lines and not text:
            break
        if text and not text.startswith(_HEAD) and not text.startswith(_FRAMES):
            lines.append(text)
    return SanitizerFinding(tool=tool, errors=int(summary[1]), finding=" ".join(lines)[:_LONG])


def race(row: SanitizerFinding, kernel: Kernel, alone: bool) -> str:
    """Return why racecheck leaves a kernel unranked (its outputs may be right in most calls); "" without a race in the
    kernel's own code. alone: there is no other device code."""
    line = _LINE.search(row.finding)
    own = f" at {line[1]}, line {line[2]}" if line and line[1] in kernel.files else ""
    if row.tool != "racecheck" or not row.finding.startswith(_RACE) or not (own or alone):
        return ""
    return f"racecheck: a race in shared memory{own}"


def locate_access(finding: str, kernel: Kernel) -> str:
    """Describe kind and line of an invalid access. A kernel may influence a finding, so nothing else of it is quoted.
    Returns "" if it names no line of the kernel."""
    access, line, near = _ACCESS.search(finding), _LINE.search(finding), _NEAR.search(finding)
    lines = kernel.files.get(line[1], "").splitlines() if access and line else []
    if not (access and line and 0 < (number := int(line[2])) <= len(lines)):
        return ""
    what = f"invalid {access[1]} {access[2]} of {access[3]} bytes"
    beyond = f", {near[1]} bytes {near[2]} the nearest allocation" if near else ""
    return f"{line[1]}, line {number}: {what}{beyond}: {lines[number - 1].strip()[:120]}"
