"""Effects in a population: kernels that differ in one tunable, values that never worked, and notes on both.

Only kernels that differ just in the values of their tunables are compared. Every figure of a note comes from the named
trials.
"""

import math
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from ksflow.kernels.source.causes import ENOUGH, Failures, Item
from ksflow.kernels.source.families import Config, comparable_families, declared, point, structure_of, values_in
from ksflow.kernels.source.tokens import estimate
from ksflow.kernels.source.tunables import Tunable, effective_values
from ksflow.records import Kernel, Note, Population, Scale, Status, Trial, Verdict

DeadEnd = tuple[frozenset[Item], tuple[Trial, ...]]  # values, and the trials with them, which all failed

OWN = "Measured: "
ONCE = "Measured once: "
_LONGEST = 600  # characters of a note
_SHOWN = 3  # examples in a note
_NEVER = re.compile(rf"{OWN}(.+) never worked")
_STRUCTURE = re.compile(r"^All \d+ kernels with .* \(structure (\w+)\) failed: ")


@dataclass(frozen=True)
class Family:
    """Judged kernels that differ only in the values of their tunables."""

    tunables: tuple[Tunable, ...]
    accepted: tuple[tuple[Trial, Config], ...]
    failed: tuple[tuple[Trial, Config], ...]  # by the kernel's own fault; harness errors are left out
    scale: Scale


@dataclass(frozen=True)
class Effect:
    """Two accepted kernels that differ in one tunable. The earlier value in the declared list comes first."""

    tunable: Tunable
    values: tuple[str, str]
    trials: tuple[Trial, Trial]
    gain: float  # logarithm of the second's speed-up over the first: positive if it is faster, 0 if unknown


def judged_families(population: Population) -> list[Family]:
    """Return every judged structure, split by dispatch lines, in order of first appearance."""
    families = []
    for members in comparable_families(population):
        group = [m for m in members if m.trial.evaluation and m.trial.evaluation.verdict is not Verdict.HARNESS]
        if group:
            right = tuple((m.trial, m.values) for m in group if m.trial.score_us)
            wrong = tuple((m.trial, m.values) for m in group if not m.trial.score_us)
            families.append(Family(declared(group[0].kernel.main), right, wrong, population.scale))
    return families


def effects(family: Family) -> list[Effect]:
    """Return the effects of neighbouring values of each tunable, everything else being equal."""
    effects = []
    for tunable in family.tunables:
        rank = {value: index for index, value in enumerate(tunable.options)}
        groups: dict[frozenset[tuple[str, str]], dict[str, Trial]] = defaultdict(dict)
        for trial, config in family.accepted:
            if tunable.name not in effective_values(family.tunables, config):
                continue
            rest = frozenset(item for item in config.items() if item[0] != tunable.name)
            groups[rest].setdefault(config[tunable.name], trial)
        for group in groups.values():
            ordered = sorted(group, key=lambda value: rank.get(value, -1))
            for pair in pairwise(ordered):
                first, second = group[pair[0]], group[pair[1]]
                speed = family.scale.ratio(second.id, first.id)
                effects.append(Effect(tunable, pair, (first, second), math.log(speed.ratio) if speed else 0.0))
    return effects


def effects_table(population: Population, tokens: int) -> str:
    """Return the gain of each change of one tunable, a line each, the largest first, within so many tokens: `BM 64→128:
    +9.0 % (median of 3 pairs of kernels)`.
    """
    gains: dict[str, list[float]] = defaultdict(list)
    for family in judged_families(population):
        for effect in effects(family):
            if (speed := family.scale.ratio(effect.trials[1].id, effect.trials[0].id)) and speed.ranked:
                gains[f"{effect.tunable.name} {'→'.join(effect.values)}"].append(speed.gain_percent)
    medians = {change: statistics.median(each) for change, each in gains.items()}
    lines: list[str] = []
    for change in sorted(medians, key=lambda each: -abs(math.log1p(medians[each] / 100))):
        pairs = f" (median of {len(gains[change])} pairs of kernels)" if len(gains[change]) > 1 else ""
        lines.append(f"{change}: {medians[change]:+.1f} %{pairs}")
        if estimate("\n".join(lines)) > tokens:
            return "\n".join(lines[:-1])
    return "\n".join(lines)


def dead_ends(family: Family, at_least: int) -> list[DeadEnd]:
    """Return the values that at least so many failures have in common, and no accepted kernel."""
    judged = (*family.accepted, *family.failed)
    failures = Failures(
        point(trial, effective_values(family.tunables, config), family.scale.time_us(trial.id))
        for trial, config in judged
    )
    trials = {trial.id: trial for trial, _ in family.failed}
    causes = [cause for cause in failures.causes() if len(cause.trials) >= at_least]
    return [(cause.values, tuple(trials[id] for id in cause.trials)) for cause in causes]


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
        f"{best.id} has the lowest time of {len(family.accepted) + len(family.failed)} kernels with these tunables, "
        f"{len(family.failed)} of which failed: {family.scale.time_us(best.id):.1f} us{times}. "
        f"{' '.join(f'{name}={value}' for name, value in effective_values(family.tunables, config).items())}"
    )
    return _note(f"{OWN}lowest time with {len(family.tunables)} tunables is of {best.id}", text, [first, best])


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
