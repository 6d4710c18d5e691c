"""What was tried, for who designs the next experiments: all of it where there is room, what was learnt first."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, takewhile

from ksflow.errors import short
from ksflow.notes.relevance import CHARACTERS
from ksflow.prompts.render import percent, sentences, us
from ksflow.records import Choice, Experiment, Origin, Population, Speedup, Trial, Verdict, base_of, speedup

_LENGTHS = (1_000, 400, 160)  # characters of a description: the first with which all that was tried has room
_BASE_SHARE = 0.75  # of the room, at most, for what was tried on the base
_LEFT_SHARE = 0.2  # and for what was designed and not run
_LEAST = 40  # characters of a line
_HEADING = 90  # characters of a line above others
_COUNT = 160  # characters of the lines that count what is left out
_REASON = 200  # characters of why a trial failed
_SHARED = 24  # characters from which on the opening that a line shares with the one above it is folded
_SHAPES, _DIFFERS = 3, 0.02  # shapes that are shown, whose gain differs by so much from that of the whole
_KINDS = ("Faster", "Slower", "Failed", "No difference beyond noise", "Not told apart by the judge")


def tried(population: Population, choice: Choice, tokens: int) -> str:
    """What was tried on the base, then elsewhere, by base and by what came of it; then what was designed and not run.

    Not longer than `tokens`: with less room descriptions are shorter, then the oldest are counted instead. Dead ends
    that a finding stands for are left out, and counted.
    """
    closed = closed_trials(population)
    experiments = [trial for trial in reversed(population.trials) if trial.experiment and trial.id not in closed]
    bases = {trial.id: base.id for trial in experiments if (base := base_of(trial, population.by_id))}
    here = choice.base.id
    on_base = [trial for trial in experiments if bases.get(trial.id) == here]
    elsewhere = [trial for trial in experiments if bases.get(trial.id) != here]
    room = CHARACTERS * tokens - 4 * _COUNT
    left = _left(population, int(room * _LEFT_SHARE))
    count = sum(trial.id in closed for trial in population.trials if trial.experiment)
    tail = [*stand_in(count, "experiments"), *([left] if left else [])]
    room -= sum(map(len, tail))
    for length in _LENGTHS if len(experiments) <= room // _LEAST else ():
        text = "\n".join(_all(population, choice, on_base, elsewhere, bases, length))
        if len(text) <= room:
            return "\n".join([text, *tail])
    length = _LENGTHS[-1]
    share = int(room * _BASE_SHARE) if elsewhere else room
    first = _fitting(on_base, population, share - _HEADING * len(_KINDS), length)
    room -= sum(len(_line(trial, population, length)) + 1 for trial in first) + _HEADING * len(_KINDS)
    second = _fitting(elsewhere, population, room, length, bases)
    parts = _all(population, choice, first, second, bases, length)
    if missing := on_base[len(first) :]:
        gained = sum((gain := speedup(trial, choice.base)) is not None and gain.ratio > 1 for trial in missing)
        failed = sum(_kind(trial, population) == "Failed" for trial in missing)
        parts.append(f"({len(missing)} earlier ones on {here} are not shown: {gained} were faster, {failed} failed)")
    if missing := elsewhere[len(second) :]:
        parts.append(f"({len(missing)} earlier ones on other bases are not shown)")
    return "\n".join([*parts, *tail])


def _all(
    population: Population,
    choice: Choice,
    on_base: Sequence[Trial],
    elsewhere: Sequence[Trial],
    bases: Mapping[str, str],
    length: int,
) -> list[str]:
    parts = [f"On the base {choice.base.id}:", *(_group(on_base, population, length) or ["(nothing)"])]
    for base in dict.fromkeys(bases.get(trial.id, "") for trial in elsewhere):
        parts.append(f"On {base} ({us(population.by_id[base].score_us)}):" if base else "On nothing:")
        parts += _group([trial for trial in elsewhere if bases.get(trial.id, "") == base], population, length)
    return parts


def closed_trials(population: Population) -> frozenset[str]:
    """Trials that findings stand for and that are no seed and were never the best."""
    if not population.pruned:
        return frozenset()
    notable = {trial.id for trial in (*population.best_so_far, *population.ranked[:1]) if trial}
    notable |= {trial.id for trial in population.trials if trial.origin is Origin.SEED}
    return population.pruned - notable


def stand_in(count: int, what: str) -> list[str]:
    """The line that counts them; none where there are none."""
    return [f"({count} {what} are left out: dead ends, which the findings stand for)"] if count else []


def has_failed(trial: Trial) -> bool:
    """Whether it came to nothing, through a fault of its own."""
    return bool(trial.failure) or (trial.evaluation is not None and not (trial.evaluation.accepted or untimed(trial)))


def untimed(trial: Trial) -> bool:
    """Nothing is wrong with it, but there was no device to time it on."""
    return trial.evaluation is not None and trial.evaluation.verdict in (Verdict.UNTIMED, Verdict.DISPUTED)


def _fitting(
    trials: Sequence[Trial], population: Population, room: int, length: int, bases: Mapping[str, str] | None = None
) -> list[Trial]:
    """The first of them, whose lines fit."""
    fit: list[Trial] = []
    seen: set[str] = set()
    for trial in trials:
        base = (bases or {}).get(trial.id, "")
        room -= len(_line(trial, population, length)) + 1 + (_HEADING if bases is not None and base not in seen else 0)
        seen.add(base)
        if room < 0:
            break
        fit.append(trial)
    return fit


def _group(trials: Iterable[Trial], population: Population, length: int) -> list[str]:
    """Lines under what came of them. Those that begin alike stand together, and say so once."""
    ordered = sorted(
        ((_KINDS.index(_kind(trial, population)), _what(trial), trial) for trial in trials),
        key=lambda row: (*row[:2], row[2].id),
    )
    lines: list[str] = []
    for kind, rows in groupby(ordered, key=lambda row: row[0]):
        lines.append(f"{_KINDS[kind]}:")
        above = reason = ""
        for _, what, trial in rows:
            same, reason = reason, _failure(trial)
            lines.append(_line(trial, population, length, _folded(what, above), same))
            above = what
    return lines


def _folded(text: str, above: str) -> str:
    """A text with dots for the words with which the one above it begins too."""
    alike = takewhile(lambda pair: pair[0] == pair[1], zip(text.split(" "), above.split(" "), strict=False))
    shared = " ".join(word for word, _ in alike)
    return f"...{text[len(shared) :]}" if len(shared) >= _SHARED else text


def _kind(trial: Trial, population: Population) -> str:
    if has_failed(trial):
        return "Failed"
    speed = _gain(trial, population)
    if speed is None or (trial.evaluation and trial.evaluation.unranked):
        return _KINDS[-1]
    return "Faster" if speed.low > 1 else "Slower" if speed.slower else "No difference beyond noise"


def _gain(trial: Trial, population: Population) -> Speedup | None:
    base = base_of(trial, population.by_id)
    return speedup(trial, base) if base else None


def _what(trial: Trial) -> str:
    return " ".join(trial.experiment.description.split()) if trial.experiment else trial.name


def _failure(trial: Trial) -> str:
    reason = trial.evaluation.reason if trial.evaluation else trial.failure
    return "" if trial.score_us is not None else f"{trial.verdict} {short(reason, _REASON)}".rstrip()


def _line(trial: Trial, population: Population, length: int, what: str = "", failed_above: str = "") -> str:
    what = sentences(what or _what(trial), length)
    if failed := _failure(trial):
        return f"- {trial.id}: {what} -> {'the same' if failed == failed_above else failed}"
    speed = _gain(trial, population)
    came = [us(trial.score_us), percent(speed.ratio) if speed else "", _shapes(trial, population, speed)]
    return f"- {trial.id}: {what} -> {', '.join(filter(None, came))}"


def _shapes(trial: Trial, population: Population, speed: Speedup | None) -> str:
    """The shapes whose gain differs most from that of the whole."""
    step = population.step(trial)
    if speed is None:
        return ""
    gains = {case: step.before_us[case] / now for case, now in step.after_us.items() if step.before_us.get(case)}
    far = {case: gain for case, gain in gains.items() if abs(gain / speed.ratio - 1) > _DIFFERS}
    most = sorted(far.items(), key=lambda pair: -abs(pair[1] / speed.ratio - 1))[:_SHAPES]
    return f"[{', '.join(f'{case} {percent(gain)}' for case, gain in most)}]" if len(gains) > 1 and most else ""


def _left(population: Population, room: int) -> str:
    """Experiments, then avenues, that earlier rounds brought and did not take up, the newest first."""
    done = {trial.experiment.description for trial in population.trials if trial.experiment}
    plans = population.plans[::-1]
    offers: dict[str, str] = {}
    for planned in plans:
        for experiment in planned.left:
            if experiment.description not in done:
                offers.setdefault(experiment.description, _offer(experiment, planned.base))
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


def _offer(experiment: Experiment, base: str) -> str:
    low, high = experiment.gain_percent
    return f"- for {base}, predicted {low:g} to {high:g} %: {sentences(experiment.description, _LENGTHS[1])}"
