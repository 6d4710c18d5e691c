"""Keeps which moves gained where, which values never worked, and the best configuration. Every figure was measured.

It does not explain, and it does not generalise beyond the kernels it names. Its own notes are written anew each
time (their titles start with `Measured:`); notes from elsewhere are kept as they are.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

from ksflow.records import Material, Note, Population, Problem, Status, Trial
from ksflow.stages.digester.steps import (
    DeadEnd,
    Family,
    Step,
    dead_ends,
    families,
    faster_cases,
    steps,
    verdicts,
)

OWN = "Measured: "
_LONGEST = 600  # characters of a note
_SHOWN = 3  # examples in a note


class Rules:
    """At most `most` notes of its own, the widest effects first."""

    def __init__(self, most: int = 24, noise_percent: float = 2.0, failures: int = 2) -> None:
        """`noise_percent`: smaller effects are not effects. `failures`: how many make a dead end."""
        self.most = most
        self.noise = math.log1p(noise_percent / 100)
        self.failures = failures

    def __call__(self, problem: Problem, material: Material) -> tuple[Note, ...]:
        others = tuple(note for note in material.notes if not note.title.startswith(OWN))
        found = families(material.population.trials)
        bests = [_best(family) for family in found if family.accepted]
        ends = [_dead(end) for family in found for end in dead_ends(family, self.failures)]
        moves = [note for family in found for note in self._moves(family)]
        written = self._written(material.population)
        room = max(self.most - len(bests), 0)
        rest = [*moves[: room // 2], *ends[: room // 4], *written[: room // 4]]
        return (*others, *bests[: self.most], *rest)

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
            base = population.by_id.get(trial.parents[0]) if trial.parents else None
            if base and base.score_us and trial.score_us and trial.experiment:
                gain = math.log(base.score_us / trial.score_us)
                if not trial.experiment.changes and abs(gain) > self.noise:
                    found.append((gain, base, trial))
        found.sort(key=lambda item: -abs(item[0]))
        return [_experiment(gain, base, trial) for gain, base, trial in found]


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
    percent = 100 * math.expm1(abs(gain))
    where = faster if gain > 0 else cases - faster
    return f"{cost} {percent:.0f} % [{before.id}→{after.id}] on {where} of {cases} shapes"


def _dead(end: DeadEnd) -> Note:
    values = " with ".join(f"{name}={value}" for name, value in end.values)
    reasons = dict.fromkeys(t.evaluation.reason for t in end.trials if t.evaluation)
    said = "; ".join(reason for reason in list(reasons)[:_SHOWN] if reason)
    text = f"All {len(end.trials)} kernels with {values} failed: {verdicts(end.trials)}."
    return _note(f"{OWN}{values} never worked", f"{text} {said}".strip(), end.trials[-_SHOWN:])


def _best(family: Family) -> Note:
    best, config = min(family.accepted, key=lambda pair: (pair[0].score_us or 0.0, pair[0].id))
    first, _ = family.accepted[0]
    values = " ".join(f"{name}={value}" for name, value in config.items())
    ratio = (first.score_us or 0.0) / (best.score_us or 1.0)
    judged = len(family.accepted) + len(family.failed)
    text = (
        f"{best.id} is the fastest of {judged} kernels with these tunables, {len(family.failed)} of which "
        f"failed: {best.score_us:.1f} us, {ratio:.1f}x as fast as {first.id}. {values}"
    )
    return _note(f"{OWN}best of {len(family.tunables)} tunables is {best.id}", text, [first, best])


def _experiment(gain: float, base: Trial, trial: Trial) -> Note:
    assert trial.experiment is not None
    did = "gained" if gain > 0 else "lost"
    text = f"{_change(gain, base, trial)}. {trial.experiment.description}"
    return _note(f"{OWN}{trial.id} {did} {100 * math.expm1(abs(gain)):.0f} %", text, [base, trial])


def _note(title: str, text: str, trials: Iterable[Trial]) -> Note:
    listed = list(trials)
    short = text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
    targets = sorted({t.evaluation.target for t in listed if t.evaluation and t.evaluation.target})
    sources = tuple(dict.fromkeys(trial.id for trial in listed))
    return Note(title, short, sources, tuple(targets), Status.MEASURED)
