"""The verb `runs`: every run that a lineage has, a line each."""

import time
from typing import Any

from ksflow import report
from ksflow.cli.task import opened
from ksflow.config import compose, keys
from ksflow.errors import ConfigError
from ksflow.records import Origin
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
    wanted = keys.own_options(overrides, "problem")[0].get("problem", "").strip("/")
    with opened(cfg, "any", "main") as lineage:
        names = [name for name in lineage.store.runs() if wanted.rpartition("/")[2] in ("", name[0])]
    if not names:
        raise ConfigError(f"no run{f' of {wanted}' if wanted else ''} in {cfg.lineage.path}; a search makes one")
    rows = [cells for _, cells in sorted((_row(cfg, *name) for name in names), key=lambda row: -row[0])]
    console = report.console()
    console.print(grid(console, rows, _WORDS, ("run",), _DISPENSABLE, 12))
    shows = f"python -m ksflow lineage {rows[0]['run']} (or report, watch, verify ... ID) shows one"
    report.say(console, f"{shows}; a run goes on with the command that it was begun with")
    return 0


def _row(cfg: Any, problem: str, run: str) -> tuple[int, dict[str, str]]:
    """When it was touched last, and its cells by their columns."""
    with opened(cfg, problem, run) as lineage:
        lineage.expect_as_recorded()
        known, total = lineage.population(), lineage.spent()
        left, working = lineage.undone()
        when = max(map(lineage.store.newest, lineage.prefixes))
    best, claimed = known.best, headline(known, known_baselines(known))
    ago = time.time() - when
    everything, held = (*known.stale, *known.trials), best.held_out if best else None
    return when, {
        "run": f"{problem}/{run}",
        "trials": str(sum(trial.origin is not Origin.SEED for trial in everything)),
        "best µs": us(known.us(best) or 0.0) if best else "-",
        "winner": ", ".join(t.id for t in (best, *known.tied)) + (" (a tie)" if known.tied else "") if best else "",
        "held out": f"right on {len(held.right)} of {len(held.right) + len(held.wrong)}" if held else "",
        "beside": claimed.claim if claimed and claimed.row else "",
        "cost": total.dollars(),
        "touched": next((f"{ago / size:.0f} {unit} ago" for size, unit in _UNITS if ago >= size), "just now"),
        "state": "running" if working else f"{left} unfinished" if left else "at rest",
    }
