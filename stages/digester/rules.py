"""Keeps which moves gained where, which values never worked, and the best configuration. Every figure was measured.

It does not explain, and it does not generalise beyond the kernels it names. Its own notes are written anew each
time (their titles start with `Measured:`); notes from elsewhere are kept as they are. A move that it once said gained,
and that with later trials loses (or the other way round), is kept as refuted, as `Measured once:`, and so is a note of
its own that came back refuted. A note on values that never worked closes the trials that had them.
"""

import math
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from ksflow.notes.lessons import trial_of
from ksflow.records import Material, Note, Population, Problem, Status, Trial, base_of, speedup
from ksflow.search.steps import DeadEnd, Family, Step, dead_ends, faster_cases, judged, steps, verdicts

OWN = "Measured: "
ONCE = "Measured once: "
_LONGEST = 600  # characters of a note
_SHOWN = 3  # examples in a note
_REFUTED = 6  # one in so many of its notes may be a refuted one
Later = dict[tuple[str | Any, ...], list[Step]]
"""(tunable, from, to) -> the steps between these values."""

_CLAIM = re.compile(r"(\w+) (\S+)→(\S+) (gained|lost) \d+ % \[([^]→]+)→([^]→]+)\]")


class Rules:
    """At most `most` notes of its own, the widest effects first."""

    def __init__(self, most: int = 24, noise_percent: float = 2.0, failures: int = 2) -> None:
        """`noise_percent`: smaller effects are not effects. `failures`: how many make a dead end."""
        self.most = most
        self.noise = math.log1p(noise_percent / 100)
        self.failures = failures

    def __call__(self, problem: Problem, material: Material) -> tuple[Note, ...]:
        others = tuple(note for note in material.notes if not note.title.startswith((OWN, ONCE)))
        found = judged(material.population)
        bests = [_best(family) for family in found if family.accepted and len(family.accepted) + len(family.failed) > 1]
        ends = [_dead(end) for family in found for end in dead_ends(family, self.failures)]
        moves = [note for family in found for note in self._moves(family)]
        written = self._written(material.population)
        room = max(self.most - len(bests) - self.most // _REFUTED, 0)
        now = [*bests[: self.most], *moves[: room // 2], *ends[: room // 4], *written[: room // 4]]
        refuted = self._refuted(material.notes, now, [step for family in found for step in steps(family)])
        left = min(self.most // _REFUTED, self.most - len(now))
        own = (*now, *refuted[max(len(refuted) - left, 0) :])
        return (*others, *(replace(note, problems=(problem.name,)) for note in own))

    def _refuted(self, old: Sequence[Note], now: Sequence[Note], known: Sequence[Step]) -> list[Note]:
        """What it said and later trials contradict, once each; those found out last come last."""
        later: Later = defaultdict(list)
        for step in known:
            later[(step.tunable.name, *step.values)].append(step)
        before = [_renamed(note) for note in old if note.title.startswith((OWN, ONCE))]
        kept = {note.title: note for note in before if note.status is Status.REFUTED and self._stays(note, later)}
        told = [note for note in before if note.status is Status.MEASURED]
        newest = max((trial_of(source) for note in told for source in note.sources), default="")
        for fresh in (fresh for note in told for fresh in self._turned(note, later, newest)):
            kept.setdefault(fresh.title, fresh)
        again = {ONCE + note.title.removeprefix(OWN) for note in now}
        return [note for title, note in kept.items() if title not in again]

    def _stays(self, note: Note, later: Later) -> bool:
        """Whether a refuted note is not right after all."""
        claim = _CLAIM.search(note.text)
        return claim is None or self._bears_out(claim, later.get(claim.group(1, 2, 3), [])) < 1

    def _turned(self, note: Note, later: Later, newest: str) -> list[Note]:
        """A refuted note for each move that now shows the opposite, and did not among the trials up to `newest`."""
        found = []
        for claim in _CLAIM.finditer(note.text):
            pairs = later.get(claim.group(1, 2, 3), [])
            own = [step for step in pairs if tuple(trial.id for trial in step.trials) == claim.group(5, 6)]
            then = [step for step in pairs if max(trial.id for trial in step.trials) <= newest]
            known = self._bears_out(claim, own) > 0 > self._bears_out(claim, then)
            if self._bears_out(claim, pairs) < 0 and not known:
                found.append(_contradicted(note, claim, pairs))
        return found

    def _bears_out(self, claim: re.Match[str], pairs: Sequence[Step]) -> int:
        """1 where pairs of kernels together show what a claim says, -1 where the opposite, 0 within noise."""
        gain = _middle(pairs) if claim[4] == "gained" else -_middle(pairs)
        return (gain > self.noise) - (gain < -self.noise)

    def _moves(self, family: Family) -> list[Note]:
        """One note for each tunable that mattered, the widest effect first."""
        by_name: dict[str, list[Step]] = defaultdict(list)
        for step in steps(family):
            if abs(step.gain) > self.noise:
                by_name[step.tunable.name].append(step)
        ranked = sorted(by_name.values(), key=lambda s: -max(abs(x.gain) for x in s))
        return [_move(group) for group in ranked]

    def _written(self, population: Population) -> list[Note]:
        """Experiments that assign no tunables, judged against their base."""
        found = []
        for trial in population.trials:
            base = base_of(trial, population.by_id)
            measured = speedup(trial, base) if base else None
            if base and measured and trial.experiment:
                gain = math.log(measured.ratio)
                if not trial.experiment.changes and abs(gain) > self.noise:
                    found.append((gain, base, trial))
        found.sort(key=lambda item: -abs(item[0]))
        return [_experiment(gain, base, trial) for gain, base, trial in found]


def _renamed(note: Note) -> Note:
    """A note of its own that came back refuted has a title that no new note has."""
    if note.status is not Status.REFUTED or note.title.startswith(ONCE):
        return note
    return replace(note, title=ONCE + note.title.removeprefix(OWN))


def _middle(found: Sequence[Step]) -> float:
    return statistics.median(step.gain for step in found) if found else 0.0


def _contradicted(note: Note, claim: re.Match[str], said: Sequence[Step]) -> Note:
    """The refuted note of one move: what was said, and what all pairs of kernels say now."""
    name, one, two, did, before, after = claim.groups()
    widest = max(said, key=lambda step: abs(step.gain) if step.gain * _middle(said) > 0 else -1.0)
    middle = _middle(said)
    text = (
        f"{claim[0]} at first. With later trials it {'gained' if middle > 0 else 'lost'} "
        f"{_percent(middle)} % (median of {len(said)} pairs), such as {_step(widest)}."
    )
    fresh = _note(f"{ONCE}{name} {one}→{two} {did}", text, widest.trials)
    cites = {trial_of(source): source for source in (*fresh.sources, *note.sources)}
    shown = dict.fromkeys((before, after, *fresh.sources))
    return replace(fresh, sources=tuple(cites.get(name, name) for name in shown), status=Status.REFUTED)


def _move(group: Sequence[Step]) -> Note:
    tunable = group[0].tunable
    ranked = sorted(group, key=lambda step: -abs(step.gain))
    ups = sum(step.gain > 0 for step in group)
    kind = f" ({tunable.kind})" if tunable.kind else ""
    title = f"{OWN}{tunable.name}{kind}, {ups} gained, {len(group) - ups} lost"
    doc = f" It is: {tunable.doc}." if tunable.doc else ""
    sources = [trial for step in ranked[:_SHOWN] for trial in step.trials]
    return _note(title, "; ".join(_step(step) for step in ranked[:_SHOWN]) + "." + doc, sources)


def _step(step: Step) -> str:
    one, two = step.values
    return f"{step.tunable.name} {one}→{two} {_change(step.gain, *step.trials)}"


def _change(gain: float, before: Trial, after: Trial) -> str:
    faster, cases = faster_cases(before, after)
    cost = "gained" if gain > 0 else "lost"
    where = faster if gain > 0 else cases - faster
    return f"{cost} {_percent(gain)} % [{before.id}→{after.id}] on {where} of {cases} shapes"


def _percent(gain: float) -> str:
    """Of the speed before, as predictions have it: a kernel that takes twice as long lost 50 %."""
    return f"{100 * abs(math.expm1(gain)):.0f}"


def _dead(end: DeadEnd) -> Note:
    values = " with ".join(f"{name}={value}" for name, value in end.values)
    reasons = dict.fromkeys(t.evaluation.reason for t in end.trials if t.evaluation)
    said = "; ".join(reason for reason in list(reasons)[:_SHOWN] if reason)
    text = f"All {len(end.trials)} kernels with {values} failed: {verdicts(end.trials)}."
    note = _note(f"{OWN}{values} never worked", f"{text} {said}".strip(), end.trials[-_SHOWN:])
    return replace(note, closes=tuple(trial.id for trial in end.trials))


def _best(family: Family) -> Note:
    best, config = min(family.accepted, key=lambda pair: (pair[0].score_us or 0.0, pair[0].id))
    first, _ = family.accepted[0]
    values = " ".join(f"{name}={value}" for name, value in config.items())
    measured = speedup(best, first)
    times = f", {measured.ratio:.1f}x as fast as {first.id}" if measured else ""
    judged = len(family.accepted) + len(family.failed)
    text = (
        f"{best.id} is the fastest of {judged} kernels with these tunables, {len(family.failed)} of which "
        f"failed: {best.score_us:.1f} us{times}. {values}"
    )
    return _note(f"{OWN}best of {len(family.tunables)} tunables is {best.id}", text, [first, best])


def _experiment(gain: float, base: Trial, trial: Trial) -> Note:
    assert trial.experiment is not None
    did = "gained" if gain > 0 else "lost"
    text = f"{_change(gain, base, trial)}. {trial.experiment.description}"
    return _note(f"{OWN}{trial.id} {did} {_percent(gain)} %", text, [base, trial])


def _note(title: str, text: str, trials: Iterable[Trial]) -> Note:
    listed = list(trials)
    short = text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
    targets = sorted({t.evaluation.target for t in listed if t.evaluation and t.evaluation.target})
    sources = tuple(dict.fromkeys(trial.id for trial in listed))
    return Note(title, short, sources, tuple(targets), Status.MEASURED)
