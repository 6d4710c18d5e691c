"""Scores of a run on one problem, and of many runs: right, fast_p, speed-ups, cost.

fast_p is the share of all problems whose best new kernel is right and more than p times as fast as the first baseline;
fast_0 is the share that is right. It is given twice (`fast_p`): by the lower end of the interval, if the two were timed
side by side, and by the mean speed-up alone, as KernelBench's own tool counts.
"""

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from ksflow import home
from ksflow.kernels.hardware import roofline
from ksflow.records import Json, Origin, Population, Problem, Trial, Verdict, geomean
from ksflow.report.headline import Headline, headline, known_baselines
from ksflow.report.words import format_us, grid

FAST = (0.0, 1.0, 1.5, 2.0)
_WORDS = ("problem", "verdict", "speed-up")
_UNBUILT = (Verdict.COMPILE, Verdict.MALFORMED)
_CAPTION = (
    "fast_p: more than p times as fast as the first baseline for sure, by the lower end of the 95 % interval; in "
    "brackets, where it is another share, by the mean speed-up alone, as KernelBench counts."
)


def figures(population: Population, problem: Problem) -> Json:
    """Return the best new kernel's figures, beside the problem's baselines.

    `us` and `cases` (per benchmark, µs) are None and empty if no new kernel was accepted. `speedups`: baseline ->
    speed-up, the first baseline first, None if it was not accepted; `sure`: the lower ends. `beside`: the run's
    headline, then the claims over other baselines with which it was timed in turns, in words. `sol`: of a format with
    formulas of work the shares of the speed of light, `theirs` by its formula and `ours` of the roofline. `upstream`:
    what the format's own check says of the kernel.
    """
    digests = {seed.kernel.digest: seed.name for seed in problem.seeds if seed.baseline}
    known = {digests[t.kernel.digest]: t for t in population.ranked if t.kernel and t.kernel.digest in digests}
    baselines = {name: known.get(name) for name in digests.values()}
    new = [trial for trial in population.trials if trial.origin is not Origin.SEED]
    best = next((t for t in (population.best, *population.ranked) if t and t.origin is not Origin.SEED), None)
    evidence = best.evaluation.evidence if best and best.evaluation else None
    near = evidence.roofline if evidence and "regime" in problem.work else ()
    built = [t for t in new if t.kernel and t.evaluation and t.evaluation.verdict not in _UNBUILT]
    ratios = {name: population.speedup(best, base) for name, base in baselines.items()} if best else {}
    claimed = headline(population, known_baselines(population, problem.seeds))
    most = 1.0 if best and best.evaluation and best.evaluation.why_unranked else math.inf  # more cannot be shown
    first = [claimed.over] if claimed and claimed.over else []
    over = [*first, *(trial for trial in known.values() if trial not in first)] if best else []
    claims = [Headline(best, population, trial).claim for trial in over] if best else []
    return {
        "origin": {key: problem.origin[key] for key in ("format", "path", "level", "number") if key in problem.origin},
        "compiled": bool(built),
        "right": best is not None,
        "sol": {name: roofline.share(near, evidence.weights, name == "theirs") for name in ("theirs", "ours")}
        if near and evidence
        else {},
        "upstream": evidence.upstream if evidence else "",
        "us": population.time_us(best) if best else None,
        "target": best.evaluation.target if best and best.evaluation else "",
        "cases": _cases(best),
        "baselines": {
            name: {"us": trial and population.time_us(trial), "cases": _cases(trial)}
            for name, trial in baselines.items()
        },
        "speedups": {name: over and over.ratio for name, over in ratios.items()},
        "sure": {name: over and min(over.low, most) for name, over in ratios.items()},
        "beside": [text for text in claims if text],
    }


def totals(rows: Sequence[Mapping[str, Any]]) -> Json:
    """Return the totals over rows, which are summaries with `figures`, or the states of unfinished problems."""
    results = [row["figures"] for row in rows if row.get("figures")]
    names = dict.fromkeys(name for result in results for name in result["speedups"])
    ratios = {name: [ratio for result in results if (ratio := result["speedups"].get(name))] for name in names}
    count = len(rows)
    return {
        "problems": count,
        "compiled": sum(result["compiled"] for result in results) / count,
        "right": sum(result["right"] for result in results) / count,
        "fast": {f"{p:g}": fast_p(rows, p) for p in FAST},
        "fast_mean": {f"{p:g}": fast_p(rows, p, sure=False) for p in FAST},
        "geomean": {name: geomean(known) if known else None for name, known in ratios.items()},
        "tokens": sum(row.get("tokens", 0) for row in rows),
        "usd": sum(row.get("usd", 0.0) for row in rows),
        "wall_s": round(sum(row.get("wall_s", 0.0) for row in rows), 1),
    }


def fast_p(rows: Sequence[Mapping[str, Any]], p: float, sure: bool = True) -> float:
    """Return the share of all rows, failed ones included, whose best new kernel is right and more than `p` times as
    fast as the first baseline. With p = 0 it is the share that is right, whether or not a baseline was accepted.

    sure: by the lower end of the interval, so that noise never counts as speed; else by the mean speed-up, like
    KernelBench's `fastp`, which is higher if a mean above p is within noise of p.
    """
    results = [row["figures"] for row in rows if row.get("figures")]
    kind = "sure" if sure else "speedups"
    fast = (result["right"] and (p == 0 or _first(result[kind]) > p) for result in results)
    return float(sum(fast) / len(rows))


def show(console: Console, rows: Sequence[Mapping[str, Any]], title: str = "suite") -> None:
    """Print a row for each problem and variant, and one for all problems of each variant."""
    lines, spare = [_line(row) for row in rows], ("wall", "verdicts", "correct", "to best", "trials", "cost", "tokens")
    console.print(grid(console, lines, _WORDS, _WORDS, spare, 16, title=title))
    whole = [{"variant": variant or "all", **_whole(total)} for variant, total in by_variant(rows).items()]
    if len(whole) == 1 or len(whole) < len(rows):
        console.print(grid(console, whole, ("variant",), ("variant",), spare, title="all problems", caption=_CAPTION))


def show_sweep(console: Console, folder: Path) -> None:
    """Print the summaries in the folders of a sweep's jobs, best first; nothing if there are none."""
    rows = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*/summary.json"))]
    rows = [{**row, "variant": row["run"]} for row in rows]
    rows.sort(key=lambda row: (-_first(row["figures"]["speedups"]), row["score_us"]))
    if rows:
        show(console, rows, "sweep")


def write_report(folder: Path, name: str, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Write the totals and the rows as `report.json`, and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "report.json"
    whole = {"name": name, "totals": by_variant(rows), "rows": rows}
    home.write(file, json.dumps(whole, indent=1) + "\n")
    return file


def summary(row: Mapping[str, Any]) -> str:
    """Return the result of a problem in one line."""
    name = row["member"] or row.get("problem") or "the one problem"
    if row["state"] != "finished":
        return f"{name}: {_unfinished(row)}"
    result = row["figures"]
    if result["right"]:
        over = ", ".join(result.get("beside", ()))
        outcome = f"{format_us(result['us'])} µs{f' ({over})' if over else ''}"
    else:
        outcome = ": ".join(filter(None, (_lack(row), row.get("reason"))))
    return "; ".join(filter(None, (f"{name}: {outcome} in {row['wall_s']:.0f} s", row.get("why"))))


def _unfinished(row: Mapping[str, Any]) -> str:
    return ": ".join(filter(None, (row["state"], row.get("why"))))


def by_variant(rows: Iterable[Mapping[str, Any]]) -> dict[str, Json]:
    """Return variant -> its totals."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(str(row.get("variant", "")), []).append(row)
    return {variant: totals(group) for variant, group in groups.items()}


def _line(row: Mapping[str, Any]) -> dict[str, str]:
    name = "/".join(filter(None, (row["problem"], row.get("variant", "")))) if row.get("problem") else row["member"]
    result = row.get("figures")
    if not result:
        return {"problem": f"{name}\n{_unfinished(row)}"}
    sol, upstream = result.get("sol", {}), result.get("upstream", "")
    approved = [f"{trial} {approval}" for trial, approval in row.get("approved", {}).items()]
    doubt = [f"not ranked: {row['unranked']}"] if row.get("unranked") else []
    return {
        "problem": "\n".join([name, *(["went on"] if row.get("final") else []), *approved, *doubt]),
        "best µs": format_us(result["us"]) if result["right"] else _lack(row),
        "SOL theirs": _percent(sol.get("theirs")),
        "SOL ours": _percent(sol.get("ours")),
        "verdict": f"accept; upstream: {upstream}" if upstream and (sol or upstream != "pass") else "",
        "speed-up": "\n".join(result.get("beside", ())),
        "trials": str(row["trials"]),
        "to best": str(row.get("trials_to_best") or ""),
        "correct": f"{row['correct']:.0%}" if row.get("correct") is not None else "",
        "verdicts": "\n".join(f"{count} {verdict}" for verdict, count in row.get("verdicts", {}).items()),
        **_spent(row),
    }


def _spent(row: Mapping[str, Any]) -> dict[str, str]:
    cost = f"${row['usd']:.2f}" if row["usd"] or not row["tokens"] else ""
    return {"tokens": str(row["tokens"]), "cost": cost, "wall": f"{row['wall_s']:.0f} s"}


def _percent(share: float | None) -> str:
    return f"{100 * share:.3g} %" if share else ""


def _lack(row: Mapping[str, Any]) -> str:
    if not row["trials"]:
        return "none written"
    return "none right" if row["figures"]["compiled"] else "none compiled"


def _whole(total: Json) -> dict[str, str]:
    return {
        "problems": str(total["problems"]),
        "compiled": f"{total['compiled']:.0%}",
        "right": f"{total['right']:.0%}",
        **{f"fast_{p}": _both(share, total["fast_mean"][p]) for p, share in total["fast"].items()},
        "geomean": "\n".join(f"{name} {f'{value:.2f}' if value else '-'}" for name, value in total["geomean"].items()),
        **_spent(total),
    }


def _both(sure: float, mean: float) -> str:
    return f"{sure:.0%}" if f"{sure:.0%}" == f"{mean:.0%}" else f"{sure:.0%} ({mean:.0%})"


def _first(speedups: Mapping[str, float | None]) -> float:
    """Return the speed-up over the first baseline; 0 if nothing was right."""
    return next(iter(speedups.values()), None) or 0.0


def _cases(trial: Trial | None) -> list[Json]:
    cases: list[Json] = []
    for timing in trial.evaluation.timings if trial and trial.evaluation else ():
        samples = timing.samples_us or (timing.us,)
        moments = {
            "mean": statistics.fmean(samples),
            "std": statistics.stdev(samples) if len(samples) > 1 else 0.0,
            "min": min(samples),
            "max": max(samples),
        }
        cases.append({"case": timing.case, "us": timing.us, **moments, "runs": len(samples)})
    return cases
