"""The round: select, design, write, evaluate, digest. It stays one screen.

Everything is committed before the next thing acts on it, and a round starts by finishing what an earlier one left.
Budgets, interruption and display live in `schedule`.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from ksflow import judging
from ksflow.errors import StageError, boundary
from ksflow.lineage import Lineage
from ksflow.protocols import Designer, Digester, Evaluator, Selector, Writer
from ksflow.records import (
    Choice,
    Cost,
    Evaluation,
    Json,
    Kernel,
    Key,
    Material,
    Note,
    Origin,
    Plan,
    Problem,
    Trial,
)
from ksflow.transcript import Transcript


@dataclass(frozen=True)
class Lab:
    """What a round works with."""

    problem: Problem
    lineage: Lineage
    transcript: Transcript
    select: Selector
    design: Designer
    write: Writer
    evaluate: Evaluator
    digest: Digester
    handbook: tuple[Note, ...] = ()
    """Notes that came with the target, shown before what was learnt."""
    repairs: int = 0
    digest_every: int = 12
    watch: Callable[[str, Trial | None], None] = lambda what, trial: None
    """Told of every step: `select`, `design`, `write`, `evaluate`, `done`, `digest`."""
    stop: Callable[[], bool] = lambda: False
    """Asked before each trial."""

    @property
    def key(self) -> Key:
        """What a verdict given now holds for."""
        return judging.key(self.problem, self.evaluate)


def round_(lab: Lab, most: int) -> None:
    """One turn of the loop, at most `most` new experiments. Raises StageError when no plan could be made."""
    attempt(lab, lab.lineage.unfinished())
    if lab.stop():
        return
    before, notes = lab.lineage.known, lab.handbook + lab.lineage.notes()
    started, spent = time.monotonic(), lab.transcript.total
    lab.watch("select", None)
    with boundary("selector"):
        choice = lab.select(lab.problem, before)
    lab.lineage.select(choice)
    lab.watch("design", None)
    with boundary("designer"):
        plan = lab.design(lab.problem, before, choice, notes)
    cost = _since(lab, spent, started, len(plan.picked[:most]))
    attempt(lab, lab.lineage.dispatch(_drafts(choice, plan, cost)[:most], plan))
    done = len(lab.lineage.known.trials)
    if done // lab.digest_every > len(before.trials) // lab.digest_every:
        learn(lab)


def attempt(lab: Lab, trials: Iterable[Trial]) -> None:
    """Write and judge trials that have their ids; those left when told to stop are finished next time."""
    for trial in trials:
        for repairs_left in range(lab.repairs, -1, -1):
            if lab.stop():
                return
            trial = judge(lab, trial if trial.kernel else write(lab, trial))
            if trial.kernel is None or trial.score_us is not None or not repairs_left:
                break
            (trial,) = lab.lineage.dispatch([_repair(trial)])


def write(lab: Lab, trial: Trial) -> Trial:
    """Have a dispatched experiment written, and commit the kernel or the reason there is none."""
    lab.watch("write", trial)
    started, spent = time.monotonic(), lab.transcript.total
    notes = lab.handbook + lab.lineage.notes()
    try:
        with boundary("writer"):
            known, failed, parents = lab.lineage.known, None, trial.parents
            if trial.origin is Origin.REPAIR:
                failed = known.by_id[parents[0]]
                parents = failed.parents
            choice = known.choose(parents[0], parents[-1], "")
            assert trial.experiment is not None
            kernel = lab.write(lab.problem, choice, trial.experiment, notes, failed)
        trial = replace(trial, kernel=kernel)
    except StageError as error:
        trial = replace(trial, failure=str(error))
    trial = replace(trial, cost=trial.cost + _since(lab, spent, started, 1))
    lab.lineage.write(trial)
    return trial


def judge(lab: Lab, trial: Trial, remarks: Json | None = None) -> Trial:
    """Have a written kernel judged against the incumbent, and commit the verdict with the remarks in its evidence."""
    if trial.kernel is not None:
        lab.watch("evaluate", trial)
        best = lab.lineage.known.best
        evaluation = verdict(lab, trial.kernel, (best,) if best else ())
        evidence = {**evaluation.evidence, **(remarks or {})}
        trial = replace(trial, evaluation=replace(evaluation, evidence=evidence))
        lab.lineage.evaluate(trial)
    lab.watch("done", trial)
    return trial


def verdict(lab: Lab, kernel: Kernel, against: tuple[Trial, ...]) -> Evaluation:
    """The judge's word, with the key it holds for."""
    return judging.verdict(lab.problem, lab.evaluate, kernel, against)


def learn(lab: Lab) -> None:
    """Digest the run so far. Raises StageError."""
    lab.watch("digest", None)
    material = Material((), lab.lineage.known, lab.lineage.notes())
    with boundary("digester"):
        lab.lineage.learn(lab.digest(lab.problem, material))


def _drafts(choice: Choice, plan: Plan, cost: Cost) -> list[Trial]:
    parents = tuple(dict.fromkeys((choice.base.id, choice.reference.id)))
    picked = [plan.experiments[index] for index in plan.picked]
    return [Trial("", Origin.EXPERIMENT, parents, experiment, cost=cost) for experiment in picked]


def _repair(failed: Trial) -> Trial:
    parents = tuple(dict.fromkeys((failed.id, *failed.parents[:1])))
    return Trial("", Origin.REPAIR, parents, failed.experiment)


def _since(lab: Lab, spent: Cost, started: float, shares: int) -> Cost:
    """What was spent since then, as one of `shares` equal shares."""
    now = lab.transcript.total
    return Cost(
        (now.usd - spent.usd) / shares,
        (now.tokens_in - spent.tokens_in) // shares,
        (now.tokens_out - spent.tokens_out) // shares,
        (now.calls - spent.calls) // shares,
        round((time.monotonic() - started) / shares, 3),
    )
