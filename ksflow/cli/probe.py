"""The command `probe`: questions to the hardware. Answers become notes with their programs beside them.

The shipped questions come first; then a model may ask (prober=llm). What was answered by the same program on the same
machine is not asked again.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from rich.console import Console

from ksflow import report
from ksflow.cli.task import recorded_task
from ksflow.config import compose
from ksflow.errors import BudgetError, ConfigError, StageError, suggest
from ksflow.hardware.target import label
from ksflow.notes import figures, knowledge, probes
from ksflow.notes.probes import Bench, Probe
from ksflow.records import Evaluation, Note, Problem, Status, Target, Verdict

ORIGIN = "probe"
_TWICE = 2.0
"""A claim's figure and the measured one that are farther apart than this contradict each other."""


@dataclass(frozen=True)
class Failed:
    """A program that did not answer."""

    probe: Probe
    reason: str


class Prober(Protocol):
    """Asks the hardware."""

    bench: Bench
    most: int
    """How many questions of its own it asks."""

    def __call__(
        self, problem: Problem, notes: tuple[Note, ...], claim: Note | None = None, failed: Failed | None = None
    ) -> Probe | None:
        """The next question: one that settles `claim`, or `failed` mended; None where it has none."""


@dataclass(frozen=True)
class Answer:
    """What became of one question."""

    probe: Probe
    state: str
    """`measured`, `known`, `skipped`, `waits` (for the chip) or `failed`."""
    line: str
    note: Note | None = None


def probe(words: list[str], overrides: list[str]) -> int:
    """`probe [NAME ...] [again=true]`: 0, or 1 where a program failed."""
    again = _again([word for word in overrides if word.startswith("again=")])
    cfg = compose.compose([word for word in overrides if not word.startswith("again=")])
    target: Target = compose.build(cfg.target)
    chosen = _chosen(words, target)
    prober: Prober = compose.build(cfg.prober)
    folder = knowledge.user_folder(cfg.lineage.path) / label(target)
    console = report.console()
    answers = [_told(console, answer) for answer in ask(chosen, prober.bench, folder, again)]
    if prober.most:
        problem: Problem = compose.build(cfg.problem)
        notes: tuple[Note, ...] = compose.build(cfg.knowledge)(target=target, problem=problem.name)
        with recorded_task(cfg, problem, "probe"):
            answers += [_told(console, answer) for answer in converse(prober, problem, notes, folder)]
    counts = {state: sum(answer.state == state for answer in answers) for state in ("measured", "known", "failed")}
    said = ", ".join(f"{count} {state}" for state, count in counts.items())
    console.print(f"{said}; notes are in {folder}", markup=False, soft_wrap=True)
    return 1 if counts["failed"] else 0


def ask(chosen: tuple[Probe, ...], bench: Bench, folder: Path, again: bool = False) -> Iterator[Answer]:
    """Each question in turn; its note is in the folder before the next one is asked."""
    known = {} if again else _kept(folder)
    for one in chosen:
        if why := one.lacks(bench.target):
            yield Answer(one, "skipped", why)
        elif (note := known.get(figures.source(one, bench.target))) is not None:
            yield Answer(one, "known", note.text, note)
        else:
            yield _answered(one, bench, folder)


def converse(prober: Prober, problem: Problem, notes: tuple[Note, ...], folder: Path) -> Iterator[Answer]:
    """The prober's own questions, each with one more chance; it sees all answers so far. A failed one is no note."""
    known = {note.title: note for note in (*notes, *_kept(folder).values())}
    for _ in range(prober.most):
        answer = _own(prober, problem, tuple(known.values()), folder, None)
        if answer is None:
            return
        if answer.note:
            known[answer.note.title] = answer.note
        yield answer


def settle(note: Note, prober: Prober, problem: Problem, notes: tuple[Note, ...], folder: Path) -> Note | None:
    """The note, measured or refuted by a program that measures what it claims; None where nothing here can.

    Refuted where a figure of the note in the probe's unit is more than twice, or less than half, of what was measured.
    A note on other hardware is left alone: this machine cannot tell.
    """
    if not (prober.bench.present and knowledge.fits(note, prober.bench.target)):
        return None
    answer = _own(prober, problem, notes, folder, note)
    if answer is None or answer.note is None:
        return None
    found = answer.note
    wrong = figures.contradicted(note.text, found.text, answer.probe, _TWICE)
    status = Status.REFUTED if wrong else Status.MEASURED
    text = f"{note.text}\n\nMeasured: {found.text}" + (f" This contradicts {wrong}." if wrong else "")
    blank = ("",) if note.quotes else ()
    return replace(
        note,
        text=text,
        status=status,
        sources=(*note.sources, *found.sources),
        quotes=(*note.quotes, *blank),
        program=found.program,
        challenge="",
    )


# -- inside ----------------------------------------------------------------------------------------


def _own(prober: Prober, problem: Problem, notes: tuple[Note, ...], folder: Path, claim: Note | None) -> Answer | None:
    try:
        one = prober(problem, notes, claim)
        if one is None:
            return None
        answer = _answered(one, prober.bench, folder)
        if answer.state != "failed":
            return answer
        mended = prober(problem, notes, claim, Failed(one, answer.line))
        return _answered(mended, prober.bench, folder) if mended else answer
    except (StageError, BudgetError) as error:
        if claim is not None:
            raise
        report.console(stderr=True).print(f"no further question: {error}", markup=False, soft_wrap=True)
        return None


def _answered(one: Probe, bench: Bench, folder: Path) -> Answer:
    """Run it, and keep the answer."""
    evaluation = bench(one.problem, one.kernel)
    if not _answers(evaluation, one, bench):
        return _unanswered(one, evaluation)
    try:
        note = figures.note(one, evaluation, bench.target)
    except ValueError as error:
        return Answer(one, "failed", f"its figures: {error}")
    _keep(one, note, folder)
    return Answer(one, "measured", note.text, note)


def _answers(evaluation: Evaluation, one: Probe, bench: Bench) -> bool:
    return bench.present and (evaluation.accepted or (evaluation.verdict is Verdict.UNTIMED and not one.timed))


def _unanswered(one: Probe, evaluation: Evaluation) -> Answer:
    if evaluation.verdict is Verdict.UNTIMED:
        return Answer(one, "waits", f"for the chip; {evaluation.reason}")
    return Answer(one, "failed", f"{evaluation.verdict}: {evaluation.reason}")


def _keep(one: Probe, note: Note, folder: Path) -> None:
    """The program first: a note without it would be worth less."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in one.kernel.files.items():
            (folder / name).write_text(text)
    except OSError as error:
        raise ConfigError(f"{folder}: a program cannot be written ({error.strerror}); name another folder") from error
    knowledge.write(note, folder, ORIGIN)


def _kept(folder: Path) -> dict[str, Note]:
    """The notes that are there, by what they rest on."""
    files = sorted(folder.glob("*.md")) if folder.is_dir() else []
    notes = [knowledge.read(file) for file in files if file.name != knowledge.INDEX]
    return {source: note for note in notes for source in note.sources if note.status is Status.MEASURED}


def _again(words: list[str]) -> bool:
    valid = {"again=true": True, "again=false": False}
    if unknown := [word for word in words if word.lower() not in valid]:
        raise ConfigError(f"{unknown[0]}; valid: {', '.join(valid)}")
    return any(valid[word.lower()] for word in words)


def _chosen(names: list[str], target: Target) -> tuple[Probe, ...]:
    """Those named, or all in the target's language. Raises ConfigError."""
    fit = [one for one in probes.ready() if one.kernel.language == probes.language(target)]
    for name in names:
        if not any(one.name == name for one in probes.ready()):
            raise ConfigError(f"no probe {name}; {suggest(name, [one.name for one in fit])}")
    return tuple(one for one in probes.ready() if one.name in names) if names else tuple(fit)


def _told(console: Console, answer: Answer) -> Answer:
    console.print(f"{answer.probe.name:16} {answer.state:9} {answer.line}", markup=False, soft_wrap=True)
    return answer
