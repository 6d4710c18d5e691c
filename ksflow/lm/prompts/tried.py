"""Earlier experiments, for designers of the next ones: all of them if there is room, the most instructive first; and
their results, for digesters: the newest in full, the others in a line each.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby, takewhile

from ksflow.errors import shorten
from ksflow.lm.prompts.brief import count
from ksflow.lm.prompts.failures import redacted_failure
from ksflow.lm.prompts.hardware import hardware, whole_lines
from ksflow.lm.prompts.render import outcome, sentences
from ksflow.lm.prompts.times import format_time, percent, times
from ksflow.notes.relevance import CHARACTERS
from ksflow.records import Origin, Population, Problem, Selection, Speedup, Trial, Verdict, base_of

_LENGTHS = (1_000, 400, 160, 100)  # characters of a description: the first length with which all experiments fit
_BASE_SHARE = 0.75  # of the room, at most, for experiments on the base
_LEFT_SHARE = 0.2  # and for experiments that were not run
_LEAST = 40  # characters of a line
_HEADING = 90  # characters of a line above others
_COUNT = 160  # characters of lines that count omissions
_REASON = 200  # characters of why a trial failed
_SHARED = 24  # characters from which on a common beginning with the line above is abbreviated
_SHAPES, _DIFFERS = 3, 0.02  # shapes that are shown, and least deviation of their gain from the whole's
_DESCRIPTION = 600  # characters of an experiment and of a writer's report, for a digester
_MESSAGES = 1_500  # of a failure's reason, with messages of compiler and judge
_HARDWARE = 2_500  # of compiler's lines and counters
_KINDS = ("Faster", "Slower", "Failed", "No difference beyond noise", "Not told apart by the judge")


@dataclass(frozen=True)
class _Row:
    """A trial of an experiment, as shown."""

    id: str
    base: str  # the id of the kernel for which the experiment was designed; empty if there is none
    kind: str
    what: str
    came: str  # its time, its gain and the shapes that stand out; empty without a time
    failure: str

    def line(self, length: int, what: str = "", failed_above: str = "") -> str:
        """Return it in one line: `what` replaces the description; a failure like the one above is abbreviated."""
        came = self.came if not self.failure else "the same" if self.failure == failed_above else self.failure
        return f"- {self.id}: {sentences(what or self.what, length)} -> {came}"


def tried_experiments(population: Population, selection: Selection, tokens: int) -> str:
    """Return experiments on the base, then on others, by base and result; then experiments that were not run.

    At most `tokens` long: with less room descriptions are shorter, then the oldest are only counted. Dead ends that a
    note replaces are left out, and counted.
    """
    closed = closed_trials(population)
    every = [trial for trial in reversed(population.trials) if trial.experiment]
    trials = [trial for trial in every if trial.id not in closed]
    here = selection.base.id
    bases = {trial.id: base.id for trial in trials if (base := base_of(trial, population.by_id))}
    room = CHARACTERS * tokens - 4 * _COUNT
    left = _left(population, int(room * _LEFT_SHARE))
    tail = [*stand_in(len(every) - len(trials), "experiments"), *([left] if left else [])]
    room -= sum(map(len, tail))
    row = cache(lambda name: _row(population.by_id[name], population))
    on_base = [trial.id for trial in trials if bases.get(trial.id) == here]
    elsewhere = [trial.id for trial in trials if bases.get(trial.id) != here]
    for length in _LENGTHS if len(trials) <= room // _LEAST else ():
        text = "\n".join(_all(population, here, [*map(row, on_base)], [*map(row, elsewhere)], length))
        if len(text) <= room:
            return "\n".join([text, *tail])
    length = _LENGTHS[-1]
    share = int(room * _BASE_SHARE) if elsewhere else room
    first = _fitting(map(row, on_base), share - _HEADING * len(_KINDS), length, here)
    room -= sum(len(row.line(length)) + 1 for row in first) + _HEADING * len(_KINDS)
    second = _fitting(map(row, elsewhere), room, length, here)
    parts = _all(population, here, first, second, length)
    if missing := [population.by_id[name] for name in on_base[len(first) :]]:
        gains = filter(None, (population.speedup(trial, selection.base) for trial in missing))
        gained = sum(gain.ratio > 1 for gain in gains)
        failed = sum(map(has_failed, missing))
        parts.append(f"({len(missing)} earlier ones on {here} are not shown: {gained} were faster, {failed} failed)")
    if count := len(elsewhere) - len(second):
        parts.append(f"({count} earlier ones on other bases are not shown)")
    return "\n".join([*parts, *tail])


def _all(
    population: Population, here: str, on_base: Sequence[_Row], elsewhere: Sequence[_Row], length: int
) -> list[str]:
    parts = [f"On the base {here}:", *(_group(on_base, length) or ["(nothing)"])]
    for base in dict.fromkeys(row.base for row in elsewhere):
        time = format_time(population.time_us(population.by_id[base])) if base else ""
        parts.append(f"On {base} ({time}):" if base else "On nothing:")
        parts += _group([row for row in elsewhere if row.base == base], length)
    return parts


def closed_trials(population: Population) -> frozenset[str]:
    """Return trials that notes replace and that are no seed and were never the best."""
    if not population.pruned:
        return frozenset()
    notable = {trial.id for trial in (*population.best_so_far, *population.ranked[:1]) if trial}
    notable |= {trial.id for trial in population.trials if trial.origin is Origin.SEED}
    return population.pruned - notable


def stand_in(count: int, what: str) -> list[str]:
    """Return the line that counts omissions; empty for none."""
    return [f"({count} {what} are left out: dead ends, which the findings stand for)"] if count else []


def has_failed(trial: Trial) -> bool:
    """Return whether it failed by its own fault."""
    judged = trial.evaluation
    return bool(trial.failure) or (judged is not None and not (judged.accepted or is_untimed(trial)))


def is_untimed(trial: Trial) -> bool:
    """Return whether it is right as far as known, without a device to time it."""
    return trial.evaluation is not None and trial.evaluation.verdict is Verdict.UNTIMED


def _fitting(rows: Iterable[_Row], room: int, length: int, here: str) -> list[_Row]:
    fit: list[_Row] = []
    headed = {here}
    for row in rows:
        room -= len(row.line(length)) + 1 + (_HEADING if row.base not in headed else 0)
        headed.add(row.base)
        if room < 0:
            break
        fit.append(row)
    return fit


def _group(rows: Iterable[_Row], length: int) -> list[str]:
    ordered = sorted(rows, key=lambda row: (_KINDS.index(row.kind), row.what, row.id))
    lines: list[str] = []
    for kind, alike in groupby(ordered, key=lambda row: row.kind):
        lines.append(f"{kind}:")
        above = reason = ""
        for row in alike:
            lines.append(row.line(length, _folded(row.what, above), reason))
            above, reason = row.what, row.failure
    return lines


def _folded(text: str, above: str) -> str:
    alike = takewhile(lambda pair: pair[0] == pair[1], zip(text.split(" "), above.split(" "), strict=False))
    shared = " ".join(word for word, _ in alike)
    return f"...{text[len(shared) :]}" if len(shared) >= _SHARED else text


def _row(trial: Trial, population: Population) -> _Row:
    base = base_of(trial, population.by_id)
    gain = population.speedup(trial, base)
    reason = trial.evaluation.reason if trial.evaluation else trial.failure
    failure = "" if trial.score_us is not None else f"{trial.verdict} {shorten(reason, _REASON)}".rstrip()
    parts = [format_time(population.time_us(trial))]
    parts += [percent(gain.ratio), _shapes(trial, population, gain)] if gain else []
    if has_failed(trial):
        kind = "Failed"
    elif gain is None or not gain.ranked:
        kind = _KINDS[-1]
    else:
        kind = "Faster" if gain.ahead else "Slower" if gain.slower else "No difference beyond noise"
    what = " ".join(trial.experiment.description.split()) if trial.experiment else trial.name
    came = "" if failure else ", ".join(filter(None, parts))
    return _Row(trial.id, base.id if base else "", kind, what, came, failure)


def _shapes(trial: Trial, population: Population, gain: Speedup) -> str:
    step = population.step(trial)
    gains = {case: step.before_us[case] / now for case, now in step.after_us.items() if step.before_us.get(case)}
    far = {case: each for case, each in gains.items() if abs(each / gain.ratio - 1) > _DIFFERS}
    most = sorted(far.items(), key=lambda pair: -abs(pair[1] / gain.ratio - 1))[:_SHAPES]
    return f"[{', '.join(f'{case} {percent(each)}' for case, each in most)}]" if len(gains) > 1 and most else ""


def _left(population: Population, room: int) -> str:
    """Return experiments, then avenues, of earlier rounds that were not used, newest first."""
    done = {trial.experiment.description for trial in population.trials if trial.experiment}
    plans = population.plans[::-1]
    offers: dict[str, str] = {}
    for planned in plans:
        for experiment in planned.remaining_experiments:
            if experiment.description not in done:
                low, high = experiment.gain_percent
                what = sentences(experiment.description, _LENGTHS[1])
                offer = f"- for {planned.base}, predicted {low:g} to {high:g} %: {what}"
                offers.setdefault(experiment.description, offer)
    avenues = dict.fromkeys(f"- {sentences(text, _LENGTHS[-1])}" for planned in plans for text in planned.plan.avenues)
    lines: list[str] = []
    for heading, rows in (("Designed earlier and not run:", offers.values()), ("Avenues of earlier rounds:", avenues)):
        room -= len(heading) + 1
        fit: list[str] = []
        for row in rows:
            room -= len(row) + 1
            if room < 0:
                break
            fit.append(row)
        lines += [heading, *fit] if fit else []
    return "\n".join(lines)


def reports(trials: Sequence[Trial], population: Population, problem: Problem, tokens: int) -> str:
    """Return a line for each trial, oldest first; the newest of them, as many as fit, with times and gains by shape,
    reports of compiler and counters, or why they failed. If not even the lines fit, the oldest are counted. "" without
    trials.
    """
    shown: list[str] = []
    lines = [f"- {outcome(trial, population)}" for trial in trials]
    sizes = [count(line) + 1 for line in lines]
    first = next((at for at in range(len(lines)) if sum(sizes[at:]) <= tokens), len(lines))
    room = tokens - sum(sizes[first:])
    for trial, line, size in reversed([*zip(trials, lines, sizes, strict=True)][first:]):
        full = "\n".join([line, *_details(trial, population, problem)])
        extra = count(full) + 1 - size
        shown.insert(0, full if extra <= room else line)
        room -= extra if extra <= room else 0
    return "\n".join([*([f"({first} earlier ones are not shown)"] if first else []), *shown])


def _details(trial: Trial, population: Population, problem: Problem) -> Iterator[str]:
    if trial.experiment:
        yield f"The experiment: {sentences(trial.experiment.description, _DESCRIPTION)}"
    if trial.evaluation is None or not trial.evaluation.accepted:
        yield whole_lines(redacted_failure(trial), _MESSAGES)
        return
    yield times(trial, population.step(trial))
    if measured := "\n".join(hardware(trial.evaluation, trial.kernel, problem)):
        yield whole_lines(measured, _HARDWARE)
    if trial.kernel and trial.kernel.report:
        yield f"Its writer's report: {shorten(trial.kernel.report, _DESCRIPTION)}"
