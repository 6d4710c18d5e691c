"""What a stage's answer was worth, from measurements: a score from 0 to 1 and what to say about it.

    selector   how near the best kernel made from its base comes to the best made from any base that there was
    designer   what the best of the picked experiments was judged to be worth, and how well their gains were predicted
    writer     what its kernel is judged to be worth beside its base
    verifier   how near the risk that it gives a kernel comes to what the judge said of that
    digester   how many figures and quotes are in what it read, less where it is long

A kernel is worth its reward (`ksflow.training.dataset.reward`), as a share of the highest. No model is asked for its
opinion, and words earn nothing: an experiment that nobody has judged is worth nothing, however it is put.
"""

import itertools
import re
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ksflow.errors import BudgetError, StageError
from ksflow.lineage.history import RoundSnapshot, RunHistory
from ksflow.loop import judging
from ksflow.protocols import Evaluator, Writer
from ksflow.records import (
    Evaluation,
    Experiment,
    Kernel,
    Note,
    Plan,
    Problem,
    Review,
    Selection,
    Trial,
    Verdict,
)
from ksflow.training.dataset import reward

VERSION = 3  # another one means that scores cannot be compared
Grade = tuple[float, str]  # a score from 0 to 1, and what is to be said about it
Grader = Callable[[Any], Grade]  # given what the stage makes of an answer
_ALIKE = 0.5  # shared words from which on two descriptions are of one experiment
_NEUTRAL = 0.5
_BRIEF, _LONG = 60, 300  # words of a note


UNRATED = {Verdict.TIMEOUT: reward.REJECTED[Verdict.CRASH], Verdict.UNTIMED: 0.5 + reward.SLOWEST}
"""Rewards by verdicts that training leaves out: one may be the machine's fault, the other lacks a time."""


@dataclass
class Judge:
    """Has kernels judged beside their bases: each pair once, one at a time, and at most `most` pairs."""

    evaluate: Evaluator
    most: int = 500
    asked: int = 0
    _known: dict[tuple[str, str, str], Evaluation] = field(default_factory=dict)

    def __call__(self, problem: Problem, kernel: Kernel, base: Trial) -> Evaluation:
        """Return the verdict on a kernel beside a base. Raises BudgetError."""
        name = (problem.name, kernel.digest, base.kernel.digest if base.kernel else "")
        if name not in self._known:
            if self.asked >= self.most:
                raise BudgetError(f"optimize.evaluations={self.most} used up")
            self.asked += 1
            self._known[name] = judging.verdict(problem, self.evaluate, kernel, (base,))
        return self._known[name]


class Measured(NamedTuple):
    """What a kernel, or an experiment, did to its base."""

    what: str  # in words: where that is known from
    gain_percent: float | None  # None where it brought no time
    worth: float  # from 0 to 1


Attempt = Callable[[RoundSnapshot, Selection, Experiment], Measured | None]
"""Says what an experiment did, or would do, to the base; None where nobody knows."""


def judged(problem: Problem, judge: Judge, kernel: Kernel, base: Trial) -> Measured:
    """Return what a kernel is worth; without a known gain as little as a slow one. Raises StageError, BudgetError."""
    evaluation = judge(problem, kernel, base)
    if evaluation.verdict is Verdict.HARNESS:
        raise StageError("evaluator", evaluation.reason)
    what = evaluation.verdict.value
    if not evaluation.accepted:
        return Measured(_verdict(evaluation), None, {**reward.REJECTED, **UNRATED}[evaluation.verdict] / reward.BEST)
    row = evaluation.versus(base.id)
    if row is None:
        return Measured(what, None, UNRATED[Verdict.UNTIMED] / reward.BEST)
    return Measured(what, 100 * (row.speedup - 1), reward.of_speedup(row.speedup) / reward.BEST)


def selector(history: RunHistory, snapshot: RoundSnapshot) -> Grader:
    """Grade selections by the fastest kernel ever made from the base, among the bases of that round."""
    fastest: dict[str, float] = {}
    population = history.final
    for base in snapshot.population.ranked:
        if times := [us for child in history.children(base.id) if (us := population.time_us(child)) is not None]:
            fastest[base.id] = min(times)
    best = min(fastest.values(), default=0.0)
    worth = {base: best / us for base, us in fastest.items()}
    prior = statistics.fmean(worth.values()) if worth else _NEUTRAL
    leader = f" That one was made from {min(fastest, key=lambda base: fastest[base])}." if fastest else ""

    def grade(selection: Selection) -> Grade:
        base = selection.base.id
        if base not in worth:
            return prior, (
                f"Nothing was made from base {base}, so what it is worth is unknown: it counts as the mean of the "
                f"others, {prior:.2f}.{leader}"
            )
        return worth[base], (
            f"The best kernel made from base {base} took {fastest[base]:.4g} us; the best made from any base that "
            f"there was took {best:.4g} us.{leader}"
        )

    return grade


def designer(snapshot: RoundSnapshot, attempt: Attempt) -> Grader:
    """Grade plans by the worth of the best picked experiment and by the predictions; 0 if none was judged."""

    def grade(plan: Plan) -> Grade:
        assert snapshot.selection is not None
        tried = [plan.experiments[index] for index in plan.picked]
        outcomes = [(experiment, attempt(snapshot, snapshot.selection, experiment)) for experiment in tried]
        best = max((of.worth for _, of in outcomes if of), default=0.0)
        right = statistics.fmean([_calibrated(*pair) for pair in outcomes])
        summary = f"Of 1: the best outcome {best:.2f}, predictions {right:.2f}."
        return 0.7 * best + 0.3 * right, "\n".join([summary, *itertools.starmap(_compared, outcomes)])

    return grade


def recorded_attempt(history: RunHistory) -> Attempt:
    """Return a function that looks up what the nearest recorded experiment on the base did, if any is near."""

    def attempt(snapshot: RoundSnapshot, selection: Selection, experiment: Experiment) -> Measured | None:
        near = [(_near(experiment, trial.experiment), trial) for trial in history.children(selection.base.id)]
        share, trial = max(near, key=lambda pair: (pair[0], pair[1].id), default=(0.0, None))
        worth = reward.relative_worth(trial, selection.base, history.final.scale) if trial and share >= _ALIKE else None
        if trial is None or worth is None:
            return None
        ratio = history.final.speedup(trial, selection.base)
        gain = ratio.gain_percent if ratio else None
        return Measured(f"as recorded in {trial.id}, {trial.verdict}", gain, worth.reward / reward.BEST)

    return attempt


def live_attempt(problem: Problem, judge: Judge, write: Writer) -> Attempt:
    """Return a function that has an experiment written and judged."""

    def attempt(snapshot: RoundSnapshot, selection: Selection, experiment: Experiment) -> Measured | None:
        try:
            kernel = write(problem, selection, experiment, snapshot.notes)
        except StageError as error:
            return Measured(f"it could not be written: {error.reason[:300]}", None, 0.0)
        return judged(problem, judge, kernel, selection.base)

    return attempt


def _near(experiment: Experiment, other: Experiment | None) -> float:
    if other is None:
        return 0.0
    if experiment.changes or other.changes:
        return float(dict(experiment.changes) == dict(other.changes))
    mine, theirs = (set(re.findall(r"[a-z0-9_]+", each.description.lower())) for each in (experiment, other))
    return len(mine & theirs) / len(mine | theirs) if mine | theirs else 0.0


def _calibrated(experiment: Experiment, measured: Measured | None) -> float:
    """Return 1 within the predicted range, less with the distance from it; 0 without a measured gain."""
    if measured is None or measured.gain_percent is None:
        return 0.0
    low, high = experiment.gain_percent
    off = max(low - measured.gain_percent, measured.gain_percent - high, 0.0)
    return 1 / (1 + off / 10 + (high - low) / 200)


def _compared(experiment: Experiment, measured: Measured | None) -> str:
    what = f"- {experiment.description[:160]!r}"
    if measured is None:
        return f"{what}: nobody has judged this, so it earns nothing"
    low, high = experiment.gain_percent
    did = "no time" if measured.gain_percent is None else f"{measured.gain_percent:+.1f} %"
    return f"{what}: predicted {low:g} to {high:g} %, {measured.what}: {did}"


def writer(problem: Problem, selection: Selection, judge: Judge) -> Grader:
    """Grade kernels by the verdict and the gain over the base."""

    def grade(kernel: Kernel) -> Grade:
        what, gain, score = judged(problem, judge, kernel, selection.base)
        if what != Verdict.ACCEPT.value:
            return score, f"The judge says {what}"
        if gain is None:
            return score, "The kernel is right; what it gains is unknown, as its base has no time here."
        return score, f"The kernel is right and gains {gain:+.1f} % over its base."

    return grade


def _verdict(evaluation: Evaluation) -> str:
    return f"{evaluation.verdict.value}{f': {evaluation.reason[:600]}' if evaluation.reason else ''}"


def verifier(evaluation: Evaluation) -> Grader:
    """Grade reviews by the square of the risk's error (Brier's score), which rewards true expectations."""
    refused_by_judge = not evaluation.accepted and evaluation.verdict is not Verdict.UNTIMED

    def grade(review: Review) -> Grade:
        remark = f"risk_percent was {review.risk_percent:g}, and the judge said {_verdict(evaluation)}"
        return 1 - (review.risk_percent / 100 - refused_by_judge) ** 2, remark

    return grade


def digester(read: str) -> Grader:
    """Grade notes by how many of their figures and quotes are in `read`, all that the digester was shown."""

    def grade(notes: Mapping[str, Note]) -> Grade:
        if not notes:
            return 0.0, "There are no notes, though outcomes were given."
        claims: list[str] = []  # quotes, and figures of two characters and more
        for note in notes.values():
            figures = re.findall(r"(?<![\w.])\d[\d.]*\d(?![\w])", note.text)
            claims += dict.fromkeys([*filter(None, note.quotes), *figures])
        lost = [claim for claim in claims if not _stands_in(claim, read)]
        traced = 1 - len(lost) / len(claims) if claims else 0.0
        lengths = [len(note.text.split()) for note in notes.values()]
        brief = statistics.fmean([min(1.0, max(0.0, (_LONG - words) / (_LONG - _BRIEF))) for words in lengths])
        summary = f"{len(claims) - len(lost)} of {len(claims)} figures and quotes are in what was read; "
        missing = f" Not found there: {', '.join(repr(claim[:60]) for claim in lost[:5])}." if lost else ""
        return traced * (0.8 + 0.2 * brief), f"{summary}brevity {brief:.2f}.{missing}"

    return grade


def _stands_in(claim: str, read: str) -> bool:
    """Return whether a text has a figure or quote as a word of its own: 50 is not in 00050, 50.5 or 1.50."""
    before, after = (r"[\w.]", r"\w|\.\d") if re.fullmatch(r"[\d.]+", claim) else (r"\w", r"\w")
    return re.search(rf"(?<!{before}){re.escape(claim)}(?!{after})", read) is not None
