"""A population as prompt text of bounded length: the most important first, the rest counted.

Dead ends that a note replaces are left out and counted; seeds and former leaders are never left out.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

from ksflow.errors import shorten
from ksflow.lm.prompts.brief import count, fit_text
from ksflow.lm.prompts.hardware import roofline_share
from ksflow.lm.prompts.render import outcome
from ksflow.lm.prompts.times import figure, table
from ksflow.lm.prompts.tried import closed_trials, has_failed, is_untimed, stand_in
from ksflow.notes.relevance import CHARACTERS
from ksflow.records import Population, Problem, Trial

_FAILURES = 0.25  # of a view's room
_RECENT = 10  # trials that count as recent
_ROWS = 8  # rows for which there must be room, else they have no column for each shape
_ALIKE = 120  # characters of a reason by which failures are grouped
_DIGITS = str.maketrans("", "", "0123456789")
_COUNT = 160  # characters of lines that count omissions


@dataclass(frozen=True)
class View:
    """A selector's view of a population."""

    shown: frozenset[str]  # the ids in the table
    table: str  # accepted kernels, best first
    failures: str  # failures of different kinds, newest first


def view(problem: Problem, population: Population, tokens: int) -> View:
    """Return the best, the newest, the best on each shape, recent and next best kernels, as far as they fit; and
    failures.

    Table and failures together have at most `tokens`, unless that has no room for the best kernel.
    """
    wins = _wins(problem, population)
    closed = closed_trials(population) - wins.keys()

    def write(asked: int) -> View:
        room = CHARACTERS * asked
        failures = _failures(population, closed, int(room * _FAILURES))
        shown, text = _table(problem, population, wins, closed, room - len(failures))
        return View(frozenset(trial.id for trial in shown), text, failures)

    return fit_text(tokens, write, lambda seen: count(seen.table) + count(seen.failures))


def _failures(population: Population, closed: frozenset[str], room: int) -> str:
    """Return the newest failure or untimed kernel of each kind (verdict, reason), with the count of similar ones."""
    kinds: dict[str, list[Trial]] = {}
    unfit = [trial for trial in reversed(population.trials) if has_failed(trial) or is_untimed(trial)]
    for trial in unfit:
        if trial.id not in closed:
            reason = trial.evaluation.reason if trial.evaluation else trial.failure
            kinds.setdefault(f"{trial.verdict} {reason[: 2 * _ALIKE].translate(_DIGITS)[:_ALIKE]}", []).append(trial)
    lines: list[str] = []
    dead = stand_in(sum(trial.id in closed for trial in unfit), "failures")
    left = room - _COUNT - sum(map(len, dead))
    for kind in kinds.values():
        again = f" ({len(kind) - 1} more like it)" if len(kind) > 1 else ""
        line = f"- {outcome(kind[0], population)}{again}"
        left -= len(line) + 1
        if left < 0:
            break
        lines.append(line)
    if rest := list(kinds.values())[len(lines) :]:
        lines.append(f"({sum(map(len, rest))} more failures, of {len(rest)} other kinds)")
    return "\n".join([*lines, *dead])


def _wins(problem: Problem, population: Population) -> Mapping[str, list[str]]:
    fastest: dict[str, tuple[float, str]] = {}
    for trial in population.ranked:
        for case_name, us in population.scale.times_us(trial.id).items():
            if case_name not in fastest or us < fastest[case_name][0]:
                fastest[case_name] = us, trial.id
    wins: dict[str, list[str]] = {}
    for case in problem.benchmarks:
        if case.name in fastest:
            wins.setdefault(fastest[case.name][1], []).append(case.name)
    return dict(sorted(wins.items(), key=lambda item: -len(item[1])))


def _table(
    problem: Problem, population: Population, wins: Mapping[str, list[str]], closed: frozenset[str], room: int
) -> tuple[list[Trial], str]:
    cases = [case.name for case in problem.benchmarks]
    order = [trial for trial in _order(population, wins) if trial.id not in closed]
    below = stand_in(sum(trial.id in closed for trial in population.ranked), "accepted kernels")
    room -= sum(len(line) + 1 for line in below)
    titles, rows = _titles(cases), {trial.id: _row(trial, population, cases) for trial in order[:_ROWS]}
    if _length(titles, rows.values()) > room - _COUNT:
        cases = []
        titles = [*_titles(cases), "fastest on"]
        rows = {}
    limits = _rooflines(order, cases)
    left = room - _COUNT - _length(titles, [limits])
    shown: list[Trial] = []
    for trial in order:
        row = _row(trial, population, cases)
        if not cases:
            row.append(shorten(", ".join(wins.get(trial.id, ())), 60))
        left -= _length(row)
        if left < 0 and shown:
            break
        rows[trial.id] = row
        shown.append(trial)
    ids = {trial.id for trial in shown}
    lines = [rows[trial.id] for trial in population.ranked if trial.id in ids]
    text = table(titles, [*lines, *([limits] if limits else [])])
    if rest := [population.time_us(trial) or 0.0 for trial in population.ranked if trial.id not in ids | closed]:
        scores = f"{figure(rest[0])} to {figure(rest[-1])} us"
        text += f"\n({len(rest)} more accepted kernels are not shown; their scores: {scores})"
    return shown, "\n".join([text, *below])


def _order(population: Population, wins: Mapping[str, list[str]]) -> list[Trial]:
    ranked = population.ranked
    newest = list(islice((trial for trial in reversed(population.trials) if trial.score_us is not None), _RECENT))
    best = [trial for trial in (population.leader, *ranked[:1], *newest[:1]) if trial]
    incumbents = [population.by_id[id] for id in wins]
    mixed = [trial for pair in zip(ranked[1:], newest[1:], strict=False) for trial in pair]
    return list({trial.id: trial for trial in (*best, *incumbents, *mixed, *newest, *ranked)}.values())


def _titles(cases: list[str]) -> list[str]:
    return ["id", "made from", "score us", *[f"{case} us" for case in cases], "noise", "what was tried"]


def _row(trial: Trial, population: Population, cases: list[str]) -> list[str]:
    assert trial.evaluation is not None
    times = population.scale.times_us(trial.id)
    what = trial.experiment.description if trial.experiment else f"seed {trial.name}"
    figures = [figure(times[case]) if case in times else "-" for case in cases]
    share = roofline_share(trial.evaluation)
    score = f"{figure(population.time_us(trial) or 0.0)}{f' ({share} of roofline)' if share else ''}"
    return [trial.id, ", ".join(trial.parents), score, *figures, _noise(trial), shorten(what)]


def _rooflines(trials: list[Trial], cases: list[str]) -> list[str]:
    near = (row for trial in trials[:_ROWS] if trial.evaluation for row in trial.evaluation.evidence.roofline)
    bounds = {row.case: row.bound_us for row in near if row.bound_us}
    figures = [figure(bounds[case]) if case in bounds else "-" for case in cases]
    return ["roofline", "", "", *figures, "", "what the hardware's rates allow"] if bounds.keys() & set(cases) else []


def _noise(trial: Trial) -> str:
    assert trial.evaluation is not None
    halves = [
        50 * (row.interval_us[1] - row.interval_us[0]) / row.us
        for row in trial.evaluation.evidence.timed
        if row.interval_us and row.us
    ]
    shown = f"±{figure(round(max(halves), 1))} %" if halves else "-"
    return f"{shown} unranked" if trial.evaluation.why_unranked else shown


def _length(row: list[str], *tables: Iterable[list[str]]) -> int:
    if not tables:
        return sum(map(len, row)) + 3 * len(row) + 2
    return 2 * _length(row) + sum(map(_length, *tables))
