"""Tables of a run: the best kernels, costs, calibration."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ksflow.errors import pluralize
from ksflow.lineage import Lineage
from ksflow.loop.schedule import RunOutcome
from ksflow.loop.stops import INTERRUPTED, KEPT
from ksflow.notes import calibration
from ksflow.records import Approval, Cost, Json, Origin, Population, Problem, Trial
from ksflow.report import spending
from ksflow.report.headline import Headline, baseline_name, of_outcome
from ksflow.report.scores import figures
from ksflow.report.words import describe_changes, fits_window, format_us, grid, percent, say, truncate, why_unranked

_CASES = 6
_RIVALS = 3  # other kernels in the table of a run that has ended
_NAME = 16  # least columns of a kernel's name
_STEP, _SHARED = 40, 80  # columns of a change that led to the winner, and of the most frequent reason of failures
_RATED_S = 10.0  # least seconds of a search whose rate is shown
_STEPS = 3  # changes leading to the winner that are shown
_ONE_MOMENT = "times as of the newest confirmation"
_AHEAD = "{} read faster than {}; none was ranked ahead of it"
_EXHAUSTED = re.compile(r": (?P<what>nothing [^:]+): [^;]+; (?P<remedy>.+)")  # why a designer plans no more
_CAPTION = "Gains are over the base. In range, predicted and measured: of the accepted alone; the last two are medians."


def summary(outcome: RunOutcome, problem: Problem, lineage: Lineage) -> Json:
    """Return figures of the whole run, which sweeps and suites compare."""
    population, best, claimed, spent = outcome.population, outcome.best, of_outcome(outcome), lineage.total_cost()
    tries = [trial for trial in population.trials if trial.origin is not Origin.SEED]
    order = [trial.id for trial in tries]
    return {
        "problem": problem.name,
        "run": lineage.run,
        "best": best.id,
        "approved": {name: str(approval) for name, approval in lineage.approvals().items()},
        "unranked": best.evaluation.why_unranked if best.evaluation else "",
        "stale": len(population.stale),
        "score_us": outcome.score_us,
        "speedup": claimed.speedup,
        "over": baseline_name(claimed.over) if claimed.over else "",
        "tied": [trial.id for trial in population.ties],
        "headline": str(claimed),
        "held_out": claimed.held_out,
        "trials": len(tries),
        "trials_to_best": order.index(best.id) + 1 if best.id in order else 0,
        "correct": sum(trial.score_us is not None for trial in tries) / len(tries) if tries else None,
        "verdicts": dict(Counter(trial.verdict for trial in tries).most_common()),
        "usd": spent.usd,
        "tokens": spent.tokens,
        "improvements": len(spending.improvements(population)),
        "calibration": [asdict(row) for row in calibration.calibrations(population)],
        "wall_s": round(outcome.wall_s, 1),
        "took_s": {part: round(seconds, 1) for part, seconds in outcome.took.items()},
        "reason": outcome.reason,
        "figures": figures(population, problem),
    }


def show_outcome(console: Console, outcome: RunOutcome, problem: Problem, lineage: Lineage) -> None:
    """Print the table of a run that has ended: the winner, the baselines, and the fastest of the other kernels."""
    best, baselines, claimed = outcome.best, outcome.baselines, of_outcome(outcome)
    ties = [t for t in outcome.population.ties if t not in baselines]
    others = [*ties, *(t for t in outcome.population.ranked if t is not best and t not in (*baselines, *ties))]
    shown = [best, *(t for t in baselines if t is not best), *others[:_RIVALS]]
    console.print(_scores(console, problem, shown, claimed, lineage.approvals(), len(others[_RIVALS:])))


def show_ending(console: Console, outcome: RunOutcome, lineage: Lineage, files: Sequence[str], typed: str = "") -> None:
    """Print how a run ended, in at most six statements: the claim, what made the winner, what was spent, what limits
    the claim, where the files are, the next command. At a terminal they are wrapped between words, the command aside.

    files: of the winner, with what was found of them. typed: the words of a command line that name the problem.
    """
    claimed, population = of_outcome(outcome), outcome.population
    rate = f", {60 * outcome.judged / outcome.search_s:.0f} a minute" if outcome.search_s >= _RATED_S else ""
    work = f"{pluralize(outcome.judged, 'experiment')} in {spending.duration(outcome.search_s)}{rate}"
    whole = f"{spending.duration(sum(outcome.took.values()))} in all"
    busy = f"the device was busy {outcome.busy:.0%} of the search" if outcome.judged else ""
    exhausted = _EXHAUSTED.search(outcome.reason)
    reason = outcome.reason.partition(": ")[0] if outcome.idle else outcome.reason  # the last line has all of it
    stopped = f"stopped: {exhausted['what'] if exhausted else reason}"
    remedy = f"to go on: {exhausted['remedy']}" if exhausted and not outcome.idle else ""
    stopped += f" ({KEPT})" if outcome.reason == INTERRUPTED else ""
    repeats = f"{pluralize(outcome.repeats, 'repeat')} answered from the record" if outcome.repeats else ""
    price = f"cost of the run so far: {total}" if (total := spending.price(lineage.total_cost())) else ""
    searched = (work, stopped, whole, outcome.cost.dollars(), price, repeats, busy)
    lines = (
        "; ".join(_made_by(claimed)),
        "; ".join(filter(None, searched)),
        "; ".join(filter(None, (remedy, *_doubts(claimed, population)))),
        f"files: {'; '.join(files)}" if files else "",
    )
    say(console, str(claimed), style="bold")
    say(console, *filter(None, lines))
    run, unproven = f"{typed or f'problem={lineage.problem}'} run={lineage.run}", claimed.unproven
    if unproven:
        command = f"next: python -m ksflow verify {unproven.id} {run}  (judges {unproven.id} again)"
    else:
        command, others = f"next: python -m ksflow report {run}", "  (lineage and verify take the same words)"
        command += others if not console.is_terminal or len(command + others) <= console.width else ""
    console.print(command, soft_wrap=True, no_wrap=True, markup=False)


def _made_by(claimed: Headline) -> Iterator[str]:
    """Yield the winner's share of the roofline, the changes with the largest gains that led to it, as timed beside
    their bases, and its start."""
    population, best = claimed.known, claimed.best
    if claimed.roofline:
        yield claimed.roofline
    steps = [(trial, gain) for trial, _, gain in claimed.steps[::-1] if gain and not gain.tie]
    if steps := sorted(steps, key=lambda step: -step[1].ratio):
        changes = [
            f"{describe_changes(t, population.by_id, _STEP)} x{gain.ratio:.2f} ({t.id})" for t, gain in steps[:_STEPS]
        ]
        rest = f", and {pluralize(len(steps) - _STEPS, 'step')} more" if len(steps) > _STEPS else ""
        yield f"made by {', '.join(changes)}{rest}"
    if claimed.start and len(claimed.steps) > 2:  # of one step the gain is that over the start
        yield claimed.start
    seed = best.origin is Origin.SEED and claimed.over is not best
    if seed and any(trial.origin is not Origin.SEED for trial in population.trials):
        yield f"no experiment beat the seed {best.id} {best.name}".rstrip() + " for sure"


def _doubts(claimed: Headline, population: Population) -> Iterator[str]:
    """Yield what limits the claim, the weightiest first, and the most frequent reason of experiments that failed."""
    yield claimed.why_unconfirmed
    held = claimed.best.held_out
    if held and held.wrong:
        yield claimed.held_out
    for trial in {trial.id: trial for trial in (claimed.best, *population.ranked[:_RIVALS])}.values():
        if doubt := claimed.why_unranked(trial):
            yield f"{trial.id} is {doubt}"
    if contradicted := population.scale.contradictions:
        rest = f" (and {len(contradicted) - 1} more like it)" if len(contradicted) > 1 else ""
        yield f"{contradicted[0]}{rest}"
    if population.stale:
        yield f"stale and not ranked: {pluralize(len(population.stale), 'older result')}; `lineage` shows them"
    tries = [trial for trial in population.trials if trial.origin is not Origin.SEED and not trial.repeats]
    reasons = Counter(why_unranked(trial) for trial in tries if trial.score_us is None)
    if reasons:
        most, times = reasons.most_common(1)[0]
        shared = f", {times} of them: {truncate(most, _SHARED)}" if times > 1 else ""
        yield f"{reasons.total()} of {pluralize(len(tries), 'experiment')} failed{shared}"
    if held and not held.wrong:
        yield claimed.held_out


def show_spending(console: Console, population: Population, total: Cost) -> None:
    """Print a row for each improvement, and the cost of the whole run, per experiment and per improvement.

    total: of all recorded model calls, even without an experiment.
    """
    improvements = spending.improvements(population)
    trials = sum(trial.origin is not Origin.SEED for trial in (*population.stale, *population.trials))
    if improvements:
        rows = [
            {
                "kernel": row.trial.id,
                "µs": format_us(population.time_us(row.trial) or 0.0),
                "gain": "" if row.gain_percent is None else f"{percent(row.gain_percent)} %",
                "experiments": str(row.trials),
                "cost": spending.price(row.cost),
            }
            for row in improvements
        ]
        console.print(grid(console, rows, ("kernel", "cost"), title="improvements"))
    if spending.price(total):
        words = [f"cost of the run so far: {spending.price(total)}"]
        if trials:
            words.append(f"an experiment {spending.price(total, trials)}")
        if improvements:
            words.append(f"an improvement {spending.price(total, len(improvements))} ({len(improvements)} so far)")
        if total.tokens_cached:
            share = f"{100 * total.cached_share:.0f} % of the prompts' tokens"
            price = f", for ${total.usd_cached:.4f}" if total.usd_cached else ""
            words.append(f"{share} came out of the provider's cache{price}")
        say(console, "; ".join(words))


def show_calibration(console: Console, population: Population) -> None:
    """Print the result of `calibration_rows`. Prints nothing without predictions."""
    if rows := calibration_rows(population):
        first, title = ("designed by",), "predicted and measured gains"
        least = ("ranges should", "in range", "accepted")
        console.print(grid(console, rows, first, first, least, 8, title=title, caption=_CAPTION))


def calibration_rows(population: Population) -> list[dict[str, str]]:
    """Return a row for each designer, for the terminal and the page: its predicted and measured gains."""
    rows = []
    for row in calibration.calibrations(population):
        wide = "" if row.width_factor is None else f", x{row.width_factor:.2g} wide"
        cells = {
            "designed by": row.by or "not recorded",
            "experiments": str(row.experiments),
            "accepted": _share(row.accepted, row.experiments),
            "in range": _share(row.held, row.accepted),
            "predicted": "-" if row.range_percent is None else f"{' to '.join(map(percent, row.range_percent))} %",
            "measured": "-" if row.measured_percent is None else f"{percent(row.measured_percent)} %",
            "ranges should": "too few" if row.shift_points is None else f"move {row.shift_points:+.1f}{wide}",
        }
        rows.append(cells)
    return rows


def _share(part: int, whole: int) -> str:
    if not whole:
        return "-"
    low, high = calibration.share(part, whole)
    return f"{part / whole:.0%} [{low:.0%}, {high:.0%}]"


def _scores(
    console: Console,
    problem: Problem,
    trials: list[Trial],
    claimed: Headline,
    approved: Mapping[str, Approval],
    left_out: int,
) -> Table:
    """Return a row for each kernel: its time, and its speed-up over the baseline, as of one moment.

    A narrow window has fewer of the cases, and no intervals.
    """
    cases = [case.name for case in problem.benchmarks][:_CASES]
    scale, over = claimed.known.scale, f"x {baseline_name(claimed.over)}" if claimed.over and claimed.row else ""
    title = f"{problem.name}: µs per call, lower is better"
    none_ranked = all(trial.evaluation and trial.evaluation.why_unranked for trial in trials)
    for until in (" over ", " ["):
        rows = []
        for trial in trials:
            standing, timings = claimed.standing(trial), scale.times_us(trial.id)
            doubt = "" if none_ranked else claimed.why_unranked(trial)
            name = " ".join(filter(None, (trial.id, trial.name, standing)))
            cells = {
                "kernel": "\n".join([name, *_notes(trial, approved.get(trial.id), doubt)]),
                problem.score_name: format_us(score) if (score := scale.time_us(trial.id)) else trial.verdict,
                over: claimed.ratio(trial).partition(until)[0] if over else "",
                "cost": trial.cost.dollars(4),
                **{case: format_us(timings[case]) if case in timings else "" for case in cases},
            }
            rows.append({key: Text(text, "bold" if trial is claimed.best else "") for key, text in cells.items()})
        table = grid(console, rows, ("kernel",), ("kernel",), cases[::-1], _NAME, title=title)
        if fits_window(console, table):
            break
    heads = {str(column.header) for column in table.columns}
    timed = {name for trial in trials for name in scale.times_us(trial.id)}
    hidden = [case.name for case in problem.benchmarks if case.name in timed - heads]
    best_us = scale.time_us(claimed.best.id) or 0.0
    faster = [trial.id for trial in trials if (scale.time_us(trial.id) or best_us) < best_us]
    remarks = (
        _ONE_MOMENT if claimed.row else "",
        _AHEAD.format(", ".join(faster), claimed.best.id) if faster else "",
        "none of them is ranked" if none_ranked else "",
        f"not shown: {', '.join(hidden)}" if hidden else "",
        f"{pluralize(left_out, 'other kernel')} not shown" if left_out else "",
    )
    table.caption = "; ".join(filter(None, remarks)) or None
    return table


def _notes(trial: Trial, approval: Approval | None, doubt: str) -> list[str]:
    held = trial.held_out
    wrong = str(held) if held and held.wrong else ""
    return list(filter(None, (str(approval or ""), "not ranked" if doubt else "", wrong)))
