"""Everything that a page says of one run, as plain data that JSON can hold."""

import difflib
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console

from ksflow.lineage import Lineage
from ksflow.notes import calibration
from ksflow.records import (
    Evaluation,
    Explanation,
    Json,
    Origin,
    Population,
    Problem,
    Trial,
    base_of,
    plain,
    speedup,
)
from ksflow.report import evidence, explanation, spending
from ksflow.report.headline import Headline, called, headline, known_baselines
from ksflow.report.page.lanes import lanes
from ksflow.report.words import recorded

_WIDTH = 110
"""Columns of the evidence as text."""
_CONTEXT = 3
"""Lines around a change, as difflib has them."""
_Source = tuple[str, str, Explanation | None]
"""What the details of a trial are made of: its commit, its base's, its explanation."""
_PLACE = re.compile(r"([-+])(\d+)")


def run_facts(lineage: Lineage, problem: Problem | None = None) -> Json:
    """The facts of a run, see `RunFacts`."""
    return RunFacts(lineage, problem).read()


class RunFacts:
    """The facts of a run whose verdicts are taken as they are on record. What does not change is worked out once.

    problem: says which seeds are baselines, where the record is from before that was kept.
    """

    def __init__(self, lineage: Lineage, problem: Problem | None = None) -> None:
        self._lineage, self._problem = lineage, problem
        self._details: dict[str, tuple[_Source, Json]] = {}

    def read(self, details: bool = True) -> Json:
        """The facts as they are now; without the details of each trial, where nobody needs them. LineageError."""
        lineage = self._lineage
        lineage.expect_as_recorded()
        everything = lineage.all_trials()
        population = lineage.known
        baselines = known_baselines(population, self._problem.seeds if self._problem else ())
        best, claimed = population.best, headline(population, baselines)
        spent = lineage.spent()
        dates = lineage.judged_at(trial.id for trial in everything)
        explained = {one.id: found for one in everything if (found := lineage.explanation(one.id))}
        return {
            "problem": lineage.problem,
            "run": lineage.run,
            "headline": str(claimed) if claimed else "no kernel was accepted",
            "start": claimed.start if claimed else "",
            "winner": best.id if best else "",
            "winner_commit": lineage.commit_of(best.id) if best else "",
            "repository": str(lineage.store.path),
            "trust": _trust(best),
            "trials": _trials(everything, population, dates, claimed),
            "details": self._all_details(everything, explained) if details else {},
            "baselines": {one.id: called(one) for one in baselines},
            "cases": _cases(baselines, claimed),
            "story": [
                step | {"features": explanation.present(explained[step["id"]]) if step["id"] in explained else ""}
                for step in _story(best, population)
            ],
            "explanation": explanation.lines(explained[best.id], known=True) if best and best.id in explained else [],
            "predictions": _predictions(population),
            "calibration": [asdict(row) for row in calibration.calibrations(population)],
            "improvements": [
                {"id": row.trial.id, "gain_percent": row.gain_percent, "trials": row.trials, "usd": row.cost.usd}
                for row in spending.improvements(population)
            ],
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
        }

    def _all_details(self, everything: Sequence[Trial], explained: Mapping[str, Explanation]) -> Json:
        """What a click on each trial shows."""
        by_id = {trial.id: trial for trial in everything}
        found: dict[str, tuple[_Source, Json]] = {}
        for trial in everything:
            base, text = by_id.get((*trial.parents, "")[0]), explained.get(trial.id)
            source = self._lineage.commit_of(trial.id), self._lineage.commit_of(base.id) if base else "", text
            known = self._details.get(trial.id)
            found[trial.id] = known if known and known[0] == source else (source, _details(trial, base, text))
        self._details = found
        return {name: details for name, (_, details) in found.items()}


def _trials(
    everything: Iterable[Trial], population: Population, dates: Mapping[str, int], claimed: Headline | None
) -> list[Json]:
    """A row for each trial in the order of ids, with its place in the graph and the best so far. Times are on one scale
    (`Headline.scale`)."""
    ordered = sorted(everything, key=lambda trial: trial.id)
    place = {trial.id: at for at, trial in enumerate(ordered)}
    bases = [place.get(trial.parents[0]) if trial.parents else None for trial in ordered]
    best_after = {t.id: found for t, found in zip(population.trials, population.best_so_far, strict=True)}
    rows: list[Json] = []
    best: Trial | None = None
    usd = 0.0
    trunk = {place[one.id] for one in _ancestors(population.best, population)}
    for trial, lane in zip(ordered, lanes(bases, trunk), strict=True):
        best = best_after.get(trial.id, best)
        usd += trial.cost.usd
        found = trial.evaluation
        gain = _gain(trial, population)
        rows.append(
            {
                "id": trial.id,
                "origin": trial.origin.value,
                "parents": list(trial.parents),
                "lane": lane,
                "verdict": recorded(trial),
                "stale": trial.stale,
                "unranked": found.unranked if found else "",
                "why": trial.failure or (found.reason if found else ""),
                "us": _us(trial, claimed),
                "ratio": claimed.ratio(trial) if claimed else "",
                "best": best.id if best else "",
                "best_us": _us(best, claimed) if best else None,
                "idea": trial.experiment.description if trial.experiment else trial.name,
                "predicted": list(trial.experiment.gain_percent) if trial.experiment else None,
                "gain": gain,
                "usd": usd,
                "at": dates.get(trial.id),
                "by": trial.by,
            }
        )
    return rows


def _us(trial: Trial, claimed: Headline | None) -> float | None:
    """Its score as of the moment in which the winner was timed, where that is known."""
    score = trial.evaluation.score_us if trial.evaluation else None
    return score * claimed.scale(trial) if score and claimed and not trial.stale else score


def _gain(trial: Trial, population: Population) -> float | None:
    base = base_of(trial, population.by_id)
    found = speedup(trial, base) if base else None
    return round(found.gain_percent, 2) if found else None


def _details(trial: Trial, base: Trial | None, explained: Explanation | None) -> Json:
    """What a click on a trial shows."""
    before = base.kernel.files if base and base.kernel else {}
    after = trial.kernel.files if trial.kernel else {}
    return {
        "evidence": _evidence(trial.evaluation) if trial.evaluation else "",
        "explanation": "\n".join(explanation.lines(explained)) if explained else "",
        "rubric": trial.experiment.rubric if trial.experiment else "",
        "diff": "".join(_changes(before, after)) if after and before else "",
        "source": "" if before else "\n".join(f"{name}\n{body}" for name, body in after.items()),
    }


def _evidence(found: Evaluation) -> str:
    """As the terminal shows it, without colours."""
    text = io.StringIO()
    plain_text: Mapping[str, Any] = {"markup": False, "highlight": False, "emoji": False, "color_system": None}
    evidence.show(Console(file=text, width=_WIDTH, height=_WIDTH, _environ={}, **plain_text), found)
    return text.getvalue()


def _changes(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    for name in sorted({*before, *after}):
        old, new = (files.get(name, "").splitlines(keepends=True) for files in (before, after))
        if old != new:
            yield from _diff(old, new, f"base/{name}", name)


def _diff(old: list[str], new: list[str], old_name: str, new_name: str) -> Iterator[str]:
    """As `difflib.unified_diff` has it; what is the same at both ends is not searched, most of a kernel as a rule."""
    same = next((at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    start = max(same - _CONTEXT, 0)
    rest = zip(reversed(old[same:]), reversed(new[same:]), strict=False)
    tail = next((at for at, (a, b) in enumerate(rest) if a != b), min(len(old), len(new)) - same)
    cut = max(tail - _CONTEXT, 0)
    lines = difflib.unified_diff(old[start : len(old) - cut], new[start : len(new) - cut], old_name, new_name)
    for line in lines:
        yield _PLACE.sub(lambda found: f"{found[1]}{int(found[2]) + start}", line) if line.startswith("@@") else line


def _cases(baselines: tuple[Trial, ...], claimed: Headline | None) -> list[Json]:
    """A row per timed case of the winner: its time, those of the baselines, the roofline."""
    if claimed is None or claimed.best.evaluation is None:
        return []
    best, scale = claimed.best.evaluation, claimed.scale
    timed = {row.case: row for row in best.evidence.timed}
    near = {row.case: plain(row) for row in best.evidence.roofline}
    others = {
        one.id: {t.case: t.us * scale(one) for t in one.evaluation.timings} for one in baselines if one.evaluation
    }
    return [
        {
            "case": timing.case,
            "us": timing.us,
            "interval_us": timed[timing.case].interval_us if timing.case in timed else None,
            "baselines": {name: times.get(timing.case) for name, times in others.items()},
            "roofline": near.get(timing.case),
        }
        for timing in best.timings
    ]


def _story(best: Trial | None, population: Population) -> list[Json]:
    """The winner's ancestors from the first, each with what else was tried on its base and did not get there."""
    chain = _ancestors(best, population)[::-1]
    steps = []
    for base, trial in zip([None, *chain], chain, strict=False):
        beside = [
            one
            for one in population.trials
            if base and one is not trial and base_of(one, population.by_id) is base and one.origin is not Origin.SEED
        ]
        steps.append({"id": trial.id, "beside": [one.id for one in beside]})
    return steps


def _ancestors(trial: Trial | None, population: Population) -> list[Trial]:
    """A trial, its base, that one's base, and so on."""
    chain: list[Trial] = []
    while trial is not None and trial not in chain:
        chain.append(trial)
        trial = base_of(trial, population.by_id)
    return chain


def _predictions(population: Population) -> list[Json]:
    return [
        {"id": one.trial, "by": one.by, "range": list(one.experiment.gain_percent), "gain": one.gain_percent}
        for one in calibration.predictions(population)
    ]


def _trust(best: Trial | None) -> Json:
    """What the winner's verdict holds for, and what it rests on."""
    found = best.evaluation if best else None
    if found is None:
        return {}
    return {
        "judge": found.judge,
        "target": found.target,
        "isolation": found.isolation,
        "problem": found.problem,
        "unranked": found.unranked,
        "control": plain(found.claim.control) if found.claim else None,
        "upstream": found.evidence.upstream or None,
    }
