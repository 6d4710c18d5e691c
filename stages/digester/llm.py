"""A model turns documents and outcomes into notes that bear on the task, each with its sources."""

from collections.abc import Iterator
from typing import Any

import dspy

from ksflow.records import Document, Material, Note, Problem, Status, Trial
from ksflow.stages.lm import Model, render
from ksflow.stages.lm.program import Program


class Digest(dspy.Signature):  # type: ignore[misc]
    """You keep the findings document of a team that optimises one kernel: short notes that its engineers rely on as the
    source of truth about the hardware.

    From the documents, keep what someone who writes this kernel on this hardware needs and cannot guess: names and
    exact semantics of instructions, sizes, layouts, limits, alignment, costs and pitfalls, with short code where the
    syntax matters. Leave out what does not bear on the task. Do not add what the documents do not say.

    From the outcomes, keep what a measurement taught: which technique gained or lost how much on which shapes, what the
    compiler or the judge refused and why, and what to do instead. A failed kernel is worth a note when its reason holds
    for others. A difference within noise, or of an unranked trial, is no finding; one trial shows less than three.

    One note is one subject, in at most 200 words, and stands without the document. Its status says how far it goes:
    `documented` is what a document says, `measured` is what an outcome showed, `assumed` is an inference of yours,
    `refuted` is a claim that an outcome contradicts. Return only notes that are new or improved. A note with the
    title of a current one replaces it: correct that one instead of adding a second on its subject.
    """

    task: str = dspy.InputField(desc="the task that the notes are for")
    current: str = dspy.InputField(desc="the findings so far")
    documents: str = dspy.InputField(desc="what to read, each under its source")
    outcomes: str = dspy.InputField(desc="what was tried since, and what came of it; the number is the trial's id")
    notes: tuple[Note, ...] = dspy.OutputField(
        desc='a list, possibly empty, of objects {"title": "...", "text": "...", '
        '"sources": ["..."], "targets": ["..."], '
        '"status": "documented" | "measured" | "assumed" | "refuted"}. A source is a document\'s '
        "source as given (a section may follow it), or a trial id; every note has at least one. "
        "targets names the chips it holds for; leave it empty if it holds for all"
    )


class LlmDigester:
    """Reads long documents in pieces, one call for each; old notes stay unless replaced."""

    def __init__(  # noqa: PLR0913 - each is a key of the configuration
        self,
        lm: Model | None = None,
        attempts: int = 3,
        prompt: str | None = None,
        adapter: str = "sections",
        piece_kb: int = 60,
        outcomes: int = 60,
        findings: int = render.FINDINGS,
        seed: int = 0,
    ) -> None:
        """`piece_kb` bounds what one call reads, `outcomes` how many trials it sees, `findings` the current notes, in
        tokens. `prompt`, `adapter`: see `Program`.
        """
        self.program = Program("digester=llm", Digest, lm, attempts, prompt, seed, adapter)
        self.findings = findings
        self.piece = piece_kb * 1000
        self.outcomes = outcomes

    def __call__(self, problem: Problem, material: Material) -> tuple[Note, ...]:
        notes = {note.title: note for note in material.notes}
        trials = [trial for trial in material.population.trials if trial.experiment]
        newest = trials[-self.outcomes :]
        pieces = list(_pieces(material.documents, self.piece))
        if not pieces and newest:
            pieces = [""]
        for index, piece in enumerate(pieces):
            shown = newest if index == 0 else []
            for note in self._read(problem, material, tuple(notes.values()), piece, shown):
                notes[note.title] = note
        return tuple(notes.values())

    def _read(
        self,
        problem: Problem,
        material: Material,
        notes: tuple[Note, ...],
        piece: str,
        trials: list[Trial],
    ) -> tuple[Note, ...]:
        sources = {document.source for document in material.documents}
        ids = {trial.id for trial in material.population.trials}
        old = {source for note in notes for source in note.sources}
        inputs = {
            "task": render.summary(problem),
            "current": render.findings(notes, self.findings),
            "documents": piece or "(none)",
            "outcomes": render.outcomes(trials, material.population),
        }

        def accept(answer: dict[str, Any]) -> tuple[Note, ...]:
            found: tuple[Note, ...] = answer["notes"]
            for index, note in enumerate(found):
                _check(index, note, sources, ids, old)
            return found

        return self.program(inputs, accept)


def _check(index: int, note: Note, sources: set[str], ids: set[str], old: set[str]) -> None:
    where = f"notes.{index}"
    if not note.title.strip() or not note.text.strip() or not note.sources:
        raise ValueError(f"{where}: title, text and at least one source are needed")
    for source in note.sources:
        known = source in ids or source in old or any(source.startswith(start) for start in sources)
        if not known:
            raise ValueError(f"{where}: source {render.short(source, 60)!r} is neither a given document nor a trial id")
    if note.status is Status.MEASURED and not (ids | old) & set(note.sources):
        raise ValueError(f"{where}: a measured note names the trials that showed it")


def _pieces(documents: tuple[Document, ...], room: int) -> Iterator[str]:
    """The documents in batches of at most `room` characters; a longer one is split."""
    batch = ""
    for document in documents:
        for start in range(0, len(document.text), room):
            part = f"### source: {document.source}\n{document.text[start : start + room]}\n\n"
            if batch and len(batch) + len(part) > room:
                yield batch
                batch = ""
            batch += part
    if batch:
        yield batch
