"""Edits of one file by search/replace blocks or a unified diff: each is applied at its only possible place, or refused.

Both styles are accepted, whichever was asked for; the first line that opens a block or a hunk decides.

    <<<<<<< SEARCH            @@ -40,3 +40,3 @@
    lines as they are          a line that stays
    =======                   -a line that goes
    lines as they shall be    +a line that comes
    >>>>>>> REPLACE

- Quoted lines (the search text; a hunk's context and removed lines) must be in the file exactly once: literally, else
  without trailing blanks, else with all runs of blanks alike. New text is then indented like the file, and refused if
  that is ambiguous. Fences and line numbers that models add are removed if the lines are not found with them.
- Every edit quotes the original file and changes something, and no two overlap. Errors of all edits are reported
  together. Between blocks and before the first hunk there may be prose, but no line like a marker or like an edit.
- For code that contains a line like a marker a block may use longer ones, all of one length.
- A new line ends like the line it replaces, or else like the one above; the file's last line ends as before.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from difflib import SequenceMatcher, get_close_matches
from itertools import groupby, pairwise

from ksflow.kernels.source.edits import Edit, read_edits, split_lines

_COUNTED = 9  # places that are told apart
_CONTEXT = 10  # lines of the file that are shown
_WIDTH = 160  # characters of a line that are looked at and shown
_QUOTED = 200  # quoted lines that are looked at
_TOLD = 4  # edits that do not apply, of which is told what is wrong
_FENCE = re.compile(r"\s*(?:`{3,}|~{3,})[\w+-]*\s*")
_NUMBERED = re.compile(r"\s*\d+\s*[|:] ?")


def apply(text: str, answer: str) -> str:
    """Return `text` with the edits of `answer` applied. Raises ValueError, which names the edits that do not apply."""
    file, edits = _File(text), read_edits(answer)
    placed: list[_Placed] = []
    wrong: list[str] = []
    for edit in edits:
        try:
            placed += _place(edit, file, len(wrong) < _TOLD)
        except ValueError as error:
            wrong.append(f"{edit.name}: {error}")
    if wrong:
        rest = f"\nand {len(wrong) - _TOLD} more edits like these" if len(wrong) > _TOLD else ""
        fine = f"\nThe other {len(edits) - len(wrong)} edits apply." if len(edits) > len(wrong) else ""
        raise ValueError("\n".join(wrong[:_TOLD]) + rest + fine)
    ordered = sorted(dict.fromkeys(placed), key=lambda place: (place.start, place.end))
    for before, after in pairwise(ordered):
        if after.start < before.end or (after.start, after.end) == (before.start, before.end):
            raise ValueError(
                f"{after.name}: it changes what {before.name} changes too (at line {after.start + 1}); make one of "
                "the two"
            )
    return file.changed(ordered)


@dataclass(frozen=True)
class _Placed:
    """The lines from `start` to `end` (exclusive) become `lines`."""

    start: int
    end: int
    lines: tuple[str, ...]
    name: str = field(compare=False)  # the edit's name


class _File:
    """Lines, each with its line end."""

    def __init__(self, text: str) -> None:
        parts = text.split("\n")
        last = parts.pop()
        self.lines = split_lines(text)
        self.ends = ["\r\n" if part.endswith("\r") else "\n" for part in parts]
        if last:
            self.ends.append("\r" if last.endswith("\r") else "")
        self._whole: dict[Callable[[str], str], str] = {}

    def find(self, quoted: list[str], alike: Callable[[str], str]) -> list[int]:
        """Return the first few places (line indices) whose lines equal the quoted ones under the mapping `alike`."""
        if alike not in self._whole:
            self._whole[alike] = "\n".join(["", *map(alike, self.lines), ""])
        whole, wanted = self._whole[alike], "\n".join(["", *map(alike, quoted), ""])
        places: list[int] = []
        at = whole.find(wanted)
        while at >= 0 and len(places) <= _COUNTED:
            places.append(whole.count("\n", 0, at))
            at = whole.find(wanted, at + 1)
        return places

    def changed(self, edits: list[_Placed]) -> str:
        old = [*zip(self.lines, self.ends, strict=True)]
        pairs: list[tuple[str, str]] = []
        at = 0
        for edit in edits:
            pairs += old[at : edit.start]
            gone = edit.end - edit.start
            pairs += [(line, self._end(edit.start + min(number, gone))) for number, line in enumerate(edit.lines, 1)]
            at = edit.end
        pairs += old[at:]
        if not pairs:
            return ""
        usual = self._end(0)
        inner = [line + (end if end.endswith("\n") else usual) for line, end in pairs[:-1]]
        return "".join([*inner, pairs[-1][0], self.ends[-1]])

    def _end(self, at: int) -> str:
        """Return the end of a new line before line `at`: that of the line above."""
        end = self.ends[max(at - 1, 0)]
        return end if end.endswith("\n") else self.ends[0] if self.ends[0].endswith("\n") else "\n"


def _place(edit: Edit, file: _File, tell: bool) -> list[_Placed]:
    quoted = edit.old_lines
    if not any(line.strip() for line in quoted):
        raise ValueError("it quotes no line of the file; quote one beside the place, and keep it")
    if quoted == edit.new_lines:
        raise ValueError("it changes nothing")
    for form in _bare(edit):
        for alike in (str, str.rstrip, _one_blank):
            places = file.find(form.old_lines, alike)
            if len(places) == 1:
                return list(_changes(form, file.lines, places[0]))
            if places:
                times = f"{len(places)} times" if len(places) <= _COUNTED else f"more than {_COUNTED} times"
                lines = ", ".join(str(place + 1) for place in places[:_COUNTED])
                raise ValueError(f"the file holds these lines {times} (at lines {lines}); quote more lines around them")
    raise ValueError(f"the file does not hold these lines. {_nearest(quoted, file.lines) if tell else ''}".rstrip())


def _one_blank(line: str) -> str:
    return " ".join(line.split())


def _bare(edit: Edit) -> Iterator[Edit]:
    """Yield the edit, then without fences, then without line numbers."""
    yield edit
    lines = tuple(row for row in edit.lines if not _FENCE.fullmatch(row[1]))
    if lines != edit.lines:
        yield Edit(edit.name, lines)
    if all(_NUMBERED.match(text) for sign, text in lines if sign != "+" and text.strip()):
        yield Edit(edit.name, tuple((sign, _NUMBERED.sub("", text, count=1)) for sign, text in lines))


def _changes(edit: Edit, lines: list[str], at: int) -> Iterator[_Placed]:
    indent = _indentation(edit.old_lines, lines[at : at + len(edit.old_lines)])
    for stays, rows in groupby(edit.lines, lambda row: row[0] == " "):
        run = list(rows)
        start, at = at, at + sum(sign != "+" for sign, _ in run)
        if not stays:
            yield _Placed(start, at, tuple(indent(text) for sign, text in run if sign == "+"), edit.name)


def _indentation(quoted: list[str], held: list[str]) -> Callable[[str], str]:
    """Return a function that indents a line like the file, judging from the quoted lines. Raises ValueError."""
    pairs = [(_indent(left), _indent(right)) for left, right in zip(quoted, held, strict=True) if left.strip()]
    known, shifts = dict(pairs), {len(ours) - len(theirs) for theirs, ours in pairs}
    if all(theirs == ours for theirs, ours in pairs):
        return str
    if any(known[theirs] != ours for theirs, ours in pairs):
        raise ValueError("the file indents these lines otherwise; quote them to the letter")
    shift = min(shifts) if len(shifts) == 1 and not "".join(map("".join, pairs)).strip(" ") else None

    def indent(line: str) -> str:
        theirs = _indent(line)
        if theirs in known or not line.strip():
            return known.get(theirs, theirs) + line[len(theirs) :]
        if shift is None or len(theirs) + shift < 0 or theirs.strip(" "):
            raise ValueError(
                f"the file indents these lines otherwise, and {line.strip()[:80]!r} then has no plain place"
            )
        return " " * (len(theirs) + shift) + line[len(theirs) :]

    return indent


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _nearest(quoted: list[str], lines: list[str]) -> str:
    """Describe the most similar lines of the file, and the first difference."""
    wanted, held = ([line.strip()[:_WIDTH] for line in text] for text in (quoted[:_QUOTED], lines))
    alike = SequenceMatcher(lambda line: not line, held, wanted).find_longest_match()
    if alike.size:
        start = alike.a - alike.b
    else:  # the line most similar to the longest quoted one
        longest = max(wanted, key=len)
        if not (close := get_close_matches(longest, held, n=1, cutoff=0.3)):
            return "Nothing in it is like them."
        start = held.index(close[0]) - wanted.index(longest)
    difference = ""
    for number, line in enumerate(quoted, start=1):
        index = start + number
        if not 0 < index <= len(lines):
            difference = f"Quoted line {number} is beyond the file's end. "
        elif line != (here := lines[index - 1]):
            blanks = " (other blanks only)" if line.split() == here.split() else ""
            shown = f"{line[:_WIDTH]!r}, line {index} of the file is {here[:_WIDTH]!r}{blanks}"
            difference = f"Quoted line {number} is {shown}. "
        if difference:
            break
    numbered = list(enumerate(lines, start=1))[max(0, start) : start + min(len(quoted), _CONTEXT)]
    text = "\n".join(f"{number:5}| {line[:_WIDTH]}" for number, line in numbered)
    return f"{difference}The nearest lines of the file are:\n{text}"
