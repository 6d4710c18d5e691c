"""The verb `knowledge`: what is known, whether its sources hold, and a person's doubt.

A challenge asks a note for its sources. What none of them bears out is `assumed` from then on, and every prompt shows
the doubt. Shipped notes are never written: the user's folder gets a copy, which replaces the shipped one.
"""

import re
import shutil
from collections import Counter
from collections.abc import Iterable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ksflow import report
from ksflow.cli import probe, verify
from ksflow.cli.sources import SourceCheck, Sources
from ksflow.cli.task import recorded_task
from ksflow.config import compose, keys
from ksflow.errors import BudgetError, ConfigError, StageError, explain_write_errors, pluralize
from ksflow.kernels.hardware.target import label
from ksflow.loop import judging
from ksflow.notes import knowledge
from ksflow.notes.knowledge import StoredNote
from ksflow.records import Note, Problem, Status

_USAGE = (
    'knowledge, knowledge show TITLE, knowledge check, knowledge challenge TITLE [note="why"], knowledge uphold TITLE'
)
_WAS = re.compile(r" \(was (\w+)\)$")
_SETTING = re.compile(r"-|[+~]*[a-z0-9_.@/]+(=|$)")
_MARKS = {True: "holds", False: "DOES NOT HOLD", None: "cannot tell"}


@dataclass(frozen=True)
class _Command:
    """What the verb works with."""

    console: Console
    cfg: Any
    problem: Problem
    sources: Sources
    folder: Path
    """The user's own."""
    entries: tuple[StoredNote, ...]
    broken: tuple[str, ...]
    why: str
    """What a person says of a note."""

    def say(self, *lines: str) -> None:
        """Notes are written by models: nothing in them is markup."""
        report.say(self.console, *lines)


def show_knowledge(words: list[str], overrides: list[str]) -> int:
    """`knowledge` and its commands; 1 where `check` found something that does not hold."""
    words += [item for item in overrides if not _SETTING.match(item)]  # a title with `=` in it
    own, settings = keys.own_options([item for item in overrides if _SETTING.match(item)], "note")
    command = _command(settings, own.get("note", ""))
    try:
        match words:
            case []:
                _list(command)
            case ["check"]:
                return _check(command)
            case [("show" | "challenge" | "uphold") as verb, *title] if title:
                entry = knowledge.find_note(command.entries, " ".join(title))
                {"show": _show, "challenge": _challenge, "uphold": _uphold}[verb](command, entry)
            case _:
                raise ConfigError(f"no command 'knowledge {' '.join(words)}'; commands: {_USAGE}")
    finally:
        command.sources.close()
    return 0


def _command(overrides: list[str], why: str) -> _Command:
    """Every note that is known here; of a target or a problem, where one is named."""
    cfg = compose.compose(overrides)
    problem: Problem = compose.build(cfg.problem)
    options = compose.build(cfg.knowledge).keywords
    stored, broken = knowledge.stored_notes(**options)
    sources = Sources(compose.build(cfg.lineage), problem.name, str(cfg.run))
    lineage = sources.lineage()
    where = f"run {problem.name}/{cfg.run}"
    entries = (*stored, *(StoredNote(note, where) for note in (lineage.notes() if lineage else ())))
    named = {item.lstrip("+").partition("=")[0].partition(".")[0] for item in overrides}
    if "target" in named:
        target = compose.build(cfg.target)
        entries = tuple(entry for entry in entries if knowledge.is_relevant(entry.note, target))
    if "problem" in named:
        entries = tuple(e for e in entries if not e.note.problems or problem.name in e.note.problems)
    folder = knowledge.user_folder(options.get("lineage", knowledge.LINEAGE))
    return _Command(report.console(), cfg, problem, sources, folder, entries, broken, why)


# -- looking ---------------------------------------------------------------------------------------


def _list(command: _Command) -> None:
    table = Table(box=SIMPLE_HEAD)
    table.add_column("note", overflow="fold", ratio=1)
    for name in ("status", "sources", "for", "where"):
        table.add_column(name, overflow="fold", justify="right" if name == "sources" else "left")
    for entry in command.entries:
        note = entry.note
        chips = ", ".join((*note.targets, *note.problems)) or "all"
        cells = (note.title, _trust(note), str(len(note.sources)), chips, entry.where)
        table.add_row(*(Text(" ".join(cell.split())) for cell in cells))
    command.console.print(table)
    doubted = sum(bool(entry.note.challenge) for entry in command.entries)
    count = pluralize(len(command.entries), "note")
    command.say(f"{count}, {doubted} challenged; your own are kept in {command.folder}")
    command.say(*(f"not read: {line}" for line in command.broken))


def _show(command: _Command, entry: StoredNote) -> None:
    note = entry.note
    command.say(note.title)
    command.say(f"{_trust(note)}; {entry.where}{f'; {entry.file}' if entry.file else ''}")
    if note.challenge:
        command.say(f"challenged: {note.challenge}")
    command.say(f"\n{note.text}\n")
    quotes = note.quotes or ("",) * len(note.sources)
    for at, (source, quote) in enumerate(zip(note.sources, quotes, strict=True), 1):
        command.say(f"[{at}] {source}{f': {quote!r}' if quote else ''}")
    lists = {"targets": note.targets, "problems": note.problems, "stands for": note.closes}
    command.say(*(f"{name}: {', '.join(values)}" for name, values in lists.items() if values))


def _check(command: _Command) -> int:
    """Every source of every note; those that hold are counted.

    What ships comes without the documents; saying so for each of its sources would hide the rest.
    """
    _expect(command)
    counts: Counter[bool | None] = Counter()
    for entry in command.entries:
        findings = command.sources.check_note(entry)
        counts.update(finding.holds for finding in findings)
        doubted = [row for row in findings if row.holds is False or (row.holds is None and not entry.shipped)]
        if doubted:
            command.say(f"{entry.note.title} ({entry.where})")
            _tell(command, doubted)
    command.say(
        f"{pluralize(len(command.entries), 'note')}; sources that hold: {counts[True]}, that do not: {counts[False]}, "
        f"of which it cannot be told here: {counts[None]}"
    )
    command.say(*(f"not read: {line}" for line in command.broken))
    return 1 if counts[False] or command.broken else 0


def _expect(command: _Command) -> None:
    """Have the run's lineage tell what is stale, where its judge can be built here."""
    if lineage := command.sources.lineage():
        with suppress(ConfigError):
            verify.expect(lineage, judging.current_key(command.problem, compose.evaluator(command.cfg)))


# -- doubting --------------------------------------------------------------------------------------


def _challenge(command: _Command, entry: StoredNote) -> None:
    """Show what the sources say; keep the doubt; have a probe settle it where one can."""
    _expect(command)
    note = entry.note
    command.say(f"{note.title} ({_trust(note)}; {entry.where})")
    findings = command.sources.check_note(entry)
    _tell(command, findings, around=True)
    reason = _WAS.sub("", " ".join(command.why.split()) or note.challenge or "a person doubts it")
    lost = not any(finding.holds for finding in findings) and note.status is not Status.REFUTED
    was = _former(note)
    status = Status.ASSUMED if lost else was
    changed = replace(note, status=status, challenge=reason if status is was else f"{reason} (was {was.value})")
    entry = _keep(command, entry, changed)
    verdict = "no source bears it out: it is assumed now" if lost else f"at least one source holds: it stays {status}"
    if note.status is Status.REFUTED:
        verdict = "it is refuted already"
    command.say(f"challenged: {reason}\n{verdict}; prompts show the doubt. Kept in {entry.file or entry.where}")
    _probe(command, entry)


def _probe(command: _Command, entry: StoredNote) -> None:
    """Have a probe measure what the note claims, where one can."""
    target = compose.build(command.cfg.target)
    folder = entry.file.parent if entry.file else command.folder / label(target)
    notes: tuple[Note, ...] = compose.build(command.cfg.knowledge)(target=target, problem=command.problem.name)
    prober: probe.Prober = compose.build(command.cfg.prober)
    try:
        with recorded_task(command.cfg, command.problem, "challenge") if prober.most else nullcontext():
            settled = probe.settle(entry.note, prober, command.problem, notes, folder)
    except (StageError, BudgetError) as error:
        command.say(f"the probe did not answer: {error}")
        return
    if settled is not None:
        saved = _keep(command, entry, settled)
        command.say(f"settled by a probe: {settled.status.value}. {settled.text}\nKept in {saved.file or saved.where}")
    elif knowledge.is_relevant(entry.note, target):
        command.say("no probe here settles it; with prober=llm llm=NAME a model writes one")
    else:
        command.say(f"it is about {', '.join(entry.note.targets)}, which a probe on {label(target)} cannot settle")


def _uphold(command: _Command, entry: StoredNote) -> None:
    note = entry.note
    if not note.challenge:
        raise ConfigError(f"nobody challenges {note.title!r}; knowledge challenge TITLE does")
    saved = _keep(command, entry, replace(note, status=_former(note), challenge=""))
    command.say(f"{note.title}: upheld, {_trust(saved.note)}. Kept in {saved.file or saved.where}")


def _former(note: Note) -> Status:
    """The status before it was challenged."""
    match = _WAS.search(note.challenge)
    return Status(match[1]) if match and match[1] in set(Status) else note.status


def _keep(command: _Command, entry: StoredNote, note: Note) -> StoredNote:
    """Write a changed note where it belongs: into the run, the user's file, or a copy of a shipped file."""
    if entry.file is None:
        lineage = command.sources.lineage()
        assert lineage is not None
        lineage.population()
        before = lineage.notes()
        notes = (note if old.title == entry.note.title else old for old in before)
        lineage.learn(tuple(notes), lineage.digested_count, before)
        return replace(entry, note=note)
    if not entry.shipped:
        return replace(entry, note=note, file=knowledge.write(note, entry.file.parent))
    folder = command.folder / entry.file.parent.name
    # under its own name, by which a person may call it again; where that is taken, it gets another
    with explain_write_errors(folder, "name another folder"):
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / entry.file.name).exists():
            shutil.copyfile(entry.file, folder / entry.file.name)
    file = knowledge.write(note, folder, "a copy of the note that ships")
    if note.program:
        shutil.copyfile(entry.file.parent / note.program, folder / note.program)
    return StoredNote(note, str(folder), file)


# -- telling ---------------------------------------------------------------------------------------


def _trust(note: Note) -> str:
    return f"{note.status.value}{', challenged' if note.challenge else ''}"


def _tell(command: _Command, findings: Iterable[SourceCheck], around: bool = False) -> None:
    for finding in findings:
        command.say(f"  {_MARKS[finding.holds]}: {finding.source}: {finding.said}")
        if around and finding.context:
            command.say(f"      {finding.context}")
