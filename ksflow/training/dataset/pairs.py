"""Pairs for preference training: two answers to one question, or two kernels made from one, and which is better.

`format`: an answer that could not be read, and the one that came when the question was asked again. `answers`: two
answers to the same prompt. `kernels`: two kernels from one base, whoever wrote them, with a prompt made of that base.
"""

import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from ksflow.records import Trial, Verdict, digest
from ksflow.training.dataset.record import RecordedCall
from ksflow.training.dataset.reward import CHEATS, are_comparable, is_better
from ksflow.training.dataset.rows import Message, Row, RowSource

T = TypeVar("T")

_TICKS = re.compile("`+")
_PAIRS = 4
"""Better answers that one answer is held against at most, so that pairs grow with the answers and not their square."""
_ASK = """\
{task}Make this {language} kernel for the problem {problem} faster, and keep it right. It is timed on {target}. \
Answer with every file of the new kernel, complete.

{files}"""


def preference(source: RowSource) -> Iterator[Row]:
    """Yield the pairs of a run as rows: without the stage of the writer no pairs of kernels."""
    yield from _formats(source)
    yield from _answers(source)
    if "writer" in source.stages:
        yield from _kernels(source)


def _formats(source: RowSource) -> Iterator[Row]:
    """Yield refused answers beside the accepted ones; the prompt is that of the refused answer."""
    refused: dict[tuple[str, str], list[RecordedCall]] = defaultdict(list)
    for call in source.calls():
        group = (call.about, call.stage)
        if call.first == call.commit:
            refused[group] = []
        if call.malformed:
            refused[group].append(call)
        elif call.used:
            verdicts = {trial.evaluation.verdict for trial in source.run.outcomes(call.about) if trial.evaluation}
            if Verdict.ACCEPT not in verdicts or not verdicts.isdisjoint(CHEATS):
                continue
            for bad in refused.pop(group, []):
                yield from _pair(source, "format", call, bad)


def _answers(source: RowSource) -> Iterator[Row]:

    def prefers(call: RecordedCall, other: RecordedCall) -> bool:
        (ours, first), (theirs, second) = source.rate_call(call), source.rate_call(other)
        if not (ours and theirs and first and second):
            return False
        if call.stage == "writer":
            return is_better(first, second, source.run.scale)
        return ours.good and not theirs.good and are_comparable(first, second)

    groups: dict[tuple[str, str], list[RecordedCall]] = defaultdict(list)
    for call in source.calls():
        if call.used:
            groups[call.stage, call.prompt].append(call)
    for calls in groups.values():
        for winner, other in _pairs(calls, prefers):
            yield from _pair(source, "answers", winner, other)


def _pair(source: RowSource, kind: str, winner: RecordedCall, other: RecordedCall) -> Iterator[Row]:
    (rated, first), (less, second) = source.rate_call(winner), source.rate_call(other)
    names: list[Hashable] = [(kind, winner.answer, other.answer)]  # by what a pair is known again
    if winner.stage == "writer" and first and second and first.form and second.form:
        names.append((kind, winner.prompt, first.form, second.form))
    if rated and less and rated.reward > less.reward and source.mark_seen(*names):
        prompt, rejected = source.prompt_and_answer(other.commit)
        chosen = source.prompt_and_answer(winner.commit)[1]
        extra = {"kind": kind, "licence": source.licence_of(first, second)}
        yield _row(prompt, chosen, rejected, source.shared_columns(winner) | extra, source.shared_columns(other))


def _kernels(source: RowSource) -> Iterator[Row]:
    """Yield kernels made from the same base, of which the judge prefers one, whoever wrote them."""
    models = {call.about: call.model for call in source.calls() if call.used and call.stage == "writer"}

    def columns(trial: Trial) -> Row:
        return source.columns_of("writer", models.get(trial.id, "none"), trial.id, trial, source.rate(trial))

    children: dict[str, dict[str, Trial]] = defaultdict(dict)
    for result in source.run.results.values():
        base = source.run.base(result.trial)
        if base and are_comparable(result.trial, base):
            children[base.id].setdefault(result.trial.form or result.trial.id, result.trial)
    for name, trials in children.items():
        prompt = digest(source.run.problem, source.run.results[name].trial.form or name)
        for winner, other in _pairs(list(trials.values()), partial(is_better, scale=source.run.scale)):
            ours, theirs = columns(winner), columns(other)
            if ours["reward"] > theirs["reward"] and source.mark_seen(("kernels", prompt, winner.form, other.form)):
                question = _question(source, source.run.results[name].trial)
                chosen, rejected = (
                    [{"role": "assistant", "content": _files(source, trial)[1]}] for trial in (winner, other)
                )
                extra = {"kind": "kernels", "licence": source.licence_of(winner, other)}
                yield _row(question, chosen, rejected, ours | extra, theirs)


def _question(source: RowSource, base: Trial) -> list[Message]:
    assert base.evaluation is not None
    language, files = _files(source, base)
    current = source.problem and source.problem.digest == base.evaluation.problem
    task = source.problem.statement.strip() if source.problem and current else ""
    question = _ASK.format(
        task=f"{task}\n\n" if task else "",
        language=language,
        problem=source.run.problem,
        target=base.evaluation.target or "the machine at hand",
        files=files,
    )
    return [{"role": "user", "content": question}]


def _row(prompt: list[Message], chosen: list[Message], rejected: list[Message], ours: Row, theirs: Row) -> Row:
    """Return a pair as a row. ours, theirs: the columns that all rows have, of the better and of the other."""
    return {
        "prompt": prompt,
        "chosen": chosen,
        "rejected": rejected,
        "margin": round(ours["reward"] - theirs["reward"], 4),
        **{f"rejected_{name}": theirs[name] for name in ("model", "about", "verdict")},
        **ours,
    }


def _files(source: RowSource, trial: Trial) -> tuple[str, str]:
    language, files = source.reader.kernel(trial.id)
    ticks = max(len(run) for text in files.values() for run in ["", *_TICKS.findall(text)])
    fence = "`" * max(3, ticks + 1)
    return language, "\n\n".join(f"`{name}`:\n{fence}\n{text.rstrip()}\n{fence}" for name, text in files.items())


def _pairs(items: Sequence[T], better_: Callable[[T, T], bool]) -> Iterator[tuple[T, T]]:
    """Yield (better, worse): each item with the next few better ones, in a circle."""
    for number, item in enumerate(items):
        others = (*items[number + 1 :], *items[:number])
        yield from ((other, item) for other in itertools.islice((o for o in others if better_(o, item)), _PAIRS))
