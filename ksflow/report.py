"""What a person sees: progress while a run lasts, tables when it ends, the tree of kernels. Text only, no decisions."""

import json
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import structlog
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from ksflow import evidence, spending
from ksflow.approval import approvals
from ksflow.lineage import Lineage
from ksflow.records import Approval, Origin, Population, Problem, Trial
from ksflow.schedule import Outcome, Session

_LOG = structlog.get_logger("ksflow")
_STYLE = {"accept": "green", "failed": "red", "compile-error": "yellow", "untimed": "cyan", "stale": "dim"}
_NOTICES = ("no plan", "no notes", "stale", "not confirmed", "estimate")
"""Steps that are said in a line of their own begin so."""


def console(stderr: bool = False) -> Console:
    """A console that does not squeeze tables into 80 columns when nobody's window sets the width."""
    made = Console(stderr=stderr)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = 160
    return made


class Display:
    """Progress of a run: a line per trial, and below them a bar with the best so far. Also the run's event log."""

    def __init__(self, console: Console) -> None:
        self._console = console
        columns = [BarColumn(20), TextColumn("{task.description}")]
        self._bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._bar.add_task("starting", total=1.0)

    def __enter__(self) -> "Display":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def __call__(self, what: str, trial: Trial | None, session: Session) -> None:
        """Show one step."""
        _LOG.info(what, **_event(trial, session))
        if what == "done" and trial:
            self._console.print(_line(trial, session), soft_wrap=True)
        elif what == "interrupt":
            self._console.print(
                f"finishing {_doing(session) or 'what is at hand'}; Ctrl-C again abandons it (nothing written is lost)",
                style="yellow",
                soft_wrap=True,
            )
        elif what == "abandon":
            self._console.print(
                f"abandoned: {_doing(session) or 'nothing'}; the next run takes it up", style="yellow", soft_wrap=True
            )
        elif what.startswith(_NOTICES):
            self._console.print(what, style="yellow", soft_wrap=True)
        share = max(session.used().values(), default=0.0)
        self._bar.update(self._task, completed=share, description=self._status(session, share))

    def _status(self, session: Session, share: float) -> str:
        best = session.known.best
        elapsed = time.monotonic() - session.started
        left = f"{elapsed / share - elapsed:.0f} s left" if share > 0.05 else ""
        parts = [
            f"round {session.rounds}",
            _doing(session),
            f"best {best.score_us:.4g} µs {_times(best, session.baselines)}" if best else "",
            left,
            f"${session.lab.transcript.total.usd:.2f}",
        ]
        return " · ".join(part for part in parts if part)


def summary(outcome: Outcome, problem: Problem, lineage: Lineage) -> dict[str, Any]:
    """What a sweep compares: figures of the whole run."""
    approved = approvals(lineage)
    experiments = [t for t in outcome.population.trials if t.origin.value != "seed"]
    accepted = [t for t in experiments if t.score_us is not None]
    order = [t.id for t in experiments]
    best = outcome.best
    return {
        "problem": problem.name,
        "run": lineage.run,
        "best": best.id,
        "approved": {name: str(approval) for name, approval in approved.items()},
        "unranked": best.evaluation.unranked if best.evaluation else "",
        "stale": len(outcome.population.stale),
        "score_us": best.score_us,
        "speedup": speedup(best, outcome.baselines),
        "trials": len(experiments),
        "trials_to_best": order.index(best.id) + 1 if best.id in order else 0,
        "correct": len(accepted) / len(experiments) if experiments else None,
        "usd": spending.spent(outcome.population).usd,
        "tokens": spending.spent(outcome.population).tokens,
        "improvements": len(spending.improvements(outcome.population)),
        "wall_s": round(outcome.wall_s, 1),
    }


def speedup(trial: Trial, baselines: tuple[Trial, ...]) -> float | None:
    """Against the fastest baseline: as timed side by side where that was done, else by the scores."""
    rows = trial.evaluation.evidence.get("against", ()) if trial.evaluation else ()
    ids = {baseline.id for baseline in baselines}
    paired = [float(row["speedup"]) for row in rows if row["id"] in ids]
    if ids and len(paired) == len(ids):
        return min(paired)
    return by_score(trial, baselines)


def by_score(trial: Trial, baselines: tuple[Trial, ...]) -> float | None:
    """Against the fastest baseline, by their scores alone: the two may have had other neighbours when timed."""
    times = [baseline.score_us for baseline in baselines if baseline.score_us]
    return min(times) / trial.score_us if times and trial.score_us else None


def show_outcome(console: Console, outcome: Outcome, problem: Problem, lineage: Lineage) -> None:
    """The end of a run: the best kernels against the baselines per shape, the winner's commit, what to type next."""
    best, baselines = outcome.best, outcome.baselines
    found = [t for t in outcome.population.ranked if t is not best and t not in baselines]
    shown = [*([] if best in baselines else [best]), *found[:4]]
    console.print(_scores(problem, shown, baselines, approvals(lineage)))
    rate = 60 * outcome.judged / outcome.search_s if outcome.search_s else 0.0
    repeats = f", {outcome.repeats} repeats answered from the record" if outcome.repeats else ""
    console.print(
        f"{outcome.judged} experiments in {outcome.search_s:.0f} s ({rate:.0f} a minute; the device was busy "
        f"{outcome.busy:.0%}){repeats}, ${outcome.cost.usd:.2f}; stopped: {outcome.reason}",
        soft_wrap=True,
    )
    show_spending(console, outcome.population)
    if stale := outcome.population.stale:
        console.print(f"{len(stale)} older results are stale and not ranked; `lineage` shows them")
    if confirmed := _confirmed(best):
        console.print(confirmed)
    where = lineage.store.path
    name = lineage.branch_of(best.id)
    console.print(f"winner  {best.id}  commit {lineage.commit_of(best.id)}  branch {name}")
    console.print(
        f"  git -C {where} log --graph --oneline {name}\n"
        f"  git -C {where} show {name}\n"
        f"  python -m ksflow lineage problem={problem.name} run={lineage.run}\n"
        f"  python -m ksflow lineage show {best.id} problem={problem.name} run={lineage.run}",
        soft_wrap=True,
    )


def show_spending(console: Console, population: Population, every: bool = False) -> None:
    """What the whole run has cost, by experiment and by improvement; `every` improvement in a row of its own."""
    found, total = spending.improvements(population), spending.spent(population)
    trials = sum(trial.origin is not Origin.SEED for trial in (*population.stale, *population.trials))
    if every and found:
        table = Table(title="improvements", title_justify="left", box=SIMPLE_HEAD)
        for name in ("kernel", "µs", "gain", "experiments", "cost"):
            table.add_column(name, justify="left" if name in ("kernel", "cost") else "right", no_wrap=True)
        for row in found:
            cells = (row.trial.id, f"{row.trial.score_us:.4g}", f"{row.gain_percent:+.0f} %", str(row.trials))
            table.add_row(*cells, spending.price(row.cost))
        console.print(table)
    if trials and spending.price(total):
        words = [
            f"cost of the run so far: {spending.price(total)}",
            f"an experiment {spending.price(total.shared(trials))}",
        ]
        if found:
            words.append(f"an improvement {spending.price(total.shared(len(found)))} ({len(found)} so far)")
        console.print("; ".join(words), soft_wrap=True)


def show_tree(
    console: Console, population: Iterable[Trial], baselines: tuple[Trial, ...], approved: Mapping[str, Approval]
) -> None:
    """The lineage as a tree: every trial below its base."""
    nodes: dict[str, Tree] = {}
    root = Tree("lineage", hide_root=True)
    for trial in population:
        label = Text.assemble((trial.id, "bold"), " ", (trial.verdict, _STYLE.get(trial.verdict, "red")), " ")
        if trial.score_us:
            label.append(f"{trial.score_us:.4g} µs {_times(trial, baselines)} ")
        elif trial.stale:
            label.append(f"({_was(trial)}) ", "dim")
        if trial.id in approved:
            label.append(f"{approved[trial.id]} ", "bold green")
        if len(trial.parents) > 1:
            label.append(f"(with {trial.parents[1]}) ", "dim")
        label.append(_what(trial, 90))
        if trial.cost.usd:
            label.append(f" ${trial.cost.usd:.4f}", "dim")
        nodes[trial.id] = nodes.get(trial.parents[0] if trial.parents else "", root).add(label)
    console.print(root, soft_wrap=True)


def show_trial(console: Console, trial: Trial, commit: str, approval: Approval | None = None) -> None:
    """Everything about one trial, the verdict and what it rests on first."""
    console.print(f"{trial.id}  {trial.origin.value}  {trial.verdict}  commit {commit}")
    rows: dict[str, object] = {
        "stale": _was(trial) if trial.stale else "",
        "approval": approval,
        **dict(zip(("base", "reference"), trial.parents, strict=False)),
        "name": trial.name,
        "failure": trial.failure,
        "repeats": trial.repeats,
        "cost": f"${trial.cost.usd:.4f}, {trial.cost.tokens} tokens, {trial.wall_s:.1f} s, "
        f"{trial.cost.calls} model calls",
    }
    for key, value in rows.items():
        if value:
            console.print(f"  {key}: {value}", markup=False, soft_wrap=True)
    if trial.evaluation:
        console.print()
        evidence.show(console, trial.evaluation)
    if trial.experiment:
        low, high = trial.experiment.gain_percent
        console.print(
            f"\nexperiment (gain {low:g} to {high:g} %, innovation {trial.experiment.innovation:g})\n"
            f"  {trial.experiment.description}\n  rubric: {trial.experiment.rubric}",
            markup=False,
        )
    for name, text in trial.kernel.files.items() if trial.kernel else ():
        console.print(f"\n{name}\n{text}", markup=False, soft_wrap=True)


def show_sweep(console: Console, summaries: list[dict[str, Any]]) -> None:
    """One row per variant, best first."""
    table = Table(title="sweep", title_justify="left", box=SIMPLE_HEAD)
    for name in ("run", "best µs", "x baseline", "trials", "to best", "correct", "cost", "wall"):
        left = name == "run"
        table.add_column(name, justify="left" if left else "right", no_wrap=not left, overflow="fold")
    for row in sorted(summaries, key=lambda row: row["score_us"]):
        table.add_row(
            "\n".join([f"{row['problem']}/{row['run']}", *_sweep_notes(row)]),
            f"{row['score_us']:.4g}",
            f"{row['speedup']:.2f}" if row["speedup"] else "",
            str(row["trials"]),
            str(row["trials_to_best"]),
            f"{row['correct']:.0%}" if row["correct"] is not None else "",
            f"${row['usd']:.2f}",
            f"{row['wall_s']:.0f} s",
        )
    console.print(table)


def read_summaries(folder: Path) -> list[dict[str, Any]]:
    """The summaries that a sweep's jobs left in their folders."""
    files = sorted(folder.glob("*/summary.json"))
    return [json.loads(file.read_text()) for file in files]


def _sweep_notes(row: Mapping[str, Any]) -> list[str]:
    approved = [f"{name} {said}" for name, said in row.get("approved", {}).items()]
    return [*approved, *([f"unranked: {row['unranked']}"] if row.get("unranked") else [])]


def _scores(
    problem: Problem, trials: list[Trial], baselines: tuple[Trial, ...], approved: Mapping[str, Approval]
) -> Table:
    cases = [case.name for case in problem.benchmarks]
    table = Table(title=f"{problem.name}: µs per call, lower is better", title_justify="left", box=SIMPLE_HEAD)
    paid = any(trial.cost.calls for trial in trials)
    for name in ("kernel", problem.score, "x baseline", *(["cost"] if paid else []), *cases[:6]):
        left = name == "kernel"
        table.add_column(name, justify="left" if left else "right", no_wrap=not left, overflow="fold")
    for trial in [*trials, *baselines]:
        timings = {t.case: t.us for t in trial.evaluation.timings} if trial.evaluation else {}
        ratio = by_score(trial, baselines) if trial not in baselines else None
        table.add_row(
            "\n".join([f"{trial.id} {trial.name}".strip(), *_notes(trial, approved.get(trial.id))]),
            f"{trial.score_us:.4g}" if trial.score_us else trial.verdict,
            f"{ratio:.2f}" if ratio else "",
            *([f"${trial.cost.usd:.4f}" if trial.cost.calls else ""] if paid else []),
            *(f"{timings[case]:.4g}" if case in timings else "" for case in cases[:6]),
            style="bold" if trial in trials[:1] else None,
        )
    return table


def _notes(trial: Trial, approval: Approval | None) -> list[str]:
    """What a table says below a kernel's name."""
    unranked = trial.evaluation.unranked if trial.evaluation else ""
    return [*([str(approval)] if approval else []), *([f"unranked: {unranked}"] if unranked else [])]


def _was(trial: Trial) -> str:
    """A stale trial's old verdict, and what has changed since."""
    evaluation = trial.evaluation
    assert evaluation is not None
    score = f" {evaluation.score_us:.4g} µs" if evaluation.score_us else ""
    return f"was {evaluation.verdict.value}{score}; changed since: {trial.stale}"


def _confirmed(best: Trial) -> str:
    found = best.evaluation.evidence if best.evaluation else {}
    doubt = f"unconfirmed beside the runner-up: {found['unconfirmed']}\n" if found.get("unconfirmed") else ""
    parts = [
        f"{evidence.ratio(row)} over {row['id']}{' (a tie)' if row['low'] < 1 < row['high'] else ''}"
        for row in found.get("against", ())
    ]
    return f"{doubt}timed again side by side: {best.id} is {', '.join(parts)}" if parts else doubt.strip()


def _doing(session: Session) -> str:
    """What is in flight, such as `select, write 00031 00032`."""
    steps: dict[str, list[str]] = {}
    for step, trial in sorted(session.doing.values()):
        steps.setdefault(step, []).append(trial)
    return ", ".join(" ".join([step, *filter(None, trials)]) for step, trials in steps.items())


def _event(trial: Trial | None, session: Session) -> dict[str, Any]:
    if trial is None:
        return {"round": session.rounds + 1}
    return {
        "round": session.rounds + 1,
        "trial": trial.id,
        "verdict": trial.verdict,
        "score_us": trial.score_us,
        "parents": trial.parents,
        "wall_s": trial.wall_s,
        "usd": trial.cost.usd,
    }


def _line(trial: Trial, session: Session) -> Text:
    best = session.known.best
    score = f"{trial.score_us:9.4g} µs {_times(trial, session.baselines):>7}" if trial.score_us else " " * 20
    base = f"<- {trial.parents[0]}" if trial.parents else "seed    "
    text = Text.assemble(
        (f"{trial.id} ", "bold" if best and best.id == trial.id else ""),
        (f"{trial.verdict:17.17}", _STYLE.get(trial.verdict, "red")),
        f"{score}  {base}  ",
    )
    return text.append(_what(trial, 100))


def _what(trial: Trial, width: int) -> str:
    found = trial.evaluation
    reason = trial.failure or (found.reason if found else "")
    idea = trial.experiment.description if trial.experiment else trial.name
    unranked = f"unranked: {found.unranked}" if found and found.unranked else ""
    repeat = f"the code of {trial.repeats}" if trial.repeats else ""
    cached = f"judged on {found.evidence['cached']['date'][:10]}" if found and "cached" in found.evidence else ""
    text = " ".join(" | ".join(part for part in (repeat, unranked, idea, reason, cached) if part).split())
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _times(trial: Trial, baselines: tuple[Trial, ...]) -> str:
    ratio = by_score(trial, baselines)
    return f"x{ratio:.2f}" if ratio else ""


def known_baselines(population: Population, problem: Problem) -> tuple[Trial, ...]:
    """The trials that are the problem's baselines, fastest first."""
    digests = {seed.kernel.digest for seed in problem.seeds if seed.baseline}
    return tuple(t for t in population.ranked if t.kernel and t.kernel.digest in digests)
