"""A verdict as a person reads it: what was found, how fast against whom, how wrong against what bound, the rest."""

import json
import statistics
from collections.abc import Mapping
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from ksflow.records import Evaluation, Json, Timing

_SHOWN = ("against", "claim", "checked", "timed", "cached", "renewed", "unconfirmed", "log", "error")
"""Parts of the evidence that have a place of their own."""
_LONG = 2000


def show(console: Console, evaluation: Evaluation, names: Mapping[str, str] | None = None) -> None:
    """Print all of it. `names`: what to call the trials it was timed beside."""
    console.print("\n".join(_head(evaluation)), markup=False, soft_wrap=True)
    if evaluation.timings:
        console.print(_table(evaluation))
    rows = [*_ratios(evaluation, names or {}), *_checks(evaluation), *_circumstances(evaluation)]
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
    """A row per timed case; columns that nothing is known of are left out."""
    timed = {row["case"]: row for row in evaluation.evidence.get("timed", ())}
    rows = [_row(timing, timed.get(timing.case, {})) for timing in evaluation.timings]
    table = Table(box=SIMPLE_HEAD)
    for name in rows[0]:
        if any(row[name] for row in rows):
            table.add_column(name, justify="left" if name == "case" else "right", no_wrap=name != "case")
    for row in rows:
        table.add_row(*(row[name] for name in rows[0] if any(other[name] for other in rows)))
    return table


def _row(timing: Timing, found: Json) -> dict[str, str]:
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
        "error of bound": f"{found['worst']:.1%}" if isinstance(found.get("worst"), int | float) else "",
    }


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
