"""Notes as prompt text: the most relevant ones in full, the others in one line each, within a budget.

Relevance is by the words that a note shares with the task and its reference: rare words count most, and a name such as
`v_mfma_f32` counts whole and in its parts. The same notes and words give the same text, for any base. `more_findings`
has notes for one experiment that do not fit into what all prompts share.
"""

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from ksflow.notes.relevance import CHARACTERS, relevance, word_set
from ksflow.records import Note, Status

FINDINGS = 7_000  # default limit of findings in a prompt, in tokens
_TRUST = (Status.MEASURED, Status.DOCUMENTED, Status.CITED, Status.ASSUMED, Status.REFUTED)
_MEANING = {
    Status.MEASURED: "Measured here",
    Status.DOCUMENTED: "Documented",
    Status.CITED: "Cited from documents, not checked",
    Status.ASSUMED: "Assumed, not checked",
}
_REFUTED = "Refuted: do not rely on these"
_TITLES = "Other notes, by their titles"
_COUNT = 50  # characters of the line that counts omissions
_SHARE = 4  # the lists of titles get this fraction (1/4) of the room
_TITLE, _WHY, _LINE = 160, 200, 240  # characters
_LEVELS = 5  # of relevance; within a level trust decides, and the lowest level is not shown in full


def findings(notes: Iterable[Note], tokens: int = FINDINGS, about: str = "", ranked: bool = False) -> str:
    """Return the notes that fit in `tokens`: the most relevant to `about`, of equal ones the most trusted.

    They keep the given order, so that prompts begin alike; with `ranked` the most relevant comes first. The rest is
    listed by title if there is room, and counted; refuted notes come last, a line each.
    """
    return _chosen(notes, tokens, about, ranked)[0]


def more_findings(notes: Iterable[Note], before: tuple[int, str], tokens: int, about: str) -> str:
    """Return notes relevant to `about` that `findings`, called with `before`, does not show in full."""
    _, left_out = _chosen(notes, *before, ranked=False)
    return _chosen(left_out, tokens, about, ranked=True)[0] if left_out else ""


def _chosen(notes: Iterable[Note], tokens: int, about: str, ranked: bool) -> tuple[str, list[Note]]:
    listed = list(notes)
    refuted = [note for note in listed if note.status is Status.REFUTED]
    held = _ranked([note for note in listed if note.status is not Status.REFUTED], about)
    room = CHARACTERS * tokens - _COUNT
    lines = [f"- {_cut(note.title, _TITLE)}: {_cut(note.text, _LINE)}" for note in refuted]
    short, told = _listed(_REFUTED, lines, room // _SHARE)
    all_titles, _ = _listed(_TITLES, _titles(note for note, _ in held), room // _SHARE)
    room -= _size(short)
    free = room - _size(all_titles)
    shown, left_out = list[Note](), list[Note]()
    for note, bears in held:
        size = _size(_block(note))
        fits = bears and size <= free
        free -= size if fits else 0
        (shown if fits else left_out).append(note)
    if not ranked:
        place = {id(note): index for index, note in enumerate(listed)}
        for part in (shown, left_out):
            part.sort(key=lambda note: place[id(note)])
    full = [_block(note) for note in shown]
    titles, named = _listed(_TITLES, _titles(left_out), room - sum(map(_size, full)))
    missing = len(left_out) - named + len(refuted) - told
    more = f"({missing} more notes have no room here)" if missing else ""
    blocks = filter(None, [*full, titles, short, more])
    return "\n\n".join(blocks), left_out


def _size(block: str) -> int:
    return len(block) + 2 if block else 0


def _ranked(notes: Sequence[Note], about: str) -> list[tuple[Note, bool]]:
    own = [_note_words(" ".join([n.title, n.text, *n.targets, *n.problems])) for n in notes]
    scores = relevance(own, about)
    most = max(scores, default=0.0)
    levels = [round((_LEVELS - 1) * score / most) if most else 1 for score in scores]
    # a challenged note comes after the others of its status and of the next
    trust = [_TRUST.index(note.status) + (1.5 if note.challenge else 0.0) for note in notes]
    order = sorted(range(len(notes)), key=lambda i: (-levels[i], trust[i], -scores[i], i))
    return [(notes[index], levels[index] > 0) for index in order]


_note_words = lru_cache(4096)(word_set)


def _block(note: Note) -> str:
    head = f"### {note.title}{_chips(note)}\n{_MEANING[note.status]}. Sources: {'; '.join(note.sources)}"
    doubt = f"\nChallenged, so doubtful: {_cut(note.challenge, _WHY)}" if note.challenge else ""
    return f"{head}{doubt}\n{note.text.strip()}"


def _titles(notes: Iterable[Note]) -> Iterator[str]:
    for note in notes:
        doubt = ", challenged" if note.challenge else ""
        yield f"- {_cut(note.title, _TITLE)} [{note.status.value}{doubt}]{_chips(note)}"


def _chips(note: Note) -> str:
    return f" (for {', '.join(note.targets)})" if note.targets else ""


def _listed(heading: str, lines: Iterable[str], room: int) -> tuple[str, int]:
    """Return as many lines as fit, under the heading, and their number; "" for none."""
    block, some = f"{heading}:", 0
    for line in lines:
        if len(block) + len(line) + 3 > room:
            break
        block, some = f"{block}\n{line}", some + 1
    return block if some else "", some


@lru_cache(4096)
def _cut(text: str, room: int) -> str:
    return textwrap.shorten(text, room, placeholder="...")
