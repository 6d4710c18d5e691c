"""The verb `runs`: every run that a lineage has, a line each."""

import csv
import json
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ksflow import home, report
from ksflow.cli import usage
from ksflow.cli.task import open_lineage, winner_folder
from ksflow.config import compose, keys
from ksflow.errors import ConfigError, boolean, explain_write_errors, one_of, pluralize, suggest
from ksflow.lineage import Lineage
from ksflow.records import Json, Origin
from ksflow.report.headline import headline, known_baselines
from ksflow.report.words import format_us, grid

_DISPENSABLE = ("cost", "held out", "winner", "experiments", "beside", "touched")
"""Columns that a narrow window does without, the first of them first."""
_FOLDED = ("run", "winner", "beside")
_WORDS = ("run", "winner", "held out", "beside", "touched", "state")
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"))


def runs(words: list[str], overrides: list[str]) -> int:
    """`runs [problem=NAME]`: the table; `runs delete|rename|export NAME`. ConfigError where there is no such run."""
    if words:
        usage.expect_word("runs", words, tuple(_VERBS))
        if len(words) != 2:
            raise ConfigError(f"runs {words[0]} takes one run, as `ksflow runs` lists them: problem/run")
        return _VERBS[words[0]](words[1], overrides)
    options, rest = keys.own_options(overrides, "format")
    form = one_of("format", options.get("format", "table"), ("table", "json", "csv"))
    cfg = compose.compose(rest)
    wanted = keys.own_options(rest, "problem")[0].get("problem", "").strip("/")
    with open_lineage(cfg, "any", "main") as lineage:
        names = [name for name in lineage.store.runs() if wanted.rpartition("/")[2] in ("", name[0])]
    if not names:
        raise ConfigError(f"no run{f' of {wanted}' if wanted else ''} in {cfg.lineage.path}; a search makes one")
    rows = sorted((_row(cfg, *name) for name in names), key=lambda row: -row[0]["touched"])
    facts, cells = [row[0] for row in rows], [row[1] for row in rows]
    if form == "json":
        sys.stdout.write(json.dumps(facts, indent=1, ensure_ascii=False) + "\n")
        return 0
    if form == "csv":
        table = csv.DictWriter(sys.stdout, facts[0], lineterminator="\n")
        table.writeheader()
        table.writerows(facts)
        return 0
    console = report.console()
    console.print(grid(console, cells, _WORDS, _FOLDED, _DISPENSABLE, 12, shown_by="format=csv"))
    shows = f"python -m ksflow lineage {facts[0]['run']} (or report, watch, verify ... ID) shows one"
    report.say(console, f"{shows}; a run goes on with the command that it was begun with")
    return 0


@contextmanager
def _named(name: str, overrides: list[str]) -> Iterator[Lineage]:
    problem, _, run = name.partition("/")
    with open_lineage(compose.compose(overrides), problem, run or "main") as lineage:
        known = ["/".join(each) for each in lineage.store.runs()]
        if f"{lineage.problem}/{lineage.run}" not in known:
            raise ConfigError(f"no run {name} in {lineage.store.path}; {suggest(name, known)}")
        yield lineage


def _delete(name: str, overrides: list[str]) -> int:
    options, rest = keys.own_options(overrides, "yes")
    with _named(name, rest) as lineage:
        full = f"{lineage.problem}/{lineage.run}"
        if not boolean("yes", options.get("yes", "false")):
            if not sys.stdin.isatty():
                raise ConfigError(f"runs delete {full} deletes every kernel and verdict of the run: add yes=true")
            trials = lineage.all_trials()
            seeds = sum(trial.origin is Origin.SEED for trial in trials)
            what = f"{pluralize(len(trials) - seeds, 'experiment')}, {pluralize(seeds, 'seed')}"
            sys.stderr.write(f"delete {full}, with {what} and its files? [y/N] ")
            if sys.stdin.readline().strip().lower() not in ("y", "yes"):
                raise ConfigError("nothing was deleted")
        count = lineage.relocate()
        if (folder := winner_folder(lineage)).is_dir():
            shutil.rmtree(folder)
    report.say(report.console(), f"deleted {full}: {pluralize(count, 'ref')} and the winner's files")
    return 0


def _rename(name: str, overrides: list[str]) -> int:
    options, rest = keys.own_options(overrides, "to")
    with _named(name, rest) as lineage:
        new = options.get("to", "").removeprefix(f"{lineage.problem}/")
        if not new:
            raise ConfigError("runs rename takes the new name as well, such as to=first")
        with open_lineage(compose.compose(rest), lineage.problem, new) as other:  # ConfigError where it can name no run
            lineage.relocate(other.run)
        if (folder := winner_folder(lineage)).is_dir():
            folder.rename(folder.with_name(new))
    report.say(report.console(), f"{lineage.problem}/{lineage.run} is now {lineage.problem}/{new}")
    return 0


def _export(name: str, overrides: list[str]) -> int:
    from ksflow.report.page import as_html, run_facts

    options, rest = keys.own_options(overrides, "out")
    with _named(name, rest) as lineage:
        lineage.expect_as_recorded()
        folder = Path(options.get("out", f"runs/exports/{lineage.problem}_{lineage.run}"))
        with explain_write_errors(f"out={folder}"):
            folder.mkdir(parents=True, exist_ok=True)
            lineage.bundle(folder / "lineage.bundle")
            home.write(folder / "page.html", as_html([run_facts(lineage)]))
            if (files := winner_folder(lineage)).is_dir():
                shutil.copytree(files, folder / "winner", dirs_exist_ok=True)
    clone = f"git clone --mirror {folder}/lineage.bundle runs/lineage.git"
    report.say(report.console(), f"written to {folder}: the page, the winner's files, the lineage ({clone} reads it)")
    return 0


_VERBS = {"delete": _delete, "rename": _rename, "export": _export}


def _row(cfg: Any, problem: str, run: str) -> tuple[Json, dict[str, str]]:
    """Return a run's facts for programs, with numbers, and its cells by their columns.

    `cost` is in US dollars, `touched` in seconds since 1970.
    """
    with open_lineage(cfg, problem, run) as lineage:
        lineage.expect_as_recorded()
        population, total = lineage.population(), lineage.total_cost()
        left, working = lineage.count_unfinished()
        when = max(map(lineage.store.newest_commit_time, lineage.prefixes))
    best, claimed = population.best, headline(population, known_baselines(population))
    ago = time.time() - when
    everything, held = (*population.stale, *population.trials), best.held_out if best else None
    best_us, ratio = population.time_us(best) if best else None, claimed.row if claimed else None
    facts: Json = {
        "run": f"{problem}/{run}",
        "trials": sum(trial.origin is not Origin.SEED for trial in everything),
        "best µs": best_us,
        "winner": ", ".join(t.id for t in (best, *population.ties)) + (" (a tie)" if population.ties else "")
        if best and not (claimed and claimed.over is best)
        else "none",
        "held out": f"right on {len(held.right)} of {len(held.right) + len(held.wrong)}" if held else "",
        "beside": claimed.claim if claimed and claimed.row else "",
        "cost": total.usd,
        "touched": when,
        "state": "running" if working else f"{left} unfinished" if left else "at rest",
    }
    cells: dict[str, str] = {
        **{"experiments" if name == "trials" else name: value for name, value in facts.items()},
        "experiments": str(facts["trials"]),
        "best µs": format_us(best_us) if best_us else "-",
        "cost": total.dollars(),
        "touched": next((f"{ago / size:.0f} {unit} ago" for size, unit in _UNITS if ago >= size), "just now"),
    }
    figures = {"speedup": ratio and ratio.ratio, "low": ratio and ratio.low, "high": ratio and ratio.high}
    return facts | figures, cells
