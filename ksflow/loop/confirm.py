"""The winner once more: luck does not win. In fresh processes, beside the runner-up and each baseline."""

import threading
from collections.abc import Callable
from dataclasses import replace

from ksflow.loop.events import Activity, Began, Notice
from ksflow.loop.queue import map_parallel
from ksflow.loop.run import Run
from ksflow.records import Evaluation, HeldOut, Population, Trial, Verdict

_RETIMINGS = 4  # leaders that are judged again at most, before one is called the winner


def confirm(run: Run) -> None:
    """Judge the leader again, and whoever leads then, until the leader is one that was judged again.

    The leader is judged beside the winner of before, if that is another kernel, and beside the fastest of the others: a
    kernel takes the winner's place only where it was ranked ahead of it side by side. A leader that loses its place is
    the rival of the one that takes it. A leader that is wrong on a held-out shape is followed by the next fastest,
    until one is right.
    """
    judged = (trial.evaluation for trial in run.population.trials if trial.evaluation)
    moment = 1 + max((row.moment for evaluation in judged for row in evaluation.evidence.against), default=0)
    before: Trial | None = None
    again: set[str] = set()
    for _ in range(_RETIMINGS):
        population, others = run.population, run.baselines
        best = _next(population, others, again)
        if best is None or run.interrupted:
            break
        fastest = [trial for trial in population.ranked if trial not in others]
        winner = population.best if population.best and population.best not in others else None
        rivals = list(dict.fromkeys(trial.id for trial in (before, winner, *fastest) if trial and trial.id != best.id))
        again.add(best.id)
        before = best
        count = 2 if winner and winner.id in rivals[:2] else 1
        _judge_again(run, best, tuple(population.by_id[name] for name in rivals[:count]), others, moment)


def _next(population: Population, baselines: tuple[Trial, ...], again: set[str]) -> Trial | None:
    """The leader, or a kernel that is faster by the scale and was never timed beside it; None where all were judged.

    Where the leader is wrong on a held-out shape and nobody is known to be right there, the next fastest.
    """
    leader = population.leader
    wrong = leader and leader.id in again and leader.held_out and leader.held_out.wrong
    for trial in population.ranked:
        if trial.id in again or trial in baselines:
            continue
        gain = population.speedup(trial, leader)
        if trial is leader or wrong or (gain and gain.ahead):
            return trial
    return None


def _judge_again(run: Run, best: Trial, rivals: tuple[Trial, ...], baselines: tuple[Trial, ...], moment: int) -> None:
    """What is seen now replaces what was seen before, except where the machine did not let anything be seen."""
    run.tell(Began(Activity.CONFIRM, best))
    assert best.evaluation is not None
    before = best.evaluation
    now = _compare(run, best, rivals, baselines)
    rows, claim = tuple(replace(row, moment=moment) for row in now.evidence.against), now.evidence.claim
    claim = claim and replace(claim, moment=moment)
    behind = any(row.slower for row in rows)
    confirmed = before.evidence.confirmed if behind or now.why_unranked else moment
    now = now.with_evidence(against=rows, claim=claim, renewed=before.evidence.renewed, confirmed=confirmed)
    if now.verdict is Verdict.TIMEOUT:
        now = replace(now, reason=f"timed out twice when it was judged again: {now.reason}")
    if not now.accepted:
        what = "" if now.verdict is Verdict.HARNESS else f"{best.id}, which led: {now.verdict.value}, "
        run.tell(Notice(f"not confirmed: {what}{now.reason}"))
    if now.verdict is Verdict.HARNESS:
        return
    label = "confirmed" if now.accepted and not behind else "refuted"
    if now.accepted and now.why_unranked:
        ids = {trial.id for trial in baselines}
        rows = before.evidence.merge_comparisons(row for row in now.evidence.against if row.id in ids)
        doubt = "" if before.evidence.confirmed else now.why_unranked
        additions = {"unconfirmed": doubt, "against": rows, "heldout": now.evidence.heldout}
        label, now = "unconfirmed", before.with_evidence(**additions)
    else:
        now = now.with_evidence(against=before.evidence.merge_comparisons(now.evidence.against))
    run.lineage.evaluate(replace(best, evaluation=now), label)


def _compare(run: Run, best: Trial, rivals: tuple[Trial, ...], baselines: tuple[Trial, ...]) -> Evaluation:
    """Beside its rival, which gives the score, as every candidate's beside the incumbent; then the baselines.

    Where several kernels may be out at a time, all at once, on held-out shapes, too: the machine that judges may be a
    trip away.
    """
    groups = [group for group in (rivals, baselines) if group] or [()]
    verdicts: dict[int, Evaluation] = {}
    lock, known = threading.Lock(), list[HeldOut | None]()

    def hidden() -> HeldOut | None:
        with lock:
            if not known:
                known.append(_judge_held_out(run, best, baselines[:1]))
            return known[0]

    def judge(number: int) -> None:
        if number == len(groups):
            hidden()
            return
        evaluation = _judged(run, best, groups[number], hidden)
        # the machine was busy for a moment
        verdicts[number] = evaluation if evaluation.cacheable else _judged(run, best, groups[number], hidden)

    if run.device.places > 1:
        map_parallel(judge, range(len(groups) + 1))
    else:
        judge(0)
        if len(groups) > 1 and verdicts[0].accepted:
            judge(1)
    now, again = verdicts[0], verdicts.get(1)
    if again is None or not now.accepted:
        return now
    if not again.accepted and again.verdict is not Verdict.HARNESS:
        return again
    doubt = again.why_unranked
    rows = [replace(row, ranked=False, why=doubt) if doubt else row for row in again.evidence.against]
    return now.with_evidence(against=(*now.evidence.against, *rows))


def _judged(run: Run, trial: Trial, versus: tuple[Trial, ...], hidden: Callable[[], HeldOut | None]) -> Evaluation:
    """The judge's word, which is kept before it is acted on, with that on held-out shapes where it accepts."""
    assert trial.kernel is not None
    evaluation = run.device.verdict(run.problem, run.stages.evaluate, trial.kernel, lambda: versus)
    if evaluation.accepted and (heldout := hidden()):
        evaluation = evaluation.with_evidence(heldout=heldout)
    run.lineage.record_verdict(trial, evaluation)
    return evaluation


def _judge_held_out(run: Run, trial: Trial, baseline: tuple[Trial, ...]) -> HeldOut | None:
    """Whether it is right on the shapes that no model is shown, and how fast. A recorded verdict says so by itself.

    All of them at once; where one is wrong it is left out, and the others are judged again.
    """
    assert trial.kernel is not None
    left, wrong = run.problem.heldout, dict[str, str]()
    while left and not run.stages.evaluate.recorded:
        problem = replace(run.problem, tests=left, benchmarks=left)
        for _ in range(2):  # the machine was busy for a moment
            evaluation = run.device.verdict(problem, run.stages.evaluate, trial.kernel, lambda: baseline)
            if evaluation.verdict not in (Verdict.HARNESS, Verdict.TIMEOUT):
                break
        if evaluation.accepted:
            times = {row.case: row.us for row in evaluation.timings}
            return HeldOut(right=times, wrong=wrong, over=next(iter(evaluation.evidence.against), None))
        if evaluation.verdict is Verdict.HARNESS:
            run.tell(Notice(f"held-out shapes are not judged: {evaluation.reason}"))
            return None
        name = evaluation.evidence.failed.get("case", evaluation.evidence.at)
        at = [case for case in left if case.name == name] or left
        wrong |= {case.name: f"{evaluation.verdict}: {evaluation.reason}" for case in at}
        left = tuple(case for case in left if case not in at)
    return HeldOut(wrong=wrong) if wrong else None
