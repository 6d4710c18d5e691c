"""Keeps which moves gained where, which values never worked, and the best configuration. Every figure was measured.

It does not explain, and it does not generalise beyond the kernels it names. Its own notes are written anew each
time (their titles start with `Measured:`); notes from elsewhere are kept as they are. A note of its own that came back
refuted is kept as `Measured once:`. A note on values that never worked closes the trials that had them.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from ksflow.records import Material, Note, Population, Problem, Status, base_of
from ksflow.search.effects import (
    ONCE,
    OWN,
    Effect,
    Family,
    best_note,
    dead_end_note,
    dead_ends,
    effects,
    effects_note,
    experiment_note,
    judged_families,
)

_NOISE = math.log1p(0.02)  # smaller effects are not effects
_FAILURES = 2  # how many make a dead end
_REFUTED = 6  # one in so many of its notes may be a refuted one


class RulesDigester:
    """Writes at most `most` notes, the widest effects first."""

    def __init__(self, most: int = 24) -> None:
        """most: how many notes it keeps at most."""
        self.most = most

    def __call__(self, problem: Problem, material: Material) -> tuple[Note, ...]:
        others = tuple(note for note in material.notes if not note.title.startswith((OWN, ONCE)))
        judged = judged_families(material.population)
        bests = [
            best_note(family) for family in judged if family.accepted and len(family.accepted) + len(family.failed) > 1
        ]
        ends = [dead_end_note(end) for family in judged for end in dead_ends(family, _FAILURES)]
        moves = [note for family in judged for note in _moves(family)]
        written = _written(material.population)
        room = max(self.most - len(bests) - self.most // _REFUTED, 0)
        now = [*bests[: self.most], *moves[: room // 2], *ends[: room // 4], *written[: room // 4]]
        refuted = _refuted(material.notes, now)
        left = min(self.most // _REFUTED, self.most - len(now))
        own = (*now, *refuted[max(len(refuted) - left, 0) :])
        return (*others, *(replace(note, problems=(problem.name,)) for note in own))


def _moves(family: Family) -> list[Note]:
    """Return a note for each tunable with an effect, the widest effect first."""
    by_name: dict[str, list[Effect]] = defaultdict(list)
    for effect in effects(family):
        if abs(effect.gain) > _NOISE:
            by_name[effect.tunable.name].append(effect)
    return [effects_note(group) for group in sorted(by_name.values(), key=lambda g: -max(abs(e.gain) for e in g))]


def _written(population: Population) -> list[Note]:
    """Return notes on experiments that assign no tunables, by their gain over the base."""
    gains = []
    for trial in population.trials:
        base = base_of(trial, population.by_id)
        measured = population.speedup(trial, base)
        if base and measured and trial.experiment and not trial.experiment.changes:
            gains.append((math.log(measured.ratio), base, trial))
    ranked = sorted((row for row in gains if abs(row[0]) > _NOISE), key=lambda row: -abs(row[0]))
    return [experiment_note(*row) for row in ranked]


def _refuted(old: Sequence[Note], now: Sequence[Note]) -> list[Note]:
    """Return the digester's refuted notes that are not written again now."""
    titles = {note.title.removeprefix(OWN) for note in now}
    refuted = {note.title.removeprefix(OWN).removeprefix(ONCE): note for note in old if note.status is Status.REFUTED}
    own = {title: note for title, note in refuted.items() if note.title.startswith((OWN, ONCE)) and title not in titles}
    return [replace(note, title=f"{ONCE}{title}") for title, note in own.items()]
