"""Which stale trials are judged again before a search goes on: seeds, and the leaders of wherever they were judged.

A trial that was judged again keeps what it was before in its evidence (`renewed`), so nobody judges a leader's
runners-up again at every start. The rest stay stale.
"""

import math
from collections import defaultdict

from ksflow.records import EarlierVerdict, Evaluation, Origin, Population, Trial

LEADERS = 8
"""So many of the best that one judge said of one problem on one machine."""


def due(population: Population, seeds: set[str]) -> tuple[Trial, ...]:
    """The stale trials to judge again, seeds (also by their kernels' digests) first, then by their old scores."""
    planted = tuple(trial for trial in population.stale if _is_seed(trial, seeds))
    groups: dict[tuple[str, ...], list[tuple[float, str]]] = defaultdict(list)
    for trial in (*population.stale, *population.trials):
        was = _was(trial)
        if was and not _is_seed(trial, seeds):
            groups[was.problem, was.judge, was.target].append((was.score_us or math.inf, trial.id))
    leaders = {name for group in groups.values() for _, name in sorted(group)[:LEADERS]}
    others = [trial for trial in population.stale if trial.id in leaders]
    return (*planted, *sorted(others, key=lambda t: (t.evaluation.score_us if t.evaluation else None) or math.inf))


def before(evaluation: Evaluation) -> EarlierVerdict:
    """What an evaluation was, for the evidence of the one that replaces it."""
    return EarlierVerdict(
        verdict=evaluation.verdict.value,
        score_us=evaluation.score_us,
        problem=evaluation.problem,
        judge=evaluation.judge,
        target=evaluation.target,
    )


def _was(trial: Trial) -> EarlierVerdict | None:
    """What was once said of a trial, if it was accepted then."""
    evaluation = trial.evaluation
    if evaluation is None:
        return None
    was = before(evaluation) if trial.stale else evaluation.evidence.renewed
    return was if was and was.score_us else None


def _is_seed(trial: Trial, seeds: set[str]) -> bool:
    return trial.origin is Origin.SEED or (trial.kernel is not None and trial.kernel.digest in seeds)
