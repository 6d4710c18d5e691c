"""Reports of compilers, data sheets and tools as prompt text of bounded length."""

from ksflow.errors import one_line
from ksflow.kernels.hardware import compiler_report, roofline
from ksflow.records import Evaluation, Evidence, Kernel, Problem

_KERNELS = 6
_LINE = 240
_PAGE = 4_000  # characters of a profiler's page


def hardware(evaluation: Evaluation | None, kernel: Kernel | None = None, problem: Problem | None = None) -> list[str]:
    """Return lines: resources of each kernel, the share of the roofline, faults found by tools, a profiler's page.

    Of many compiled kernels and variants those that take most of the time, if kernel and problem tell which. Empty if
    nothing is known, and never more than about 7,500 characters.
    """
    if evaluation is None:
        return []
    evidence = evaluation.evidence
    ranked = compiler_report.by_time(evaluation, kernel, problem)
    lines = list[str]()
    for row, share in ranked[:_KERNELS]:
        when = f" (runs in {100 * share:.0f} % of the time)" if share else ""
        lines.append(one_line(f"Compiled{when}: {compiler_report.line(row)}", _LINE))
    if ranked[_KERNELS:]:
        lines.append(f"({len(ranked) - _KERNELS} more compiled kernels)")
    if near := _roofline(evidence):
        lines.append(near)
    if evidence.emulated:
        lines.append(one_line(f"Emulated on a CPU: {evidence.emulated}", _LINE))
    lines += [
        one_line(f"{row.tool} found {row.errors} faults, the first: {row.finding}", _LINE)
        for row in evidence.sanitizer[:_KERNELS]
        if row.finding
    ]
    if evidence.profile and (page := evidence.profile.page):
        lines += ["Counters, of one shape:", whole_lines(page, _PAGE)]
    return lines


def whole_lines(text: str, room: int) -> str:
    """Return the first whole lines that fit in so many characters."""
    return text if len(text) <= room else f"{text[:room].rpartition(chr(10))[0] or text[:room]}\n..."


def roofline_share(evaluation: Evaluation) -> str:
    """Return the share of the roofline for a table: `32 %`, or ""."""
    return compiler_report.percent(roofline.share(evaluation.evidence.roofline, evaluation.evidence.weights))


def _roofline(evidence: Evidence) -> str:
    whole = roofline.share(evidence.roofline, evidence.weights)
    if whole is None:
        return ""
    known = sorted((row for row in evidence.roofline if row.share is not None), key=lambda row: row.share or 0.0)
    ends = {"farthest": known[0], "nearest": known[-1]} if known[1:] else {}
    parts = [f"{word} {row.case}: {compiler_report.percent(row.share)} of {row.bound}" for word, row in ends.items()]
    words = f"Roofline: {compiler_report.percent(whole)} of what the hardware's rates allow (geometric mean)"
    return one_line("; ".join([words, *parts]), _LINE)
