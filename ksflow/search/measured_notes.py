"""Notes on measurements. Every figure comes from the named trials."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ksflow.kernels.source.causes import ENOUGH, Item
from ksflow.kernels.source.families import structure_of, values_in
from ksflow.kernels.source.tunables import effective_values
from ksflow.records import Kernel, Note, Population, Status, Trial
from ksflow.search.effects import DeadEnd, Effect, Family

OWN = "Measured: "
ONCE = "Measured once: "
_LONGEST = 600  # characters of a note
_SHOWN = 3  # examples in a note
_NEVER = re.compile(rf"{OWN}(.+) never worked")
_STRUCTURE = re.compile(r"^All \d+ kernels with .* \(structure (\w+)\) failed: ")


def effects_note(effects: Sequence[Effect]) -> Note:
    """Return a note on the gains and losses of one tunable, with the largest effects as examples."""
    tunable = effects[0].tunable
    shown = sorted(effects, key=lambda effect: -abs(effect.gain))[:_SHOWN]
    ups = sum(effect.gain > 0 for effect in effects)
    kind = f" ({tunable.kind})" if tunable.kind else ""
    doc = f" It is: {tunable.doc}." if tunable.doc else ""
    return _note(
        f"{OWN}{tunable.name}{kind}, {ups} gained, {len(effects) - ups} lost",
        "; ".join(_effect(effect) for effect in shown) + "." + doc,
        [trial for effect in shown for trial in effect.trials],
    )


def dead_end_note(end: DeadEnd) -> Note:
    """Return a note that some values never worked; it closes the trials with them."""
    assigned, trials = end
    values = " with ".join(f"{name}={value}" for name, value in sorted(assigned))
    reasons = dict.fromkeys(t.evaluation.reason for t in trials if t.evaluation)
    examples = "; ".join(reason for reason in list(reasons)[:_SHOWN] if reason)
    verdicts = Counter(trial.verdict for trial in trials).most_common()
    counts = ", ".join(f"{count} {verdict}" for verdict, count in verdicts)
    kernel = trials[0].kernel
    assert kernel is not None, "it was judged"
    text = f"All {len(trials)} kernels with {values} (structure {structure_of(kernel)}) failed: {counts}."
    note = _note(f"{OWN}{values} never worked", f"{text} {examples}".strip(), trials[-_SHOWN:])
    return replace(note, closes=tuple(trial.id for trial in trials))


def lessons(notes: Iterable[Note], population: Population, kernel: Kernel) -> tuple[frozenset[Item], ...]:
    """Return the values that never worked in kernels of this structure, by notes of other runs."""
    dead = []
    for note in notes:
        title, of = _NEVER.fullmatch(note.title), _STRUCTURE.search(note.text)
        if not of or of[1] != structure_of(kernel):
            continue
        if title and note.status is not Status.REFUTED and len(note.closes) >= ENOUGH:
            values = frozenset((m[1], m[2]) for m in re.finditer(r"(\w+)=(\S+)", title[1]))
            trials = (population.by_id.get(name) for name in note.closes)
            if not all(trial and values <= values_in(trial.kernel).items() for trial in trials):
                dead.append(values)
    return tuple(dead)


def best_note(family: Family) -> Note:
    """Return a note on the fastest kernel of a family, with its values."""
    best, config = min(family.accepted, key=lambda pair: family.scale.order(pair[0].id))
    first, _ = family.accepted[0]
    measured = family.scale.ratio(best.id, first.id)
    times = f", {measured.ratio:.1f}x as fast as {first.id}" if measured else ""
    text = (
        f"{best.id} is the fastest of {len(family.accepted) + len(family.failed)} kernels with these tunables, "
        f"{len(family.failed)} of which failed: {family.scale.time_us(best.id):.1f} us{times}. "
        f"{' '.join(f'{name}={value}' for name, value in effective_values(family.tunables, config).items())}"
    )
    return _note(f"{OWN}best of {len(family.tunables)} tunables is {best.id}", text, [first, best])


def experiment_note(gain: float, base: Trial, trial: Trial) -> Note:
    """Return a note on an experiment's gain over its base."""
    assert trial.experiment is not None
    did = "gained" if gain > 0 else "lost"
    text = f"{_change(gain, base, trial)}. {trial.experiment.description}"
    return _note(f"{OWN}{trial.id} {did} {_percent(gain)} %", text, [base, trial])


def _effect(effect: Effect) -> str:
    before, after = effect.values
    return f"{effect.tunable.name} {before}→{after} {_change(effect.gain, *effect.trials)}"


def _change(gain: float, before: Trial, after: Trial) -> str:
    assert before.evaluation is not None
    assert after.evaluation is not None
    old = {timing.case: timing.us for timing in before.evaluation.timings}
    faster = [timing.us < old[timing.case] for timing in after.evaluation.timings if timing.case in old]
    did, where = ("gained", sum(faster)) if gain > 0 else ("lost", len(faster) - sum(faster))
    return f"{did} {_percent(gain)} % [{before.id}→{after.id}] on {where} of {len(faster)} shapes"


def _percent(gain: float) -> str:
    """Return a gain relative to the speed before, like predictions: a kernel that takes twice as long lost 50 %."""
    return f"{100 * abs(math.expm1(gain)):.0f}"


def _note(title: str, text: str, trials: Iterable[Trial]) -> Note:
    listed = list(trials)
    short = text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
    targets = sorted({t.evaluation.target for t in listed if t.evaluation and t.evaluation.target})
    sources = tuple(dict.fromkeys(trial.id for trial in listed))
    return Note(title, short, sources, tuple(targets), Status.MEASURED)
