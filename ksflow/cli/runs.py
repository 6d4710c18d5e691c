"""The verb `runs`: every run that a lineage has, a line each."""

import time
from dataclasses import dataclass
from typing import Any

from ksflow import report
from ksflow.cli.task import opened
from ksflow.config import compose
from ksflow.errors import ConfigError
from ksflow.records import Origin, Trial
from ksflow.report.headline import headline, known_baselines
from ksflow.report.words import grid, us

_DISPENSABLE = ("cost", "held out", "winner", "trials", "beside", "touched")
"""Columns that a narrow window does without, the first of them first."""
_WORDS = ("run", "winner", "held out", "beside", "touched", "state")
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"))


def runs(words: list[str], overrides: list[str]) -> int:
    """`runs [problem=NAME]`: the table; 0, or ConfigError where there is no run."""
    if words:
        raise ConfigError(f"runs takes key=value, such as problem=softmax, not {words[0]!r}")
    cfg = compose.compose(overrides)
    wanted = next((word.partition("=")[2] for word in overrides if word.startswith("problem=")), "").strip("/")
    with opened(cfg, "any", "main") as lineage:
        names = [name for name in lineage.store.runs() if wanted.rpartition("/")[2] in ("", name[0])]
    if not names:
        raise ConfigError(f"no run{f' of {wanted}' if wanted else ''} in {cfg.lineage.path}; a search makes one")
    rows = sorted((_row(cfg, *name) for name in names), key=lambda row: row.when, reverse=True)
    console = report.console()
    cells = [row.cells for row in rows]
    console.print(grid(console, cells, _WORDS, ("run",), _DISPENSABLE, 12))
    console.print(
        f"python -m ksflow lineage {rows[0].cells['run']} (or report, watch, verify ... ID) shows one; a run goes on "
        "with the command that it was begun with",
        soft_wrap=True,
    )
    return 0


@dataclass(frozen=True)
class _Row:
    cells: dict[str, str]
    when: int


def _row(cfg: Any, problem: str, run: str) -> _Row:
    with opened(cfg, problem, run) as lineage:
        lineage.expect_as_recorded()
        known, total = lineage.population(), lineage.spent()
        left, working = lineage.undone()
        when = max(map(lineage.store.newest, lineage.prefixes))
    best, claimed = known.best, headline(known, known_baselines(known))
    everything = (*known.stale, *known.trials)
    cells = {
        "run": f"{problem}/{run}",
        "trials": str(sum(trial.origin is not Origin.SEED for trial in everything)),
        "best µs": us(best.score_us) if best and best.score_us else "-",
        "winner": ", ".join(t.id for t in (best, *known.tied)) + (" (a tie)" if known.tied else "") if best else "",
        "held out": _held_out(best),
        "beside": claimed.claim if claimed and claimed.row else "",
        "cost": total.dollars() if total.calls else "",
        "touched": _ago(time.time() - when),
        "state": "running" if working else f"{left} unfinished" if left else "at rest",
    }
    return _Row(cells, when)


def _held_out(best: Trial | None) -> str:
    """On how many shapes that models are not shown the winner is right."""
    held = best.held_out if best else None
    return f"right on {len(held.right)} of {len(held.right) + len(held.wrong)}" if held else ""


def _ago(seconds: float) -> str:
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{seconds / size:.0f} {unit} ago"
    return "just now"
