"""What a run on one problem comes to, and what many come to together: right, fast_p, speed-ups, cost.

fast_p is the share of all problems whose best new kernel is right and more than p times as fast as the first
baseline; fast_0 is the share that is right. It is given both ways (`fast_p`): for sure, by the lower end of the
interval where the two were timed side by side; and by the mean speed-up alone, as KernelBench's own tool counts.
"""

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ksflow import home
from ksflow.records import Json, Origin, Population, Problem, Speedup, Timing, Trial, Verdict, geomean, speedup
from ksflow.report import results
from ksflow.report.words import us

FAST = (0.0, 1.0, 1.5, 2.0)
_UNBUILT = (Verdict.COMPILE, Verdict.MALFORMED)
_CAPTION = (
    "fast_p: more than p times as fast as the first baseline for sure, by the lower end of the 95 % interval; in "
    "brackets, where it is another share, by the mean speed-up alone, as KernelBench counts."
)
_NAMES = ("compiled", "right", *(f"fast_{p:g}" for p in FAST), "geomean", "tokens", "cost", "wall")


def figures(population: Population, problem: Problem) -> Json:
    """The best kernel that was not there before, beside the problem's baselines.

    `us` and `cases` (per benchmark, µs) are None and empty where no new kernel was accepted. `speedups`: baseline ->
    how many times as fast, the first baseline first, None where it was not accepted; `sure`: the same, at least.
    """
    digests = {seed.kernel.digest: seed.name for seed in problem.seeds if seed.baseline}
    known = {digests[t.kernel.digest]: t for t in population.ranked if t.kernel and t.kernel.digest in digests}
    baselines = {name: known.get(name) for name in digests.values()}
    new = [trial for trial in population.trials if trial.origin is not Origin.SEED]
    best = next((t for t in (population.best, *population.ranked) if t and t.origin is not Origin.SEED), None)
    built = [t for t in new if t.kernel and t.evaluation and t.evaluation.verdict not in _UNBUILT]
    ratios = {name: speedup(best, one) if one else None for name, one in baselines.items()} if best else {}
    return {
        "origin": {key: problem.origin[key] for key in ("format", "path", "level", "number") if key in problem.origin},
        "compiled": bool(built),
        "right": best is not None,
        "us": best.score_us if best else None,
        "target": best.evaluation.target if best and best.evaluation else "",
        "cases": _cases(best),
        "baselines": {
            name: {"us": trial and trial.score_us, "cases": _cases(trial)} for name, trial in baselines.items()
        },
        "speedups": {name: over and over.ratio for name, over in ratios.items()},
        "sure": {name: over and _sure(best, over) for name, over in ratios.items() if best},
    }


def totals(rows: Sequence[Mapping[str, Any]]) -> Json:
    """Of rows that are summaries with `figures`, or what became of a problem in place of them: over all of them."""
    found = [row["figures"] for row in rows if row.get("figures")]
    names = dict.fromkeys(name for one in found for name in one["speedups"])
    count = len(rows)
    return {
        "problems": count,
        "compiled": sum(one["compiled"] for one in found) / count,
        "right": sum(one["right"] for one in found) / count,
        "fast": {f"{p:g}": fast_p(rows, p) for p in FAST},
        "fast_mean": {f"{p:g}": fast_p(rows, p, sure=False) for p in FAST},
        "geomean": {name: _geomean(one["speedups"].get(name) for one in found) for name in names},
        "tokens": sum(row.get("tokens", 0) for row in rows),
        "usd": sum(row.get("usd", 0.0) for row in rows),
        "wall_s": round(sum(row.get("wall_s", 0.0) for row in rows), 1),
    }


def fast_p(rows: Sequence[Mapping[str, Any]], p: float, sure: bool = True) -> float:
    """The share of all rows, failed ones included, whose best new kernel is right and more than `p` times as fast as
    the first baseline. With p = 0 it is the share that is right, whether or not a baseline was accepted.

    sure: by the lower end of the interval, so that noise never counts as speed. Otherwise by the mean speed-up, which
    is what KernelBench's `fastp` makes of the exported files: at least as high, and higher where a mean above p is
    within noise of p.
    """
    found = [row["figures"] for row in rows if row.get("figures")]
    kind = "sure" if sure else "speedups"
    fast = (one["right"] and (p == 0 or _first(one[kind]) > p) for one in found)
    return float(sum(fast) / len(rows))


def show(console: Console, rows: Sequence[Mapping[str, Any]]) -> None:
    """A line for each problem, and one for all of each variant."""
    table = Table(title="suite", title_justify="left", box=SIMPLE_HEAD)
    for name in ("problem", "best µs", "x baseline", "trials", "tokens", "cost", "wall"):
        table.add_column(name, justify="left" if name == "problem" else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, _line(row)))
    console.print(table)
    whole = Table(title="all problems", caption=_CAPTION, box=SIMPLE_HEAD, title_justify="left", caption_justify="left")
    for name in ("variant", "problems", *_NAMES):
        whole.add_column(name, justify="left" if name == "variant" else "right", overflow="fold")
    for variant, found in by_variant(rows).items():
        whole.add_row(*map(Text, (variant or "all", *_whole(found))))
    console.print(whole)


def keep(folder: Path, name: str, rows: Sequence[Mapping[str, Any]]) -> Path:
    """The totals and the rows as `report.json`, and what the formats' own tools read; the former's path."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "report.json"
    whole = {"name": name, "totals": by_variant(rows), "rows": rows}
    home.write(file, json.dumps(whole, indent=1) + "\n")
    results.write(folder, rows)
    return file


def said(row: Mapping[str, Any]) -> str:
    """What became of a problem, in one line."""
    name = row["member"] or row.get("problem") or "the one problem"
    if row["state"] != "finished":
        return f"{name}: {_unfinished(row)}"
    return "; ".join(filter(None, (f"{name}: {_outcome(row)} in {row['wall_s']:.0f} s", row.get("why"))))


def _unfinished(row: Mapping[str, Any]) -> str:
    return ": ".join(filter(None, (row["state"], row.get("why"))))


def _outcome(row: Mapping[str, Any]) -> str:
    """A finished problem in a few words: the best new kernel, or what there is in place of one."""
    found = row["figures"]
    if not found["right"]:
        return ": ".join(filter(None, (_lack(row), row.get("reason"))))
    over = ", ".join(f"x{value:.2f} {name}" for name, value in found["speedups"].items() if value)
    return f"{us(found['us'])} µs{f' ({over})' if over else ''}"


def by_variant(rows: Iterable[Mapping[str, Any]]) -> dict[str, Json]:
    """Variant -> its totals."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(str(row.get("variant", "")), []).append(row)
    return {variant: totals(group) for variant, group in groups.items()}


def _line(row: Mapping[str, Any]) -> tuple[str, ...]:
    name = " ".join(filter(None, (str(row.get("problem") or row["member"]), str(row.get("variant", "")))))
    found = row.get("figures")
    if not found:
        return f"{name}\n{_unfinished(row)}", "", "", "", "", "", ""
    return (
        name,
        us(found["us"]) if found["right"] else _lack(row),
        f"{_first(found['speedups']):.2f}" if _first(found["speedups"]) else "",
        str(row["trials"]),
        str(row["tokens"]),
        f"${row['usd']:.2f}",
        f"{row['wall_s']:.0f} s",
    )


def _lack(row: Mapping[str, Any]) -> str:
    """Why there is no new kernel that is right."""
    if not row["trials"]:
        return "none written"
    return "none right" if row["figures"]["compiled"] else "none compiled"


def _whole(found: Json) -> tuple[str, ...]:
    geomeans = "\n".join(f"{name} {value:.2f}" if value else f"{name} -" for name, value in found["geomean"].items())
    fast = [_both(share, found["fast_mean"][p]) for p, share in found["fast"].items()]
    return (
        str(found["problems"]),
        f"{found['compiled']:.0%}",
        f"{found['right']:.0%}",
        *fast,
        geomeans,
        str(found["tokens"]),
        f"${found['usd']:.2f}",
        f"{found['wall_s']:.0f} s",
    )


def _both(sure: float, mean: float) -> str:
    """A share for sure, with that by the means in brackets where it is another one."""
    return f"{sure:.0%}" if f"{sure:.0%}" == f"{mean:.0%}" else f"{sure:.0%} ({mean:.0%})"


def _first(speedups: Mapping[str, float | None]) -> float:
    """Over the first baseline; 0 where nothing was right."""
    return next(iter(speedups.values()), None) or 0.0


def _sure(best: Trial, over: Speedup) -> float:
    """The least speed-up that was shown; no more than 1 where the judge could not rank the kernel."""
    return min(over.low, 1.0) if best.evaluation and best.evaluation.unranked else over.low


def _geomean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value]
    return geomean(known) if known else None


def _cases(trial: Trial | None) -> list[Json]:
    return [_case(timing) for timing in trial.evaluation.timings] if trial and trial.evaluation else []


def _case(timing: Timing) -> Json:
    samples = timing.samples_us or (timing.us,)
    return {
        "case": timing.case,
        "us": timing.us,
        "mean": statistics.fmean(samples),
        "std": statistics.stdev(samples) if len(samples) > 1 else 0.0,
        "min": min(samples),
        "max": max(samples),
        "runs": len(samples),
    }
