"""The verb `knowledge`: what is known, whether its sources hold, and a person's doubt.

A challenge asks a note for its sources. What none of them bears out is `assumed` from then on, and every prompt shows
the doubt. Shipped notes are never written: the user's folder gets a copy, which replaces the shipped one.
"""

import re
import shutil
from collections.abc import Iterable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ksflow import evaluation, report
from ksflow.cli import probe, verify
from ksflow.cli.sources import Finding, Sources
from ksflow.cli.task import recorded_task
from ksflow.config import compose
from ksflow.errors import BudgetError, ConfigError, StageError, counted
from ksflow.hardware.target import label
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
class _Desk:
    """What the verb works with."""

    console: Console
    cfg: Any
    problem: Problem
    sources: Sources
    folder: Path
    """The user's own."""
    entries: tuple[StoredNote, ...]
    broken: tuple[str, ...]

    @property
    def run(self) -> tuple[str, str]:
        return self.problem.name, str(self.cfg.run)


def show_knowledge(words: list[str], overrides: list[str]) -> int:
    """`knowledge` and its commands; 1 where `check` found something that does not hold."""
    words += [item for item in overrides if not _SETTING.match(item)]  # a title with `=` in it
    settings = [item for item in overrides if _SETTING.match(item)]
    why = next((item.partition("=")[2].strip("\"'") for item in settings if item.startswith("note=")), "")
    desk = _desk([item for item in settings if not item.startswith("note=")])
    try:
        match words:
            case []:
                return _list(desk)
            case ["check"]:
                return _check(desk)
            case ["show", *title] if title:
                return _show(desk, knowledge.find_note(desk.entries, " ".join(title)))
            case ["challenge", *title] if title:
                return _challenge(desk, knowledge.find_note(desk.entries, " ".join(title)), why)
            case ["uphold", *title] if title:
                return _uphold(desk, knowledge.find_note(desk.entries, " ".join(title)))
        raise ConfigError(f"no command 'knowledge {' '.join(words)}'; commands: {_USAGE}")
    finally:
        desk.sources.close()


def _desk(overrides: list[str]) -> _Desk:
    """Every note that is known here; of a target or a problem, where one is named."""
    cfg = compose.compose(overrides)
    problem: Problem = compose.build(cfg.problem)
    options = compose.build(cfg.knowledge).keywords
    shelf = knowledge.stored_notes(**options)
    sources = Sources(compose.build(cfg.lineage), problem.name, str(cfg.run))
    lineage = sources.lineage(problem.name, str(cfg.run))
    where = f"run {problem.name}/{cfg.run}"
    entries = (*shelf.entries, *(StoredNote(note, where) for note in (lineage.notes() if lineage else ())))
    named = {item.lstrip("+").partition("=")[0].partition(".")[0] for item in overrides}
    if "target" in named:
        target = compose.build(cfg.target)
        entries = tuple(entry for entry in entries if knowledge.fits(entry.note, target))
    if "problem" in named:
        entries = tuple(e for e in entries if not e.note.problems or problem.name in e.note.problems)
    folder = knowledge.user_folder(options.get("lineage", knowledge.LINEAGE))
    return _Desk(report.console(), cfg, problem, sources, folder, entries, shelf.broken)


# -- looking ---------------------------------------------------------------------------------------


def _list(desk: _Desk) -> int:
    table = Table(box=SIMPLE_HEAD)
    table.add_column("note", overflow="fold", ratio=1)
    for name in ("status", "sources", "for", "where"):
        table.add_column(name, overflow="fold", justify="right" if name == "sources" else "left")
    for entry in desk.entries:
        note = entry.note
        chips = ", ".join((*note.targets, *note.problems)) or "all"
        cells = (note.title, _trust(note), str(len(note.sources)), chips, entry.where)
        table.add_row(*(Text(" ".join(cell.split())) for cell in cells))
    desk.console.print(table)
    doubted = sum(bool(entry.note.challenge) for entry in desk.entries)
    _say(desk, f"{counted(len(desk.entries), 'note')}, {doubted} challenged; your own are kept in {desk.folder}")
    return _name_broken(desk)


def _show(desk: _Desk, entry: StoredNote) -> int:
    note = entry.note
    quotes = note.quotes or ("",) * len(note.sources)
    rows = [
        note.title,
        f"{_trust(note)}; {entry.where}{f'; {entry.file}' if entry.file else ''}",
        *([f"challenged: {note.challenge}"] if note.challenge else []),
        f"\n{note.text}\n",
        *(
            f"[{at}] {s}{f': {q!r}' if q else ''}"
            for at, (s, q) in enumerate(zip(note.sources, quotes, strict=True), 1)
        ),
    ]
    lists = {"targets": note.targets, "problems": note.problems, "stands for": note.closes}
    rows += [f"{name}: {', '.join(values)}" for name, values in lists.items() if values]
    _say(desk, "\n".join(rows))
    return 0


def _check(desk: _Desk) -> int:
    """Every source of every note; those that hold are counted."""
    _expect(desk)
    counts = dict.fromkeys(_MARKS, 0)
    for entry in desk.entries:
        findings = desk.sources.of(entry)
        for found in findings:
            counts[found.holds] += 1
        if told := [found for found in findings if found.holds is False or _worth(found, entry)]:
            _say(desk, f"{entry.note.title} ({entry.where})")
            _tell(desk, told)
    failed = counts[False] + len(desk.broken)
    _say(
        desk,
        f"{counted(len(desk.entries), 'note')}; sources that hold: {counts[True]}, that do not: {counts[False]}, "
        f"of which it cannot be told here: {counts[None]}",
    )
    _name_broken(desk)
    return 1 if failed else 0


def _expect(desk: _Desk) -> None:
    """Have the run's lineage tell what is stale, where its judge can be built here."""
    lineage = desk.sources.lineage(*desk.run)
    if lineage:
        with suppress(ConfigError):
            verify.expect(lineage, evaluation.key(desk.problem, compose.build(desk.cfg.evaluator)))


def _worth(found: Finding, entry: StoredNote) -> bool:
    """What ships comes without the documents; saying so for each of its sources would hide the rest."""
    return found.holds is None and not entry.shipped


# -- doubting --------------------------------------------------------------------------------------


def _challenge(desk: _Desk, entry: StoredNote, why: str) -> int:
    """Show what the sources say; keep the doubt; have a probe settle it where one can."""
    _expect(desk)
    note = entry.note
    _say(desk, f"{note.title} ({_trust(note)}; {entry.where})")
    findings = desk.sources.of(entry)
    _tell(desk, findings, around=True)
    reason = _WAS.sub("", " ".join(why.split()) or note.challenge or "a person doubts it")
    lost = not any(found.holds for found in findings) and note.status is not Status.REFUTED
    was = _former(note)
    status = Status.ASSUMED if lost else was
    kept = replace(note, status=status, challenge=reason if status is was else f"{reason} (was {was.value})")
    where = _keep(desk, entry, kept)
    verdict = "no source bears it out: it is assumed now" if lost else f"at least one source holds: it stays {status}"
    if note.status is Status.REFUTED:
        verdict = "it is refuted already"
    _say(desk, f"challenged: {reason}\n{verdict}; prompts show the doubt. Kept in {where}")
    return _probed(desk, replace(entry, note=kept, **_placed(where)))


def _probed(desk: _Desk, entry: StoredNote) -> int:
    """Have a probe measure what the note claims, where one can."""
    target = compose.build(desk.cfg.target)
    folder = entry.file.parent if entry.file else desk.folder / label(target)
    notes: tuple[Note, ...] = compose.build(desk.cfg.knowledge)(target=target, problem=desk.problem.name)
    prober: probe.Prober = compose.build(desk.cfg.prober)
    try:
        with recorded_task(desk.cfg, desk.problem, "challenge") if prober.most else nullcontext():
            settled = probe.settle(entry.note, prober, desk.problem, notes, folder)
    except (StageError, BudgetError) as error:
        _say(desk, f"the probe did not answer: {error}")
        return 0
    if settled is None and not knowledge.fits(entry.note, target):
        _say(desk, f"it is about {', '.join(entry.note.targets)}, which a probe on {label(target)} cannot settle")
        return 0
    if settled is None:
        _say(desk, "no probe here settles it; with prober=llm llm=NAME a model writes one")
        return 0
    where = _keep(desk, entry, settled)
    _say(desk, f"settled by a probe: {settled.status.value}. {settled.text}\nKept in {where}")
    return 0


def _uphold(desk: _Desk, entry: StoredNote) -> int:
    note = entry.note
    if not note.challenge:
        raise ConfigError(f"nobody challenges {note.title!r}; knowledge challenge TITLE does")
    kept = replace(note, status=_former(note), challenge="")
    where = _keep(desk, entry, kept)
    _say(desk, f"{note.title}: upheld, {_trust(kept)}. Kept in {where}")
    return 0


def _former(note: Note) -> Status:
    """The status before it was challenged."""
    found = _WAS.search(note.challenge)
    return Status(found[1]) if found and found[1] in set(Status) else note.status


def _keep(desk: _Desk, entry: StoredNote, note: Note) -> str:
    """Write a changed note where it belongs; that place."""
    if entry.file is None:
        lineage = desk.sources.lineage(*desk.run)
        assert lineage is not None
        lineage.population()
        notes = (note if old.title == entry.note.title else old for old in lineage.notes())
        lineage.learn(tuple(notes), lineage.digested)
        return entry.where
    folder = desk.folder / entry.file.parent.name if entry.shipped else entry.file.parent
    if entry.shipped:
        _copy(entry.file, folder)
    file = knowledge.write(note, folder, "a copy of the note that ships" if entry.shipped else "")
    if entry.shipped and note.program:
        shutil.copyfile(entry.file.parent / note.program, folder / note.program)
    return str(file)


def _copy(file: Path, folder: Path) -> None:
    """Under its own name, by which a person may call it again; where that is taken, it gets another."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / file.name).exists():
            shutil.copyfile(file, folder / file.name)
    except OSError as error:
        raise ConfigError(f"{folder}: a note cannot be written ({error.strerror}); name another folder") from error


def _placed(where: str) -> dict[str, Any]:
    """An entry's new place, once a shipped one has been copied."""
    return {"file": Path(where), "shipped": False, "where": str(Path(where).parent)} if where.endswith(".md") else {}


# -- telling ---------------------------------------------------------------------------------------


def _trust(note: Note) -> str:
    return f"{note.status.value}{', challenged' if note.challenge else ''}"


def _tell(desk: _Desk, findings: Iterable[Finding], around: bool = False) -> None:
    for found in findings:
        _say(desk, f"  {_MARKS[found.holds]}: {found.source}: {found.said}")
        if around and found.context:
            _say(desk, f"      {found.context}")


def _name_broken(desk: _Desk) -> int:
    for line in desk.broken:
        _say(desk, f"not read: {line}")
    return 0


def _say(desk: _Desk, text: str) -> None:
    """Notes are written by models: nothing in them is markup."""
    desk.console.print(text, markup=False, highlight=False, soft_wrap=True)
