"""What compilers, data sheets and tools say of a kernel on a device, as prompt text of bounded length."""

from ksflow.hardware import compiler_report, roofline
from ksflow.records import Evaluation, Json

TOLD = frozenset({"compiler", "roofline", "profile", "sanitizer", "emulated"})
"""The evidence that has its place here."""
_KERNELS = 6
_LINE = 240
_PAGE = 4_000  # characters of a profiler's page


def hardware(evaluation: Evaluation | None) -> list[str]:
    """Lines: resources of each kernel, the share of the roofline, faults that tools found, a profiler's page.

    Empty where nothing is known, and never more than about 7,500 characters.
    """
    if evaluation is None:
        return []
    found = [_cut(compiler_report.line(row)) for row in compiler_report.rows(evaluation, "compiler")]
    lines = [f"Compiled: {line}" for line in found[:_KERNELS]]
    if found[_KERNELS:]:
        lines.append(f"({len(found) - _KERNELS} more compiled kernels)")
    bounds = compiler_report.rows(evaluation, "roofline")
    lines += [text for text in (_roofline(bounds), _emulated(evaluation.evidence.get("emulated"))) if text]
    lines += [
        _cut(f"{row.get('tool')} found {row.get('errors')} faults, the first: {row['finding']}")
        for row in compiler_report.rows(evaluation, "sanitizer")[:_KERNELS]
        if row.get("finding")
    ]
    return [*lines, *_profile(evaluation.evidence.get("profile"))]


def near(evaluation: Evaluation | None) -> str:
    """The share of the roofline in a cell: `32 %`; empty where it is not known."""
    return compiler_report.percent(roofline.share(compiler_report.rows(evaluation, "roofline")))


def _roofline(rows: list[Json]) -> str:
    """The whole, and the shapes that are nearest to it and farthest from it."""
    whole = roofline.share(rows)
    if whole is None:
        return ""
    known = sorted((row for row in rows if isinstance(row.get("share"), int | float)), key=lambda row: row["share"])
    ends = {"farthest": known[0], "nearest": known[-1]} if known[1:] else {}
    parts = [
        f"{word} {row.get('case')}: {compiler_report.percent(row['share'])} of {row.get('bound')}"
        for word, row in ends.items()
    ]
    said = f"Roofline: {compiler_report.percent(whole)} of what the data sheet allows (geometric mean)"
    return _cut("; ".join([said, *parts]))


def _emulated(found: object) -> str:
    if isinstance(found, dict):
        found = ", ".join(f"{key} {value}" for key, value in found.items())
    return _cut(f"Emulated on a CPU: {found}") if found else ""


def _profile(found: object) -> list[str]:
    page = str(found.get("page", "")) if isinstance(found, dict) else ""
    if not page:
        return []
    return ["Counters, of one shape:", page if len(page) <= _PAGE else f"{page[:_PAGE].rpartition(chr(10))[0]}\n..."]


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LINE else f"{line[: _LINE - 3]}..."
