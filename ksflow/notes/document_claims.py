"""Validation of notes from a model: every claim has a source that was shown, with a literal quote."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from ksflow.errors import shorten
from ksflow.home import shipped_path
from ksflow.kernels.hardware.target import label
from ksflow.notes.documents import contains, named_passages
from ksflow.records import Document, Note, Population, Problem, Status, Target

TITLE, TEXT = 120, 1_600  # limits of a title and of a text, in characters
_QUOTE_WORDS, _QUOTE = 3, 400  # least words and most characters of a quote
_TRIAL = re.compile(r"(\d{5,})(?:@[0-9a-f]+)?")
_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`", re.DOTALL)
_MARKERS = re.compile(r"\[(\d{1,2}(?:\s*,\s*\d{1,2})*)\]")
_ABBREVIATION = re.compile(r"\b(e\.g|i\.e|cf|vs|approx|resp|etc|Fig|Sec|No|Eq|Sect|Ch|incl|max|min)\.(?=\s)")
_SENTENCE = re.compile(r"(?<=[.!?])((?:\s*\[[\d,\s]+\][.]?)*)\s+(?=[A-Z`\"'(])")
_BULLET = re.compile(r"^\s*(?:[-*+]|\d{1,2}[.)])\s+")
_FASTEST = 3


@dataclass(frozen=True)
class Grounds:
    """What the claims of an answer may cite."""

    problem: Problem
    target: Target | None
    shown: tuple[Document, ...] = ()  # the documents, each with the passages that the prompt showed
    population: Population = field(default_factory=lambda: Population(()))
    notes: Mapping[str, Note] = field(default_factory=dict)  # the current notes of this task and target, by title
    others: frozenset[str] = frozenset()  # the titles of notes about something else, which stay unchanged

    def trial(self, source: str) -> str:
        """Return the id of the trial that a source names, or ""."""
        match = _TRIAL.fullmatch(source)
        return match[1] if match and any(trial.id == match[1] for trial in self.population.trials) else ""


def validate_note(note: Note, ground: Grounds) -> Note:
    """Return the note in its stored form. Raises ValueError."""
    note = replace(note, title=" ".join(note.title.split()), text=note.text.strip())
    _check_form(note)
    if note.title in ground.others:
        raise ValueError("a note on another problem or target has this title; choose another")
    if len(note.quotes) != len(note.sources):
        raise ValueError(
            f"{len(note.quotes)} quotes for {len(note.sources)} sources; give one for each, empty for a trial"
        )
    sources = zip(note.sources, note.quotes, strict=True)
    pairs = [_checked_source(number, *pair, ground) for number, pair in enumerate(sources, 1)]
    note = replace(note, sources=tuple(pair[0] for pair in pairs), quotes=tuple(pair[1] for pair in pairs))
    for claim in claims(note.text):
        numbers = [int(number) for group in _MARKERS.findall(claim) for number in group.split(",")]
        if not numbers:
            raise ValueError(f"claim without a source marker such as [1]: {shorten(claim, 80)!r}")
        if wrong := [number for number in numbers if not 1 <= number <= len(note.sources)]:
            raise ValueError(f"marker [{wrong[0]}] has no source; there are {len(note.sources)}")
    trials = {id for source in note.sources if (id := ground.trial(source))}
    _check_status(note, trials, ground)
    _check_closes(note, trials, ground)
    return _placed(note, bool(trials), ground)


def _check_form(note: Note) -> None:
    if not note.title or not note.text or not note.sources:
        raise ValueError("title, text and at least one source are needed")
    if len(note.title) > TITLE or len(note.text) > TEXT:
        raise ValueError(
            f"title {len(note.title)} and text {len(note.text)} characters long; at most {TITLE} and {TEXT}: "
            "one subject a note"
        )
    if note.program or note.challenge:
        raise ValueError("program and challenge are not yours to set; leave them out")


def _checked_source(number: int, source: str, quote: str, ground: Grounds) -> tuple[str, str]:
    """Return a source and its quote in their stored form. Raises ValueError."""
    where = f"source {number} ({shorten(source, 60)!r})"
    if ground.trial(source):
        if quote.strip():
            raise ValueError(f"{where} is a trial: its quote stays empty")
        return source, ""
    current: dict[str, str] = {}  # sources of the current notes -> their quotes
    for note in ground.notes.values():
        current |= dict(zip(note.sources, note.quotes or ("",) * len(note.sources), strict=True))
    old = current.get(source)
    if old is not None and (not quote.strip() or quote == old):
        return source, old
    passages = list(named_passages(ground.shown, source))
    if not passages:
        raise ValueError(f"{where} is neither a passage that you were shown nor a trial id; copy a source line")
    place = next(((document, passage) for document, passage in passages if contains(passage.text, quote)), None)
    if place is None:
        raise ValueError(f"{where}: the quote {shorten(quote, 80)!r} does not stand there; copy words from it exactly")
    document, passage = place
    if len(quote) > _QUOTE:
        raise ValueError(f"{where}: the quote has {len(quote)} characters; at most {_QUOTE}, the words that say so")
    if len(re.findall(r"\w+", quote)) < _QUOTE_WORDS and quote.split() != passage.text.split():
        raise ValueError(f"{where}: the quote {shorten(quote, 40)!r} is too short; quote at least {_QUOTE_WORDS} words")
    return ", ".join(filter(None, [document.source, passage.place])), quote.strip()


def claims(text: str) -> list[str]:
    """Return the sentences, bullets and table rows of a text, without headings, code and introductory lines."""
    sentences = []
    for block in _blocks(_CODE.sub("code", text)):
        joined = _ABBREVIATION.sub(lambda match: match[1].replace(".", "") + ",", " ".join(block.split()))
        parts = [part.strip() for part in _SENTENCE.sub(r"\1\n", joined).split("\n")]
        sentences += [part for part in parts if len(re.findall(r"\w+", part)) > 1 and not part.endswith(":")]
    return sentences


def _blocks(text: str) -> Iterator[str]:
    block, row = "", 0
    for line in [*text.split("\n"), ""]:  # the final empty line closes the last block
        row = row + 1 if line.lstrip().startswith("|") else 0
        starts = not line.strip() or _BULLET.match(line) or line.startswith("#") or row
        if starts and block:
            yield block
            block = ""
        if line.startswith("#") or 0 < row < 3:
            continue
        block = f"{block}\n{_BULLET.sub('', line)}" if line.strip() else ""


def _check_status(note: Note, trials: set[str], ground: Grounds) -> None:
    old = ground.notes.get(note.title)
    if note.status is Status.DOCUMENTED and not any(note.quotes):
        raise ValueError("a documented note quotes a document")
    if note.status is Status.CITED and not (old and old.status is Status.CITED):
        raise ValueError("cited is for notes whose documents are not at hand; what a document here says is documented")
    probed = any(source.startswith("probe") for source in note.sources)
    if note.status is Status.MEASURED and not (trials or probed):
        raise ValueError("a measured note names the trials that showed it; `documented` is what a document says")
    if note.status is Status.REFUTED and old and old.status is Status.MEASURED:
        before = {id for source in old.sources if (id := ground.trial(source))}
        if not (before & trials and trials - before) and before:
            raise ValueError("a refuted measurement names a trial that showed it and the later one that contradicts it")


def _check_closes(note: Note, trials: set[str], ground: Grounds) -> None:
    if not note.closes:
        return
    if note.status is not Status.MEASURED:
        raise ValueError("only a measured note closes trials")
    best = ground.population.best
    fastest = {trial.id for trial in (*ground.population.ranked[:_FASTEST], *([best] if best else []))}
    for id in note.closes:
        trial = ground.population.by_id.get(id)
        if trial is None or trial.experiment is None:
            raise ValueError(f"closes: {shorten(id, 20)!r} is not the id of an experiment")
        if id in fastest:
            raise ValueError(f"closes: {id} is among the fastest, so it is no dead end")
        if id not in trials:
            raise ValueError(f"closes: {id} is not among the note's sources")


def _placed(note: Note, measured: bool, ground: Grounds) -> Note:
    """Return the note with the targets and problems to which it applies. Raises ValueError."""
    old = ground.notes.get(note.title)
    program = old.program if old and set(old.sources) <= set(note.sources) else ""
    note = replace(note, program=program)
    if measured:
        trials = (ground.population.by_id.get(ground.trial(source)) for source in note.sources)
        judged = {t.evaluation.target for t in trials if t and t.evaluation and t.evaluation.target}
        targets = (label(ground.target),) if ground.target else tuple(sorted(judged))
        return replace(note, targets=targets, problems=(ground.problem.name,))
    known = {file.stem for file in shipped_path("conf", "target").glob("*.yaml")} | {"cpu", "gpu"}
    known |= {label(ground.target)} if ground.target else set()
    if unknown := [name for name in note.targets if name not in known]:
        raise ValueError(
            f"no target {shorten(unknown[0], 40)!r}; leave targets empty for all, or: {', '.join(sorted(known))}"
        )
    if set(note.problems) - {ground.problem.name}:
        raise ValueError(f"problems is empty, or [{ground.problem.name!r}]")
    return note


def validated_notes(notes: Iterable[Note], ground: Grounds) -> tuple[dict[str, Note], list[str]]:
    """Return the valid notes, by title, and the errors of the others."""
    valid: dict[str, Note] = {}
    wrong = []
    for index, note in enumerate(notes):
        try:
            good = validate_note(note, ground)
            if good.title in valid:
                raise ValueError("two notes have this title")
            valid[good.title] = good
        except ValueError as error:
            wrong.append(f"notes.{index} ({shorten(note.title, 40)}): {error}")
    return valid, wrong
