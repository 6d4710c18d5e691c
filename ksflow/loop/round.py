"""The round: select, design, dispatch, (write, judge, repair) each; now and then it begins with a digest.

Everything is committed before the next thing acts on it. Rounds go on side by side and so do the trials of one; they
take turns at the device alone.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from ksflow.errors import StageError, stage_boundary
from ksflow.kernels.source import fingerprint
from ksflow.lineage import Round
from ksflow.lineage.trial_log import NOTHING
from ksflow.loop.events import Activity, Began, Checked, Judged, Notice
from ksflow.loop.queue import map_parallel
from ksflow.loop.run import Run
from ksflow.notes.knowledge import keep_challenges
from ksflow.protocols import Account, Context, Evaluator, call_stage, override_call
from ksflow.records import (
    Cost,
    EarlierVerdict,
    Evaluation,
    Kernel,
    Material,
    Note,
    Origin,
    Plan,
    Population,
    Review,
    Selection,
    Trial,
    Verdict,
    schema,
)

Notes = tuple[Note, ...]


def run_round(run: Run, begun: Round, learning: bool = False) -> None:
    """One round. Raises StageError when no plan could be made, BudgetError when one cannot be paid."""
    spent = Account()
    with override_call(about=f"round {begun.name}", sample_index=begun.sample, account=spent):
        learnt = digest(run, begun) if learning else begun.notes
        notes, population = run.initial_notes + learnt, begun.population.prune(learnt)
        selection = select(run, population, begun)
        plan = None if run.limits.is_reached() else design(run, population, selection, notes, begun)
    trials = () if plan is None else dispatch(run, selection, plan, begun, spent.cost)
    map_parallel(lambda trial: attempt(run, trial, notes), trials)


def attempt(run: Run, trial: Trial, notes: Notes | None = None) -> None:
    """Write, judge, repair a trial that has its id; one left when told to stop is finished next time."""
    try:
        for times in range(run.schedule.repairs + 2):
            if run.limits.is_reached():
                return
            trial = trial if trial.kernel else write(run, trial, notes)  # which may give it another id
            trial = judge(run, trial)
            repair = _dispatch_repair(run, trial, times)
            if repair is None:
                return
            trial = repair
    finally:
        run.lineage.release(trial)


# -- the steps -------------------------------------------------------------------------------------


def digest(run: Run, begun: Round) -> Notes:
    """Learn from the run so far; the notes that hold from now on."""
    run.tell(Began(Activity.DIGEST))
    try:
        with stage_boundary("digester"):
            answer = run.stages.digest(run.problem, Material((), begun.population, begun.notes))
            if not isinstance(answer, Sequence):
                raise TypeError(f"returned {type(answer).__name__}, not a tuple of notes")
            notes = keep_challenges([schema.check_answer(Note, note) for note in answer], begun.notes)
    except StageError as error:
        run.tell(Notice(f"no notes: {error}"))
        return begun.notes
    return run.lineage.learn(notes, len(begun.population.trials), begun.notes)


def select(run: Run, population: Population, begun: Round) -> Selection:
    """Pick base and reference, and keep the selection."""
    run.tell(Began(Activity.SELECT))
    entrants = population.restrict_to(run.problem.lane) if run.problem.lane else population
    with stage_boundary("selector"):
        context = Context(begun.sample, left=run.remaining_budgets())
        answer = call_stage(run.stages.select, run.problem, entrants, context=context)
        selection = _selected(entrants, answer)
    run.lineage.select(selection, begun.name)
    return selection


def design(run: Run, population: Population, selection: Selection, notes: Notes, begun: Round) -> Plan:
    """Make experiments of a selection."""
    run.tell(Began(Activity.DESIGN))
    with stage_boundary("designer"):
        context = Context(begun.sample, left=run.remaining_budgets())
        answer = call_stage(run.stages.design, run.problem, population, selection, notes, context=context)
        return schema.check_answer(Plan, answer)


def dispatch(run: Run, selection: Selection, plan: Plan, begun: Round, cost: Cost = NOTHING) -> tuple[Trial, ...]:
    """Keep a plan, and give ids to as many of its picked experiments as the budget covers; they share its cost."""
    parents = tuple(dict.fromkeys((selection.base.id, selection.reference.id)))
    drafts = [Trial("", Origin.EXPERIMENT, parents, plan.experiments[index], by=plan.by) for index in plan.picked]
    return _with_ids(run, drafts, begun.name, plan, cost)


def write(run: Run, trial: Trial, notes: Notes | None = None) -> Trial:
    """Have a dispatched experiment written, and commit the kernel or the reason there is none."""
    run.tell(Began(Activity.WRITE, trial))
    notes = run.initial_notes + run.lineage.notes() if notes is None else notes
    reviews: list[Review] = []
    context, spent = Context(check=partial(check, run), reviewed=reviews.append), Account()
    with override_call(about=trial.id, account=spent):
        try:
            with stage_boundary("writer"):
                selection, failed = writer_question(run.lineage.last_population, trial)
                assert trial.experiment is not None
                values = (run.problem, selection, trial.experiment, notes, failed)
                kernel = schema.check_answer(Kernel, call_stage(run.stages.write, *values, context=context))
                form = fingerprint.source_fingerprint(kernel)
                review = schema.check_answer(Review, reviews[-1]) if reviews else None
            trial = replace(trial, kernel=kernel, form=form, review=review)
        except StageError as error:
            trial = replace(trial, failure=str(error))
    return run.lineage.write(replace(trial, cost=trial.cost + spent.cost))


def judge(run: Run, trial: Trial, renewed: EarlierVerdict | None = None) -> Trial:
    """Have a written kernel judged against the incumbent, and commit the verdict.

    renewed: what its verdict was until something changed, where it is judged again.
    """
    if trial.kernel is not None:
        run.tell(Began(Activity.EVALUATE, trial))
        anew = run.schedule.repeats == "judge" or renewed
        evaluation = None if anew else run.lineage.said_before(trial)
        evaluation = evaluation or ask_judge(
            run, trial.kernel, known=None if anew else partial(run.lineage.said_of_code, trial)
        )
        if run.judge_stopped and evaluation.verdict is Verdict.HARNESS:
            return trial  # the next run judges it
        trial = replace(trial, evaluation=evaluation.with_evidence(renewed=renewed))
        run.lineage.evaluate(trial)
    run.tell(Judged(trial))
    return trial


def check(run: Run, kernel: Kernel) -> Trial | str:
    """A kernel that is still being written, with its verdict, which counts as an evaluation; or why none is given."""
    if run.limits.is_reached() or not run.reserve(1):
        return "The budget does not cover another question to the judge."
    draft = Trial("draft", Origin.EXPERIMENT, kernel=kernel, evaluation=ask_judge(run, kernel))
    run.tell(Checked(draft))
    return draft


def ask_judge(
    run: Run,
    kernel: Kernel,
    evaluate: Evaluator | None = None,
    known: Callable[[str], Evaluation | None] | None = None,
) -> Evaluation:
    """The judge's word on a kernel beside the best so far, when it is its turn at the device.

    Where that one fails as a rival, and beside itself, the kernel is judged once more beside the best of the others.
    known: what was said of such code, where it need not be judged again.
    """
    evaluate = evaluate or run.stages.evaluate
    with (
        suppress(StageError),
        stage_boundary("evaluator"),
    ):  # compile while others are timed; what fails fails again below
        evaluate.prepare(run.problem, kernel)
    verdict = partial(run.device.verdict, run.problem, evaluate, kernel)
    said = verdict(lambda: (best,) if (best := run.lineage.last_population.leader) else (), known)
    failed = said.evidence.failed_rivals
    if not (failed and said.accepted):
        return said
    again = verdict(lambda: (best,) if (best := run.lineage.last_population.without_trials(failed).leader) else ())
    return again.with_evidence(failed_rivals={**failed, **again.evidence.failed_rivals})


def writer_question(population: Population, trial: Trial) -> tuple[Selection, Trial | None]:
    """What the experiment was designed for, and the attempt to repair where it is one."""
    try:
        failed = population.by_id[trial.parents[0]] if trial.origin is Origin.REPAIR else None
        return population.selection_for(trial), failed
    except KeyError as error:
        raise StageError(
            "writer", f"kernel {error.args[0]}, which {trial.id} starts from, is no longer there"
        ) from error


def _selected(population: Population, answer: Selection) -> Selection:
    """The selection that a selector's picks and rationale make. TypeError, ValueError where they cannot be acted on."""
    if not isinstance(answer, Selection):
        raise TypeError(f"returned {type(answer).__name__}, not a Selection")
    picks = answer.base.id, answer.reference.id
    for pick in picks:
        if pick not in population.by_id or population.by_id[pick].score_us is None:
            raise ValueError(f"picked {pick}, which is no accepted trial of the population")
    return population.choose(*picks, schema.check_answer(str, answer.rationale))


def _dispatch_repair(run: Run, trial: Trial, times: int) -> Trial | None:
    """The repair of a trial whose experiment the writer has had back `times` times; None where it needs none."""
    if trial.evaluation is None or trial.kernel is None or not run.stages.repairs:
        return None
    if trial.repeats:  # it is shown to its writer with what was said before
        goes_back = run.schedule.repeats == "show" and times <= run.schedule.repairs
    else:
        failed = trial.score_us is None and trial.evaluation.verdict is not Verdict.HARNESS
        goes_back = failed and times < run.schedule.repairs
    if not goes_back:
        return None
    parents = tuple(dict.fromkeys((trial.id, *trial.parents[:1])))
    draft = Trial("", Origin.REPAIR, parents, trial.experiment, by=trial.by)
    return next(iter(_with_ids(run, [draft], trial.id)), None)


def _with_ids(
    run: Run, drafts: Sequence[Trial], cause: str, plan: Plan | None = None, cost: Cost = NOTHING
) -> tuple[Trial, ...]:
    """As many as the budget covers; in a replay at most as many as were given ids then."""
    slots = run.reserve(len(drafts), plan, cause)
    trials = run.lineage.dispatch(drafts[:slots], plan, cause, cost)
    if len(trials) < slots:
        run.give_back(slots - len(trials))
    return trials
