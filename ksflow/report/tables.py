"""Tables of a run: the best kernels, costs, calibration."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ksflow.errors import counted
from ksflow.lineage import Lineage
from ksflow.loop.schedule import Outcome
from ksflow.notes import calibration
from ksflow.records import Approval, Cost, Evidence, Json, Origin, Population, Problem, Trial
from ksflow.report import evidence, spending
from ksflow.report.headline import Headline, called, of_outcome
from ksflow.report.scores import figures
from ksflow.report.words import cut, fits, grid, not_ranked, say, tried, us, why

_CASES = 6
_NAME = 16  # least columns of a kernel's name
_STEP, _SHARED = 40, 120  # columns of a change that led to the winner, and of the most frequent reason of failures
_CONTRADICTIONS = 3  # contradicted comparisons that are shown
_STEPS = 4  # changes leading to the winner that are shown
_ONE_MOMENT = "µs: as of the newest confirmation; every time follows from ratios that were timed side by side."
_CAPTION = "Gains are over the base. In range, predicted and measured: of the accepted alone; the last two are medians."


def summary(outcome: Outcome, problem: Problem, lineage: Lineage) -> Json:
    """Return figures of the whole run, which sweeps and suites compare."""
    known, best, claimed, spent = outcome.population, outcome.best, of_outcome(outcome), lineage.spent()
    tries = [trial for trial in known.trials if trial.origin is not Origin.SEED]
    order = [trial.id for trial in tries]
    return {
        "problem": problem.name,
        "run": lineage.run,
        "best": best.id,
        "approved": {name: str(approval) for name, approval in lineage.approvals().items()},
        "unranked": best.evaluation.unranked if best.evaluation else "",
        "stale": len(known.stale),
        "score_us": outcome.score_us,
        "speedup": claimed.speedup,
        "over": called(claimed.over) if claimed.over else "",
        "tied": [trial.id for trial in known.tied],
        "headline": str(claimed),
        "held_out": claimed.held_out,
        "trials": len(tries),
        "trials_to_best": order.index(best.id) + 1 if best.id in order else 0,
        "correct": sum(trial.score_us is not None for trial in tries) / len(tries) if tries else None,
        "verdicts": dict(Counter(trial.verdict for trial in tries).most_common()),
        "usd": spent.usd,
        "tokens": spent.tokens,
        "improvements": len(spending.improvements(known)),
        "calibration": [asdict(row) for row in calibration.calibrations(known)],
        "wall_s": round(outcome.wall_s, 1),
        "took_s": {part: round(seconds, 1) for part, seconds in outcome.took.items()},
        "reason": outcome.reason,
        "figures": figures(known, problem),
    }


def show_outcome(console: Console, outcome: Outcome, problem: Problem, lineage: Lineage, typed: str = "") -> None:
    """Print the end of a run: the best kernels beside the baselines, the winner and its commit, further commands.

    typed: the words of a command line that name the problem; by default its name.
    """
    best, baselines, known, claimed = outcome.best, outcome.baselines, outcome.population, of_outcome(outcome)
    others = [t for t in known.ranked if t is not best and t not in baselines]
    shown = [*([] if best in baselines else [best]), *others[:4]]
    console.print(_scores(console, problem, [*shown, *baselines], claimed, lineage.approvals()))
    say(console, *(f"{trial.id} is {doubt}" for trial in shown if (doubt := not_ranked(trial.evaluation))))
    rate = 60 * outcome.judged / outcome.search_s if outcome.search_s else 0.0
    work = f" ({rate:.0f} a minute; the device was busy {outcome.busy:.0%})" if outcome.judged else ""
    repeats = f", {counted(outcome.repeats, 'repeat')} answered from the record" if outcome.repeats else ""
    searched = f"{counted(outcome.judged, 'experiment')} in {outcome.search_s:.0f} s of search{work}{repeats}"
    say(console, f"{', '.join(filter(None, (searched, outcome.cost.dollars())))}; stopped: {outcome.reason}")
    show_spending(console, known, lineage.spent())
    if known.stale:
        say(console, f"stale and not ranked: {counted(len(known.stale), 'older result')}; `lineage` shows them")
    say(console, *_confirmed(best, known), *filter(None, [_no_gain(best, known), claimed.unconfirmed]))
    say(console, *map(str, known.scale.contradictions[:_CONTRADICTIONS]))
    say(console, str(claimed), style="bold")
    name = lineage.branch_of(best.id)
    facts = (claimed.start, claimed.held_out, *_learnt(claimed), f"branch {name}")
    say(console, *(f"  {line}" for line in (*facts, f"commit {lineage.commit_of(best.id)}") if line))
    git, run = f"git -C {lineage.store.path}", f"{typed or f'problem={problem.name}'} run={lineage.run}"
    shows = (f"{git} log --graph --oneline {name}", f"{git} show {name}")
    for command in (*shows, f"python -m ksflow lineage {run}", f"python -m ksflow lineage show {best.id} {run}"):
        console.print(f"  {command}", soft_wrap=True, no_wrap=True, markup=False)


def _learnt(claimed: Headline) -> Iterator[str]:
    """Yield the changes that led to the winner with the largest gains, as timed beside their bases; and the number of
    failed experiments, with their most frequent reason."""
    known = claimed.known
    steps = [(trial, gain) for trial, _, gain in claimed.steps[::-1] if gain and not gain.tie]
    if steps := sorted(steps, key=lambda step: -step[1].ratio):
        changes = [f"{tried(t, known.by_id, _STEP)} x{gain.ratio:.2f} ({t.id})" for t, gain in steps[:_STEPS]]
        rest = f", and {counted(len(steps) - _STEPS, 'step')} more" if len(steps) > _STEPS else ""
        yield f"made by {', '.join(changes)}{rest}"
    tries = [trial for trial in known.trials if trial.origin is not Origin.SEED]
    reasons = Counter(why(trial) for trial in tries if trial.score_us is None)
    if reasons:
        most, times = reasons.most_common(1)[0]
        shared = f"; {times} of them: {cut(most, _SHARED)}" if times > 1 else ""
        yield f"{reasons.total()} of {counted(len(tries), 'experiment')} came to nothing{shared}"


def show_spending(console: Console, population: Population, total: Cost, every: bool = False) -> None:
    """Print the cost of the whole run, per experiment and per improvement; `every` improvement in a row of its own.

    total: of all recorded model calls, even without an experiment.
    """
    improvements = spending.improvements(population)
    trials = sum(trial.origin is not Origin.SEED for trial in (*population.stale, *population.trials))
    if every and improvements:
        rows = [
            {
                "kernel": row.trial.id,
                "µs": us(population.us(row.trial) or 0.0),
                "gain": "" if row.gain_percent is None else f"{row.gain_percent:+.0f} %",
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
    """Print a row for each designer: its predicted and measured gains. Prints nothing without predictions."""
    rows = []
    for row in calibration.calibrations(population):
        wide = "" if row.width_factor is None else f", x{row.width_factor:.2g} wide"
        cells = {
            "designed by": row.by or "not recorded",
            "experiments": str(row.experiments),
            "accepted": _share(row.accepted, row.experiments),
            "in range": _share(row.held, row.accepted),
            "predicted": "-" if row.range_percent is None else "{:+.1f} to {:+.1f} %".format(*row.range_percent),
            "measured": "-" if row.measured_percent is None else f"{row.measured_percent:+.1f} %",
            "ranges should": "too few" if row.shift_points is None else f"move {row.shift_points:+.1f}{wide}",
        }
        rows.append(cells)
    if rows:
        first, title = ("designed by",), "predicted and measured gains"
        least = ("ranges should", "in range", "accepted")
        console.print(grid(console, rows, first, first, least, 8, title=title, caption=_CAPTION))


def _share(part: int, whole: int) -> str:
    if not whole:
        return "-"
    low, high = calibration.share(part, whole)
    return f"{part / whole:.0%} [{low:.0%}, {high:.0%}]"


def _scores(
    console: Console, problem: Problem, trials: list[Trial], claimed: Headline, approved: Mapping[str, Approval]
) -> Table:
    """Return a row for each kernel: its time, and its speed-up over the baseline, as of one moment.

    A narrow window has fewer of the cases, and no intervals.
    """
    cases = [case.name for case in problem.benchmarks][:_CASES]
    scale, over = claimed.known.scale, f"x {called(claimed.over)}" if claimed.over and claimed.row else ""
    title, caption = f"{problem.name}: µs per call, lower is better", _ONE_MOMENT if claimed.row else None
    for until in (" over ", " ["):
        rows = []
        for trial in trials:
            place, timings = claimed.place(trial), scale.times_us(trial.id)
            name = " ".join(filter(None, (trial.id, trial.name, place)))
            cells = {
                "kernel": "\n".join([name, *_notes(trial, approved.get(trial.id))]),
                problem.score: us(score) if (score := scale.us(trial.id)) else trial.verdict,
                over: claimed.ratio(trial).partition(until)[0] if over else "",
                "cost": trial.cost.dollars(4),
                **{case: us(timings[case]) if case in timings else "" for case in cases},
            }
            rows.append({key: Text(text, "bold" if place else "") for key, text in cells.items()})
        table = grid(console, rows, ("kernel",), ("kernel",), cases[::-1], _NAME, title=title, caption=caption)
        if fits(console, table):
            break
    return table


def _notes(trial: Trial, approval: Approval | None) -> list[str]:
    evaluation, held = trial.evaluation, trial.held_out
    wrong = str(held) if held and held.wrong else ""
    return list(filter(None, (str(approval or ""), "not ranked" if evaluation and evaluation.unranked else "", wrong)))


def _confirmed(best: Trial, known: Population) -> Iterator[str]:
    record = best.evaluation.evidence if best.evaluation else Evidence()
    rows = [(row.moment, row.id, ratio) for row in record.against if (ratio := known.scale.ratio(best.id, row.id))]
    newest = max((moment for moment, _, _ in rows), default=0)
    for moment in sorted({moment for moment, _, _ in rows}, reverse=True):
        parts = [ratio.over(name) for at, name, ratio in rows if at == moment]
        how = "again side by side" if moment == newest and moment else f"side by side {evidence.when(moment)}"
        yield f"timed {how}: {best.id} is {', '.join(parts)}"


def _no_gain(best: Trial, population: Population) -> str:
    if best.origin is Origin.SEED and any(trial.origin is not Origin.SEED for trial in population.trials):
        return f"no experiment beat the seed {best.id} {best.name}".rstrip() + " for sure"
    return ""
