"""The command `probe`: questions to the hardware. Answers become notes with their programs beside them.

The shipped questions come first; then a model may ask (prober=llm). What was answered by the same program on the same
machine is not asked again.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from rich.console import Console

from ksflow import home, report
from ksflow.cli.task import recorded_task
from ksflow.config import compose, keys
from ksflow.errors import BudgetError, ConfigError, StageError, boolean, explain_write_errors, suggest
from ksflow.kernels.hardware.target import label
from ksflow.notes import figures, knowledge, probes
from ksflow.notes.probes import Probe, ProbeBench
from ksflow.records import Note, Problem, Status, Target, Verdict

_TWICE = 2.0
"""A claim's figure and the measured one that are farther apart than this contradict each other."""


class Prober(Protocol):
    """Asks the hardware."""

    bench: ProbeBench
    most: int
    """How many questions of its own it asks."""

    def __call__(
        self, problem: Problem, notes: tuple[Note, ...], claim: Note | None = None, failed: str = ""
    ) -> Probe | None:
        """The next question: one that settles `claim`, or the program that failed, mended; None where it has none.

        failed: why it did, and its text.
        """


@dataclass(frozen=True)
class ProbeOutcome:
    """What became of one question."""

    probe: Probe
    state: str
    """`measured`, `known`, `skipped`, `waits` (for the chip) or `failed`."""
    line: str
    note: Note | None = None


def probe(words: list[str], overrides: list[str]) -> int:
    """`probe [NAME ...] [again=true]`: 0, or 1 where a program failed."""
    own, rest = keys.own_options(overrides, "again")
    again = boolean("again", own.get("again", "false"))
    cfg = compose.compose(rest)
    target: Target = compose.build(cfg.target)
    fit = tuple(probe for probe in probes.shipped_probes() if probe.kernel.language == probes.language(target))
    for name in words:
        if name not in [probe.name for probe in probes.shipped_probes()]:
            raise ConfigError(f"no probe {name}; {suggest(name, [probe.name for probe in fit])}")
    chosen = tuple(probe for probe in probes.shipped_probes() if probe.name in words) if words else fit
    prober: Prober = compose.build(cfg.prober)
    folder = knowledge.user_folder(cfg.lineage.path) / label(target)
    console = report.console()
    answers = [_show(console, answer) for answer in ask(chosen, prober.bench, folder, again)]
    if prober.most:
        problem: Problem = compose.build(cfg.problem)
        notes: tuple[Note, ...] = compose.build(cfg.knowledge)(target=target, problem=problem.name)
        with recorded_task(cfg, problem, "probe"):
            answers += [_show(console, answer) for answer in ask_own(prober, problem, notes, folder)]
    counts = {state: sum(answer.state == state for answer in answers) for state in ("measured", "known", "failed")}
    summary = ", ".join(f"{count} {state}" for state, count in counts.items())
    report.say(console, f"{summary}; notes are in {folder}")
    return 1 if counts["failed"] else 0


def ask(chosen: tuple[Probe, ...], bench: ProbeBench, folder: Path, again: bool = False) -> Iterator[ProbeOutcome]:
    """Each question in turn; its note is in the folder before the next one is asked."""
    known = {} if again else _measured(folder)
    for probe in chosen:
        if why := probe.lacks(bench.target):
            yield ProbeOutcome(probe, "skipped", why)
        elif (note := known.get(figures.source(probe, bench.target))) is not None:
            yield ProbeOutcome(probe, "known", note.text, note)
        else:
            yield _run(probe, bench, folder)


def ask_own(prober: Prober, problem: Problem, notes: tuple[Note, ...], folder: Path) -> Iterator[ProbeOutcome]:
    """The prober's own questions, each with one more chance; it sees all answers so far. A failed one is no note."""
    known = {note.title: note for note in (*notes, *_measured(folder).values())}
    for _ in range(prober.most):
        try:
            answer = _ask_prober(prober, problem, tuple(known.values()), folder)
        except (StageError, BudgetError) as error:
            report.say(report.console(stderr=True), f"no further question: {error}")
            return
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
    if not (prober.bench.present and knowledge.is_relevant(note, prober.bench.target)):
        return None
    answer = _ask_prober(prober, problem, notes, folder, note)
    if answer is None or answer.note is None:
        return None
    measured = answer.note
    wrong = figures.find_contradiction(note.text, measured.text, answer.probe, _TWICE)
    text = f"{note.text}\n\nMeasured: {measured.text}" + (f" This contradicts {wrong}." if wrong else "")
    return replace(
        note,
        text=text,
        status=Status.REFUTED if wrong else Status.MEASURED,
        sources=(*note.sources, *measured.sources),
        quotes=(*note.quotes, "") if note.quotes else (),
        program=measured.program,
        challenge="",
    )


def _ask_prober(
    prober: Prober, problem: Problem, notes: tuple[Note, ...], folder: Path, claim: Note | None = None
) -> ProbeOutcome | None:
    """The answer to the prober's next question, mended once where it failed; None where it has no question."""
    probe = prober(problem, notes, claim)
    answer = _run(probe, prober.bench, folder) if probe else None
    if probe is None or answer is None or answer.state != "failed":
        return answer
    mended = prober(problem, notes, claim, f"{answer.line}\n\n{probe.kernel.main}")
    return _run(mended, prober.bench, folder) if mended else answer


def _run(probe: Probe, bench: ProbeBench, folder: Path) -> ProbeOutcome:
    """Run it, and keep the answer: the program first, as a note without it would be worth less."""
    evaluation = bench(probe.problem, probe.kernel)
    untimed = evaluation.verdict is Verdict.UNTIMED
    if not (bench.present and (evaluation.accepted or (untimed and not probe.timed))):
        if untimed:
            return ProbeOutcome(probe, "waits", f"for the chip; {evaluation.reason}")
        return ProbeOutcome(probe, "failed", f"{evaluation.verdict}: {evaluation.reason}")
    try:
        note = figures.note(probe, evaluation, bench.target)
    except ValueError as error:
        return ProbeOutcome(probe, "failed", f"its figures: {error}")
    with explain_write_errors(folder, "name another folder"):
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in probe.kernel.files.items():
            home.write(folder / name, text)
    knowledge.write(note, folder, "probe")
    return ProbeOutcome(probe, "measured", note.text, note)


def _measured(folder: Path) -> dict[str, Note]:
    """The measured notes that are there, by what they rest on."""
    notes = [note for note in knowledge.in_folder(folder) if note.status is Status.MEASURED]
    return {source: note for note in notes for source in note.sources}


def _show(console: Console, answer: ProbeOutcome) -> ProbeOutcome:
    report.say(console, f"{answer.probe.name:16} {answer.state:9} {answer.line}")
    return answer
