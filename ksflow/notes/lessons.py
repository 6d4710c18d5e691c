"""Trials as sources of notes: citations that git can show, and refutation by later measurements.

A trial in a note's sources is stored as `00012@3fa85f6411`, with its branch's commit when the note was written. If a
trial that a measured note cites, or that trial's base, was judged again with a contradicting result, the note is
refuted; no model is called. Stale results and results of another machine contradict nothing. Not covered: a note's text
is not interpreted, only its trials are compared.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from ksflow.errors import LineageError
from ksflow.records import ANOTHER_DAY, Evaluation, Note, Population, Ratio, Status, Trial, Verdict, base_of

_DIGITS = 10
_CITED = re.compile(rf"(.+)@([0-9a-f]{{{_DIGITS}}})")
_Pair = tuple[Evaluation, Evaluation | None]  # a trial's evaluation and its base's


def trial_of(source: str) -> str:
    """Return the id of the trial that a source cites, with or without a commit; other sources unchanged."""
    match = _CITED.fullmatch(source)
    return match[1] if match else source


def cite_commits(note: Note, commits: Mapping[str, str], earlier: Iterable[Note] = ()) -> Note:
    """Return the note with each trial in its sources cited at its commit (trial -> its branch's newest). A refuted note
    keeps the commits that `earlier` notes cite, because it is about those results.
    """
    cited_before = {s for other in earlier for s in other.sources} if note.status is Status.REFUTED else set[str]()
    cited = {
        source: _cite(trial_of(source), commits)
        for source in note.sources
        if trial_of(source) in commits and not (source in cited_before and _CITED.fullmatch(source))
    }
    sources = tuple(cited.get(source, source) for source in note.sources)
    return note if sources == note.sources else replace(note, sources=sources)


def refute_contradicted(
    notes: Iterable[Note], population: Population, commits: Mapping[str, str], at: Callable[[str, str], Trial]
) -> tuple[Note, ...]:
    """Return the notes, with those refuted that later measurements contradict. at: reads a trial at a commit."""
    return tuple(_tested(note, population, commits, at) for note in notes)


def merge_notes(digested: Iterable[Note], began: Iterable[Note], now: Iterable[Note]) -> tuple[Note, ...]:
    """Return a digest's notes merged with changes made meanwhile, by title. A note that the digest left unchanged is as
    it is now; a rewritten one keeps a new challenge; other new notes stay.
    """
    digested, began, now = tuple(digested), tuple(began), tuple(now)
    old, current = {note.title: note for note in began}, {note.title: note for note in now}
    untouched, notes = set(began), []
    for note in digested:
        was, other = old.get(note.title), current.get(note.title)
        if note not in untouched:
            left = note.challenge == (was.challenge if was else "")
            notes.append(replace(note, challenge=other.challenge) if other and left else note)
        elif other:
            notes.append(note if note in now else other)
    titles = {note.title for note in digested}
    return (*notes, *(note for note in now if note.title not in titles and note not in untouched))


def _cite(trial: str, commits: Mapping[str, str]) -> str:
    return f"{trial}@{commits[trial][:_DIGITS]}"


def _tested(note: Note, population: Population, commits: Mapping[str, str], at: Callable[[str, str], Trial]) -> Note:
    matches = [_CITED.fullmatch(source) for source in note.sources]
    cites = {match[1]: match[2] for match in matches if match and match[1] in commits}
    if note.status is not Status.MEASURED or all(commits[t].startswith(commit) for t, commit in cites.items()):
        return note
    then = {}
    for trial, commit in cites.items():
        try:
            then[trial] = at(trial, commit)
        except LineageError:  # a person may have rewritten the branch
            continue
    for name, was in then.items():
        now = population.by_id.get(name)
        if now is None or now.evaluation is None or was.evaluation is None:
            continue
        base = base_of(now, population.by_id)
        base_was, base_now = (then.get(base.id, base).evaluation, base.evaluation) if base else (None, None)
        base_name, said = base.id if base else "", (was.evaluation, base_was)
        if reasons := _contradiction(name, base_name, said, (now.evaluation, base_now)):
            judged = name if was.evaluation != now.evaluation else base_name
            sentence = f"Contradicted: {reasons[0]} ({name}@{cites[name]}); {reasons[1]} ({_cite(judged, commits)})."
            return replace(note, text=f"{note.text.rstrip()}\n\n{sentence}", status=Status.REFUTED)
    return note


def _contradiction(trial: str, base: str, then: _Pair, today: _Pair) -> tuple[str, str] | None:
    (was, base_was), (now, base_now) = then, today
    if then == today or was.target != now.target:
        return None
    if (was.accepted and _wrong(now)) or (_wrong(was) and now.accepted):
        return f"{trial} was {was.verdict.value}", f"{trial} is now {now.verdict.value}"
    if not (was.accepted and now.accepted and now.cacheable):
        return None
    # it was faster or slower than its base, and is not any more, beyond noise
    old, fresh = was.versus(base), now.versus(base)
    before = _from_row(old)
    after = _from_row(fresh) if fresh and fresh != old else _from_new_row(trial, base_was, base_now)
    if before is None or after is None or not before[1] or before[1] == after[1]:
        return None
    if abs(math.log(after[0] / before[0])) <= math.log(ANOTHER_DAY):
        return None
    return f"{trial} was x{before[0]:.3g} as fast as {base}", f"judged again, it is x{after[0]:.3g}"


def _from_new_row(trial: str, base_was: Evaluation | None, base_now: Evaluation | None) -> tuple[float, int] | None:
    new = base_now.versus(trial) if base_now else None
    if new is None or (base_was and new == base_was.versus(trial)):
        return None
    ratio, sign = _from_row(new) or (1.0, 0)
    return 1 / ratio, -sign


def _wrong(evaluation: Evaluation) -> bool:
    return not (evaluation.accepted or evaluation.verdict.inconclusive or evaluation.verdict is Verdict.TIMEOUT)


def _from_row(row: Ratio | None) -> tuple[float, int] | None:
    """Return a speed-up timed side by side, and its sign: 0 for a tie."""
    return None if row is None else (row.speedup, row.ahead - row.slower)
