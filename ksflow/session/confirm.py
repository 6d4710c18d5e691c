"""The winner once more: luck does not win. In fresh processes, beside the runner-up and each baseline."""

from collections.abc import Callable
from dataclasses import replace

from ksflow import evaluation as judging
from ksflow.loop import Lab
from ksflow.records import Evaluation, Trial, Verdict
from ksflow.session.scheduler import map_parallel

_RETIMINGS = 4
"""Leaders that are judged again at most, before one is called the winner."""


def confirm(lab: Lab, baselines: Callable[[], tuple[Trial, ...]], interrupted: Callable[[], bool]) -> None:
    """Judge the leader again, and whoever leads then, until the leader is one that was judged again.

    A leader that looked slower than its rival then, and leads because the rival had looked slower than it before, is
    not left at that: the rival is judged again beside it, and the newer measurements decide.
    """
    again: set[str] = set()
    for _ in range(_RETIMINGS):
        known, others = lab.lineage.known, baselines()
        best = known.best
        if best is None or best in others or interrupted():
            break
        rivals = [trial for trial in known.ranked if trial is not best and trial not in others][:1]
        if best.id in again:
            doubts = [trial for trial in known.ranked if trial not in others and _was_slower(best, trial)]
            rivals, best = [best], next((trial for trial in doubts if trial.id not in again), best)
        if best.id in again:
            break
        again.add(best.id)
        _judge_again(lab, best, tuple(rivals), others)


def _was_slower(best: Trial, other: Trial) -> bool:
    """Whether it was slower for sure when it was last timed beside another."""
    row = best.evaluation.beside(other.id) if best.evaluation else None
    return row is not None and row.high < 1


def _judge_again(lab: Lab, best: Trial, rivals: tuple[Trial, ...], baselines: tuple[Trial, ...]) -> None:
    """What is seen now replaces what was seen before, except where the machine did not let anything be seen."""
    lab.control.watch("confirm", best)
    assert best.evaluation is not None
    now, before = _compare(lab, best, rivals, baselines), best.evaluation
    if now.accepted and now.unranked:  # the machine was busy for a moment
        now = _compare(lab, best, rivals, baselines)
    now = now.with_evidence(renewed=before.evidence.renewed)
    if now.verdict is Verdict.HARNESS:
        lab.control.watch(f"not confirmed: {now.reason}", None)
        return
    label = "confirmed" if now.accepted else "refuted"
    if now.accepted and now.unranked:
        ids = {trial.id for trial in baselines}
        rows = before.evidence.joined(row for row in now.evidence.against if row.id in ids)
        label, now = "unconfirmed", before.with_evidence(unconfirmed=now.unranked, against=rows)
    elif now.accepted:
        now = now.with_evidence(against=before.evidence.joined(now.evidence.against))
    lab.lineage.evaluate(replace(best, evaluation=now), label)


def _compare(lab: Lab, best: Trial, rivals: tuple[Trial, ...], baselines: tuple[Trial, ...]) -> Evaluation:
    """Beside its rival, which gives the score, as every candidate's beside the incumbent; then the baselines.

    Where several kernels may be out at a time, both at once: the machine that judges may be a trip away.
    """
    groups = [group for group in (rivals, baselines) if group] or [()]
    said: dict[int, Evaluation] = {}

    def judge(number: int) -> None:
        said[number] = _judged(lab, best, groups[number])

    if getattr(lab.evaluate, "devices", 1) > 1:
        map_parallel(judge, range(len(groups)))
    else:
        judge(0)
        if len(groups) > 1 and said[0].accepted:
            judge(1)
    now, again = said[0], said.get(1)
    if again is None or not now.accepted:
        return now
    if not again.accepted and again.verdict is not Verdict.HARNESS:
        return again
    return now.with_evidence(against=again.evidence.joined(now.evidence.against))


def _judged(lab: Lab, trial: Trial, against: tuple[Trial, ...]) -> Evaluation:
    """The judge's word, which is kept before it is acted on."""
    assert trial.kernel is not None
    with lab.control.device:
        evaluation = judging.verdict(lab.problem, lab.evaluate, trial.kernel, against)
    lab.lineage.record_verdict(trial, evaluation)
    return evaluation
