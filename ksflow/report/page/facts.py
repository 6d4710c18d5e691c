"""All facts of a page on one run, as JSON values."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

from ksflow.errors import one_line, pluralize
from ksflow.kernels.hardware import roofline
from ksflow.kernels.problem.texts import model_region
from ksflow.lineage import Lineage
from ksflow.loop.schedule import Schedule
from ksflow.notes import calibration
from ksflow.records import (
    Evaluation,
    Explanation,
    Json,
    Origin,
    Population,
    Problem,
    Trial,
    as_json,
    base_of,
    by_number,
)
from ksflow.records.evidence import RESOLVED, kernel_cores
from ksflow.report import explanation, proof
from ksflow.report.headline import Headline, baseline_name, headline, known_baselines
from ksflow.report.page.details import trial_details
from ksflow.report.tables import calibration_rows
from ksflow.report.words import day, recorded_verdict

_BUDGETS = ("evaluations", "minutes", "usd")  # budgets of a call whose use the page of a running run can show
_PYTORCH = "PyTorch"
_WORDS = 140  # letters of the texts shown for every trial; the details have all
_STATEMENT = 1500  # letters of a problem's statement
_NO_WINNER: Json = {"headline": "no kernel was accepted", "claim": "", "tied": []}
_NO_WINNER |= {"start": "", "held_out": "", "winner": "", "best": "", "best_name": ""}
_NO_WINNER |= {"winner_commit": "", "trust": {}, "over": [], "cases": [], "story": [], "explanation": []}
_Source = tuple[str, str, Explanation | None]  # input of a trial's details: its commit, its base's, its explanation


def run_facts(lineage: Lineage, problem: Problem | None = None) -> Json:
    """Return the facts of a run, see `RunFacts`."""
    return RunFacts(lineage, problem).read()


class RunFacts:
    """The facts of a run, with the verdicts on record. Results that do not change are cached.

    problem: tells which seeds are baselines, for records from before that was kept.
    """

    def __init__(self, lineage: Lineage, problem: Problem | None = None) -> None:
        self._lineage, self._problem = lineage, problem
        region = (problem and model_region(problem)) or {}
        heading = "The calls that were watched" if "function" in region else "The model by its regions"
        self._profile = {**region["profile"], "heading": heading} if region.get("profile") else None
        self._details: dict[str, tuple[_Source, Json]] = {}

    def read(self, details: bool = True) -> Json:
        """Return the current facts, without each trial's details if `details` is False. Raises LineageError."""
        lineage = self._lineage
        lineage.expect_as_recorded()
        everything = lineage.all_trials()
        population = lineage.last_population
        baselines = known_baselines(population, self._problem.seeds if self._problem else ())
        claimed = headline(population, baselines)
        spent, settings = lineage.total_cost(), lineage.made_with.get("settings") or {}
        dates = lineage.judged_at(trial.id for trial in everything)
        explained = {trial.id: account for trial in everything if (account := lineage.explanation(trial.id))}
        proved = lineage.proof()
        return {
            "problem": lineage.problem,
            "run": lineage.run,
            "repository": str(lineage.store.path),
            "about": _about(self._problem),
            "session": _session(*lineage.session_start, everything, dates, settings),
            "trials": _trials(everything, population, claimed, dates, minutes(dates.values(), lineage.sessions)),
            "details": self._all_details(everything, explained) if details else {},
            "baselines": {baseline.id: baseline_name(baseline) for baseline in baselines},
            "profile": self._profile,
            "proof": proof.facts(*proved) if proved else None,
            "calibration": [asdict(row) for row in calibration.calibrations(population)],
            "predictions": calibration_rows(population),
            "notes": [
                {"title": note.title, "text": note.text, "sources": list(note.sources), "status": note.status.value}
                for note in lineage.notes()
            ],
            "costs": [
                {"stage": stage, "model": model, "usd": cost.usd, "tokens": cost.tokens, "calls": cost.calls}
                | {"cached": cost.tokens_cached, "usd_cached": cost.usd_cached}
                for (stage, model), cost in sorted(lineage.costs().items())
            ],
            "spent": {"usd": spent.usd, "tokens": spent.tokens, "calls": spent.calls},
            "approved": {name: str(approval) for name, approval in lineage.approvals().items()},
            **_NO_WINNER,
            **(self._winner(claimed, baselines, explained) if claimed else {}),
        }

    def _winner(self, claimed: Headline, baselines: Sequence[Trial], explained: Mapping[str, Explanation]) -> Json:
        best, settings = claimed.best, self._lineage.made_with.get("settings") or {}
        assert best.evaluation
        return {
            "headline": str(claimed),
            "claim": claimed.claim,
            "tied": [trial.id for trial in claimed.known.ties],
            "start": claimed.start,
            "held_out": claimed.held_out,
            "winner": best.id if claimed.over is not best else "",
            "best": best.id,
            "best_name": "the winner" if claimed.over is not best else baseline_name(best),
            "winner_commit": self._lineage.commit_of(best.id),
            "trust": _trust(best.evaluation, self._lineage.judged_at([best.id])[best.id], settings),
            "over": _over(claimed, baselines),
            "cases": _cases(best.evaluation, baselines, claimed),
            "story": _story(claimed, explained),
            "explanation": explanation.explanation_lines(explained[best.id], known=True)
            if best.id in explained
            else [],
        }

    def _all_details(self, everything: Sequence[Trial], explained: Mapping[str, Explanation]) -> Json:
        by_id = {trial.id: trial for trial in everything}
        entries: dict[str, tuple[_Source, Json]] = {}
        for trial in everything:
            base, text = by_id.get((*trial.parents, "")[0]), explained.get(trial.id)
            source = self._lineage.commit_of(trial.id), self._lineage.commit_of(base.id) if base else "", text
            known = self._details.get(trial.id)
            entries[trial.id] = known if known and known[0] == source else (source, trial_details(trial, base, text))
        self._details = entries
        return {name: details for name, (_, details) in entries.items()}


def minutes(dates: Iterable[int], sessions: Iterable[int]) -> dict[int, float]:
    """Return date of a result -> minutes of work until then, since the first session was opened.

    The time between the last result before a session and that session's opening does not count.
    """
    worked, before, found = 0, 0, dict[int, float]()
    for date, opens in sorted([*((date, False) for date in set(dates)), *((date, True) for date in sessions)]):
        worked += date - before if before and not opens else 0
        before, found[date] = date, worked / 60
    return found


def _trials(
    everything: Iterable[Trial],
    population: Population,
    claimed: Headline | None,
    dates: Mapping[str, int],
    worked: Mapping[int, float],
) -> list[Json]:
    """Return a row for each trial in the order of ids, with the best so far. Times are on the population's scale."""
    best_after = {t.id: best for t, best in zip(population.trials, population.best_so_far, strict=True)}
    rows: list[Json] = []
    best: Trial | None = None
    usd = 0.0
    for trial in sorted(everything, key=lambda trial: by_number(trial.id)):
        best = best_after.get(trial.id, best)
        usd += trial.cost.usd
        evaluation, base = trial.evaluation, base_of(trial, population.by_id)
        gain, ranked = population.speedup(trial, base), claimed and not claimed.why_unranked(trial)
        rows.append(
            {
                "id": trial.id,
                "origin": trial.origin.value,
                "parents": list(trial.parents),
                "verdict": recorded_verdict(trial),
                "repeat": bool(trial.repeats),
                "stale": trial.stale,
                "unranked": evaluation.why_unranked if evaluation and not ranked else "",
                "why": one_line(trial.reason, _WORDS),
                "us": population.time_us(trial),
                "best": best.id if best else "",
                "best_us": population.time_us(best) if best else None,
                "idea": one_line(trial.idea, _WORDS),
                "predicted": list(trial.experiment.gain_percent) if trial.experiment else None,
                "gain": round(gain.gain_percent, 2) if gain else None,
                "usd": usd,
                "at": dates.get(trial.id),
                "minutes": worked.get(dates.get(trial.id, 0)),
                "by": trial.by,
            }
        )
    return rows


def _cases(best: Evaluation, baselines: Iterable[Trial], claimed: Headline) -> list[Json]:
    timed = {row.case: row for row in best.evidence.timed}
    near = {row.case: as_json(row) for row in best.evidence.roofline}
    scale = claimed.known.scale
    others, own = {baseline.id: scale.times_us(baseline.id) for baseline in baselines}, scale.times_us(claimed.best.id)
    return [
        {
            "case": timing.case,
            "us": own.get(timing.case, timing.us),
            "interval_us": timed[timing.case].interval_us if timing.case in timed else None,
            "baselines": {name: times.get(timing.case) for name, times in others.items()},
            "roofline": near.get(timing.case),
        }
        for timing in best.timings
    ]


def _story(claimed: Headline, explained: Mapping[str, Explanation]) -> list[Json]:
    known = claimed.known
    return [
        {
            "id": trial.id,
            "idea": trial.idea,
            "gain": gain.ratio if gain else None,
            "tie": bool(gain and gain.low <= RESOLVED and gain.high >= 1 / RESOLVED),
            "came": [
                *([gain.describe(base.id)] if base and gain else []),
                *filter(None, [claimed.ratio(trial)]),
            ],
            "beside": [
                t.id
                for t in known.trials
                if base and t is not trial and base_of(t, known.by_id) is base and t.origin is not Origin.SEED
            ],
            "features": explanation.present(explained[trial.id]) if trial.id in explained else "",
        }
        for trial, base, gain in claimed.steps
    ]


def _about(problem: Problem | None) -> Json | None:
    """Return the problem's title, its statement up to the first section, and its arguments; None without a problem."""
    if problem is None:
        return None
    body = problem.statement.lstrip().removeprefix("# ").partition("\n")[2]
    args = [f"{arg.name} {arg.shape and f'[{arg.shape}] '}{arg.dtype}, {arg.role}" for arg in problem.args]
    return {"title": problem.title, "statement": body.partition("\n#")[0].strip()[:_STATEMENT], "args": args}


def _over(claimed: Headline, baselines: Iterable[Trial]) -> list[Json]:
    if claimed.over is claimed.best:
        return []
    pairs = [(claimed.over, claimed.row)] if claimed.over else []
    others = [
        baseline for baseline in baselines if baseline_name(baseline) == _PYTORCH and baseline is not claimed.over
    ]
    pairs += [(baseline, claimed.known.speedup(claimed.best, baseline)) for baseline in others]
    return [
        {"name": baseline_name(baseline), "speedup": row.ratio, "low": row.low, "high": row.high, "ranked": row.ranked}
        for baseline, row in pairs
        if row
    ]


def _session(began: int, after: str, trials: Iterable[Trial], dates: Mapping[str, int], settings: Json) -> Json:
    """Return the budgets of the run's newest call, and the use of its experiments: those with ids after `after`."""
    loop = settings.get("loop") or {}
    options = {name: loop[name] for name in _BUDGETS if isinstance(loop.get(name, ""), int | float | None)}
    judged = [trial for trial in trials if (trial.evaluation or trial.failure) and not trial.repeats]
    after = after or max((trial.id for trial in judged if dates[trial.id] < began), key=by_number, default="")
    mine = [trial for trial in judged if trial.origin is not Origin.SEED and by_number(trial.id) > by_number(after)]
    first = min((dates[trial.id] for trial in mine), default=began)
    seeds = (dates[trial.id] for trial in judged if trial.origin is Origin.SEED and began <= dates[trial.id] <= first)
    return {
        "began": began,
        "searching": max(seeds, default=began),
        "caps": {name: most for name, most in Schedule(**options).caps.items() if name in _BUDGETS},
        "used": {"evaluations": len(mine), "usd": sum(trial.cost.usd for trial in mine)},
    }


def _trust(evaluation: Evaluation, judged: int, settings: Json) -> Json:
    """Return what the winner's verdict applies to, and its evidence.

    The machine is `AMD EPYC, 2 cores`, as the judge or the run's settings name it, else the target's fingerprint.
    """
    evidence = evaluation.evidence
    chip = evidence.device or (settings.get("target") or {}).get("chip") or evaluation.target
    cores = {*evidence.cores.get("judge", ()), *kernel_cores(evidence.cores)}
    return {
        "judge": evaluation.judge,
        "target": evaluation.target,
        "machine": str(chip) if evidence.clocks or not cores else f"{chip}, {pluralize(len(cores), 'core')}",
        "date": day(judged),
        "isolation": evaluation.isolation,
        "problem": evaluation.problem,
        "unranked": evaluation.why_unranked,
        "control": as_json(evaluation.claim.control) if evaluation.claim else None,
        "upstream": evidence.upstream or None,
        "roofline": roofline.share(evidence.roofline, evidence.weights),
    }
