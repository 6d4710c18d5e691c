"""A verdict as a person reads it: what was found, how fast against whom, how wrong against what bound, the rest."""

import json
import statistics
from collections.abc import Mapping
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ksflow.hardware import compiler_report, roofline
from ksflow.records import Evaluation, Json, Timing

_SHOWN = (
    *("against", "claim", "checked", "timed", "cached", "renewed", "unconfirmed", "log", "error"),
    *("compiler", "roofline", "transfer", "clocks", "profile", "sanitizer", "emulated"),
)
"""Parts of the evidence that have a place of their own."""
_EVENTS = "device events"
_STATE = (
    ("sm_mhz", "SM", "MHz"),
    ("memory_mhz", "memory", "MHz"),
    ("watts", "", "W"),
    ("celsius", "", "°C"),
)
"""What is read of a device's state: key, name, unit."""
_LONG = 2000
_WORDS = ("case", "kernel", "variant", "matrix instructions")
"""Columns of text, which may be folded."""


def show(console: Console, evaluation: Evaluation, names: Mapping[str, str] | None = None) -> None:
    """Print all of it. `names`: what to call the trials it was timed beside."""
    console.print("\n".join(_head(evaluation)), markup=False, soft_wrap=True)
    if evaluation.timings:
        console.print(_table(evaluation))
    if compiled := compiler_report.rows(evaluation, "compiler"):
        console.print(_grid([compiler_report.cells(row) for row in compiled]))
    rows = [*_ratios(evaluation, names or {}), *_checks(evaluation), *_device(evaluation), *_circumstances(evaluation)]
    console.print("\n".join(rows), markup=False, soft_wrap=True)
    for name in ("error", "log"):
        if text := str(evaluation.evidence.get(name, "")).strip():
            console.print(f"{name}\n{_indented(text[-_LONG:])}", markup=False, soft_wrap=True)
    for name, value in evaluation.evidence.items():
        if name not in _SHOWN:
            console.print(f"{name}: {_plain(value)}", markup=False, soft_wrap=True)


def spread_us(timing: Timing) -> tuple[float, float]:
    """The 10th and 90th percentile of the samples, widened to hold the time itself."""
    samples = timing.samples_us or (timing.us,)
    tenths = statistics.quantiles(samples, n=10, method="inclusive") if len(samples) > 1 else [timing.us]
    return min(tenths[0], timing.us), max(tenths[-1], timing.us)


def ratio(row: Json) -> str:
    """`x1.23 [1.20, 1.25]`."""
    return f"x{row['speedup']:.3g} [{row['low']:.3g}, {row['high']:.3g}]"


def _head(evaluation: Evaluation) -> list[str]:
    score = f"{evaluation.score_us:.5g} µs" if evaluation.score_us else evaluation.reason
    lines = [f"verdict {evaluation.verdict.value}: {score}"]
    if evaluation.unranked:
        lines.append(f"unranked: {evaluation.unranked}")
    if why := evaluation.evidence.get("unconfirmed"):
        lines.append(f"unconfirmed: {why}")
    if was := evaluation.evidence.get("renewed"):
        score = f" {was['score_us']:.5g} µs" if was["score_us"] else ""
        lines.append(f"judged again after a change; was {was['verdict']}{score}, judge {was['judge'] or 'unknown'}")
    if cached := evaluation.evidence.get("cached"):
        lines.append(f"not judged now, known from {cached['from']} on {cached['date']}")
    return lines


def _table(evaluation: Evaluation) -> Table:
    """A row per timed case."""
    timed = {row["case"]: row for row in evaluation.evidence.get("timed", ())}
    near = {row.get("case"): row for row in compiler_report.rows(evaluation, "roofline")}
    return _grid([_row(timing, timed.get(timing.case, {}), near.get(timing.case, {})) for timing in evaluation.timings])


def _grid(rows: list[dict[str, str]]) -> Table:
    """A table; columns that nothing is known of are left out."""
    filled = [name for name in rows[0] if any(row[name] for row in rows)]
    table = Table(box=SIMPLE_HEAD)
    for name in filled:
        words = name in _WORDS
        table.add_column(name, justify="left" if words else "right", no_wrap=not words)
    for row in rows:
        table.add_row(*(Text(row[name]) for name in filled))
    return table


def _row(timing: Timing, found: Json, near: Json) -> dict[str, str]:
    low, high = spread_us(timing)
    interval = found.get("interval_us")
    floor = found.get("floor_us")
    return {
        "case": timing.case,
        "µs": _us(timing.us),
        "95 % interval": f"{_us(interval[0])} to {_us(interval[1])}" if interval else "",
        "p10 to p90": f"{_us(low)} to {_us(high)}" if len(timing.samples_us) > 1 else "",
        "samples": str(found.get("rounds") or len(timing.samples_us) or ""),
        "CPU µs": _us(timing.cpu_us) if timing.cpu_us else "",
        "floor µs": f"{floor:.3g}" if floor else "",
        "TFLOP/s": _figure(near.get("tflops")),
        "GB/s": _figure(near.get("gbs")),
        "of roofline": " ".join([compiler_report.percent(near.get("share")), str(near.get("bound", ""))]).strip(),
        "error of bound": f"{found['worst']:.1%}" if isinstance(found.get("worst"), int | float) else "",
    }


def _figure(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, int | float) else ""


def _us(value: float) -> str:
    return f"{value:.4g}" if value < 10_000 else f"{value:.0f}"


def _ratios(evaluation: Evaluation, names: Mapping[str, str]) -> list[str]:
    claim = evaluation.claim
    rows = [
        f"{ratio(row)} over {names.get(row['id'], row['id'])}{' (a tie)' if row['low'] < 1 < row['high'] else ''}"
        for row in evaluation.evidence.get("against", ())
    ]
    if claim:
        says = "faster than" if claim.get("faster") else "not shown to be faster than"
        control = f"; control, the same kernel twice: {ratio(claim['control'])}" if claim.get("control") else ""
        first = f" (before that {ratio(claim['first'])})" if claim.get("first") else ""
        rows.append(f"claim: {says} {names.get(claim['id'], claim['id'])}, {ratio(claim)}{first}{control}")
    return rows


def _checks(evaluation: Evaluation) -> list[str]:
    return [
        f"checked {row.get('case')}: error {row['worst']:.1%} of the bound"
        if isinstance(row.get("worst"), int | float)
        else f"checked {row.get('case')}: error {row.get('worst')} of the bound"
        for row in evaluation.evidence.get("checked", ())
    ]


def _device(evaluation: Evaluation) -> list[str]:
    """What only a device or its tools tell, each in its own words."""
    evidence = evaluation.evidence
    near = roofline.share(compiler_report.rows(evaluation, "roofline"))
    lines = [f"roofline: {near:.1%} of what the data sheet allows, as a geometric mean"] if near else []
    compilers = dict.fromkeys(str(row.get("compiler", "")) for row in compiler_report.rows(evaluation, "compiler"))
    lines += [f"compiled by: {name}" for name in compilers if name]
    lines += _clock(evaluation)
    if clocks := evidence.get("clocks"):
        lines.append(f"clocks: {_clocks(clocks) if isinstance(clocks, dict) else _plain(clocks)}")
    lines += [f"{name}: {_pairs(evidence[name])}" for name in ("transfer", "emulated") if evidence.get(name)]
    lines += [_sanitized(row) for row in compiler_report.rows(evaluation, "sanitizer")]
    return [*lines, *_profile(evidence.get("profile"))]


def _clocks(found: Json) -> str:
    """One reading, or one from before and one from after."""
    if not {"before", "after"} & found.keys():
        return _reading(found)
    return ", ".join(
        f"{side} {_reading(found[side])}" for side in ("before", "after") if isinstance(found.get(side), dict)
    )


def _reading(found: Json) -> str:
    """`SM 1980 MHz, memory 3201 MHz, 512 W, 61 °C (not throttled)`."""
    known = [f"{name} {found[key]} {unit}".strip() for key, name, unit in _STATE if key in found]
    reasons = ", ".join(map(str, found.get("throttled") or ())) or "not throttled"
    if "throttled" not in found:
        reasons = "whether it was throttled is not told"
    return f"{', '.join(known)} ({reasons})" if known else _pairs(found)


def _clock(evaluation: Evaluation) -> list[str]:
    """Where a kernel's own events were not believed."""
    cases: dict[str, list[str]] = {}
    for row in compiler_report.rows(evaluation, "timed"):
        if row.get("clock", _EVENTS) != _EVENTS:
            cases.setdefault(str(row["clock"]), []).append(str(row.get("case")))
    return [f"clock: {clock} (of {', '.join(names)})" for clock, names in cases.items()]


def _sanitized(row: Json) -> str:
    if row.get("refused"):
        said = f"did not run: {row['refused']}"
    else:
        said = f"{row.get('errors', 0)} errors; first: {row['finding']}" if row.get("finding") else "no errors"
    where = f" on {row['case']}" if row.get("case") else ""
    return f"sanitizer {row.get('tool', '')}{where}: {said}"


def _profile(found: object) -> list[str]:
    """The page of a profiler, or why there is none."""
    if not isinstance(found, dict):
        return []
    head = " ".join(["profile:", *filter(None, [str(found.get("tool", "")), str(found.get("case", ""))])])
    if found.get("refused"):
        return [f"{head}: none: {found['refused']}"]
    return [head, _indented(str(found.get("page", "")))]


def _pairs(found: object) -> str:
    if not isinstance(found, dict):
        return _plain(found)
    return ", ".join(f"{key.replace('_', ' ')} {_plain(value)}" for key, value in found.items())


def _circumstances(evaluation: Evaluation) -> list[str]:
    seeds = {row["case"]: row["seeds"] for row in evaluation.evidence.get("checked", ()) if row.get("seeds")}
    lines = [f"seeds: {_some(seeds)}"] if seeds else []
    return [
        *lines,
        f"isolation {evaluation.isolation}, judge {evaluation.judge or 'unknown'}, "
        f"target {evaluation.target or 'unknown'}, problem {evaluation.problem or 'unknown'}, "
        f"took {evaluation.wall_s:.1f} s",
    ]


def _some(seeds: Mapping[str, list[int]]) -> str:
    parts = (
        f"{case}: {', '.join(map(str, found[:4]))}{f' and {len(found) - 4} more' if len(found) > 4 else ''}"
        for case, found in seeds.items()
    )
    return "; ".join(parts)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())
