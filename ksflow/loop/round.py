"""The round: select, design, write, evaluate, digest. It stays one screen.

Everything is committed before the next thing acts on it. What runs at the same time, budgets, interruption and display
live in `session`, which hands them in as `Control`; a round and its trials only take turns at the device.
"""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ksflow.errors import StageError, boundary, expect_type
from ksflow.lineage import Lineage, Round
from ksflow.lineage.transcript import Transcript
from ksflow.loop import judging
from ksflow.notes.knowledge import keep_challenges
from ksflow.protocols import Designer, Digester, Evaluator, Selector, Writer, calling
from ksflow.records import (
    Choice,
    EarlierVerdict,
    Kernel,
    Key,
    Material,
    Note,
    Origin,
    Plan,
    Population,
    Problem,
    Trial,
    Verdict,
    first_attempt,
)
from ksflow.source import fingerprint


def map_in_order(do: Callable[[Any], None], items: Iterable[Any]) -> None:
    """Call `do` for one item after the other."""
    for item in items:
        do(item)


@dataclass(frozen=True)
class Control:
    """What a session has to say in its rounds."""

    repairs: int = 0
    """How often a failed kernel goes back to the writer."""
    repeats: str = "show"
    """What becomes of code that was tried before: `skip` takes the record's verdict, `show` also sends it back to the
    writer once, `judge` judges it again."""
    watch: Callable[[str, Trial | None], None] = lambda what, trial: None
    """Told of every step: `select`, `design`, `write`, `checked`, `evaluate`, `done`, `digest`."""
    stop: Callable[[], bool] = lambda: False
    """Asked before each trial, and between the steps of a round."""
    reserve_slots: Callable[[int], int] = lambda wanted: wanted
    """How many of so many experiments the budget still covers; they count as dispatched."""
    map_parallel: Callable[[Callable[[Any], None], Iterable[Any]], None] = map_in_order
    """Does something for several trials, at once where that is possible."""
    device: AbstractContextManager[object] = field(default_factory=nullcontext)
    """Held while the judge is at work: the queue for the device."""


@dataclass(frozen=True)
class Lab:
    """What a round works with: the problem, where it is kept, the five stages."""

    problem: Problem
    lineage: Lineage
    transcript: Transcript
    select: Selector
    design: Designer
    write: Writer
    evaluate: Evaluator
    digest: Digester
    initial_notes: tuple[Note, ...] = ()
    """Notes that came with the target, shown before what was learnt."""
    control: Control = field(default_factory=Control)

    @property
    def key(self) -> Key:
        """What a verdict given now holds for."""
        return judging.key(self.problem, self.evaluate)


def run_round(lab: Lab, begun: Round, learning: bool = False) -> None:
    """One round of the loop. Raises StageError when no plan could be made, BudgetError when one cannot be paid."""
    control = lab.control
    with lab.transcript.about(f"round {begun.name}", begun.sample) as spent:
        learnt = learn(lab, begun) if learning else begun.notes
        notes, known = lab.initial_notes + learnt, begun.known.pruned_by(learnt)
        control.watch("select", None)
        with boundary("selector"):
            choice = expect_type(Choice, lab.select(lab.problem, known))
        lab.lineage.select(choice, begun.name)
        if control.stop():
            return
        control.watch("design", None)
        with boundary("designer"):
            plan = expect_type(Plan, lab.design(lab.problem, known, choice, notes))
    parents = tuple(dict.fromkeys((choice.base.id, choice.reference.id)))
    drafts = [Trial("", Origin.EXPERIMENT, parents, plan.experiments[index], by=plan.by) for index in plan.picked]
    slots = control.reserve_slots(lab.lineage.ids_left(begun.name, len(drafts)))
    trials = lab.lineage.dispatch(drafts[:slots], plan, begun.name, spent.cost)
    control.map_parallel(lambda trial: attempt(lab, trial, notes), trials)


def attempt(lab: Lab, trial: Trial, notes: tuple[Note, ...] | None = None) -> None:
    """Write and judge a trial that has its id; one left when told to stop is finished next time."""
    try:
        for times in range(lab.control.repairs + 2):
            if lab.control.stop():
                return
            trial = judge(lab, trial if trial.kernel else write(lab, trial, notes))
            repairs = _dispatch_repair(lab, trial, times)
            if not repairs:
                return
            (trial,) = repairs
    finally:
        lab.lineage.release(trial)


def write(lab: Lab, trial: Trial, notes: tuple[Note, ...] | None = None) -> Trial:
    """Have a dispatched experiment written, and commit the kernel or the reason there is none."""
    lab.control.watch("write", trial)
    notes = lab.initial_notes + lab.lineage.notes() if notes is None else notes
    with lab.transcript.about(trial.id) as spent, calling(check=partial(check, lab)):
        try:
            with boundary("writer"):
                choice, failed = writer_question(lab.lineage.known, trial)
                assert trial.experiment is not None
                kernel = expect_type(Kernel, lab.write(lab.problem, choice, trial.experiment, notes, failed))
            trial = replace(trial, kernel=kernel, form=fingerprint.source_fingerprint(kernel))
        except StageError as error:
            trial = replace(trial, failure=str(error))
    return lab.lineage.write(replace(trial, cost=trial.cost + spent.cost))


def check(lab: Lab, kernel: Kernel) -> Trial | str:
    """A kernel that is still being written, with its verdict, which counts as an evaluation; or why none is given."""
    if lab.control.stop() or not lab.control.reserve_slots(1):
        return "The budget does not cover another question to the judge."
    judging.prepare(lab.problem, lab.evaluate, kernel)
    best = lab.lineage.known.best
    with lab.control.device:
        found = judging.verdict(lab.problem, lab.evaluate, kernel, (best,) if best else ())
    draft = Trial("draft", Origin.EXPERIMENT, kernel=kernel, evaluation=found)
    lab.control.watch("checked", draft)
    return draft


def judge(lab: Lab, trial: Trial, renewed: EarlierVerdict | None = None) -> Trial:
    """Have a written kernel judged against the incumbent, and commit the verdict.

    renewed: what its verdict was until something changed, where it is judged again.
    """
    control = lab.control
    if trial.kernel is not None:
        control.watch("evaluate", trial)
        evaluation = None if control.repeats == "judge" or renewed else lab.lineage.said_before(trial)
        if evaluation is None:
            judging.prepare(lab.problem, lab.evaluate, trial.kernel)
            with control.device:
                best = lab.lineage.known.best
                evaluation = judging.verdict(lab.problem, lab.evaluate, trial.kernel, (best,) if best else ())
        trial = replace(trial, evaluation=evaluation.with_evidence(renewed=renewed))
        lab.lineage.evaluate(trial)
    control.watch("done", trial)
    return trial


def learn(lab: Lab, begun: Round) -> tuple[Note, ...]:
    """Digest the run so far; the notes that hold from now on."""
    lab.control.watch("digest", None)
    try:
        with boundary("digester"):
            found = lab.digest(lab.problem, Material((), begun.known, begun.notes))
            notes = keep_challenges([expect_type(Note, note) for note in found], begun.notes)
    except StageError as error:
        lab.control.watch(f"no notes: {error}", None)
        return begun.notes
    return lab.lineage.learn(notes, len(begun.known.trials), begun.notes)


def writer_question(known: Population, trial: Trial) -> tuple[Choice, Trial | None]:
    """What the experiment was designed for, and the attempt to repair where it is one."""
    try:
        failed = known.by_id[trial.parents[0]] if trial.origin is Origin.REPAIR else None
        parents = (first_attempt(trial, known.by_id) or trial).parents
        return known.choose(parents[0], parents[-1], ""), failed
    except KeyError as error:
        raise StageError(
            "writer", f"kernel {error.args[0]}, which {trial.id} starts from, is no longer there"
        ) from error


def _dispatch_repair(lab: Lab, trial: Trial, times: int) -> tuple[Trial, ...]:
    """The repair of a trial whose experiment the writer has had back `times` times; none where it needs none."""
    if trial.kernel is None or not getattr(lab.write, "repairs", True):
        return ()
    shown = bool(trial.repeats) and lab.control.repeats == "show" and times <= lab.control.repairs
    blameless = trial.evaluation is not None and trial.evaluation.verdict is Verdict.HARNESS
    failed = not trial.repeats and trial.score_us is None and not blameless and times < lab.control.repairs
    if not shown and not failed:
        return ()
    parents = tuple(dict.fromkeys((trial.id, *trial.parents[:1])))
    draft = Trial("", Origin.REPAIR, parents, trial.experiment, by=trial.by)
    slots = lab.control.reserve_slots(lab.lineage.ids_left(trial.id, 1))
    return lab.lineage.dispatch([draft][:slots], cause=trial.id)
