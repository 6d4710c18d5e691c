"""Edits of one file, applied exactly or refused: search/replace blocks, or a unified diff.

Both styles are read, whichever was asked for; the first line that opens a block or a hunk says which one it is.

    <<<<<<< SEARCH            @@ -40,3 +40,3 @@
    lines as they are          a line that stays
    =======                   -a line that goes
    lines as they shall be    +a line that comes
    >>>>>>> REPLACE

- Whole lines are compared, every character of them. What is quoted (the search text; a hunk's context and removed
  lines) must occur exactly once in the file. Line numbers of a hunk are not looked at.
- Every edit quotes the file as it was given; edits come in the file's order and do not overlap; each changes something.
- Between blocks there may be blank lines and ``` lines, before the first hunk a diff's head. Nothing else.
- Code that holds a line like a marker: a block may use longer ones (`<<<<<<<<< SEARCH`, `=========`, `>>>>>>>>>
  REPLACE`, all of one length); lines of other lengths are then code. Several dividers of its length refuse a block:
  which one is meant would be a guess.
- In a hunk an empty line is an empty context line, except at the hunk's end, where it is nothing.
- Line ends are not part of a line: a new line ends as the line it takes the place of, or else as the one above it; the
  file's last line ends as it did.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher, get_close_matches
from itertools import takewhile

_OPEN = re.compile(r"(<{7,100}) SEARCH[ \t]*")
_HUNK = re.compile(r"@@( .*)?")
_HEAD = ("diff ", "index ", "--- ", "+++ ")
_MOST = 200  # edits of one answer
_COUNTED = 9  # places that are told apart
_CONTEXT = 10  # lines of the file that are shown
_WIDTH = 160  # characters of a line that are looked at and shown
_QUOTED = 200  # quoted lines that are looked at


@dataclass(frozen=True)
class Edit:
    """One change: lines that stay (` `), go (`-`) or come (`+`), in order."""

    name: str
    """What to call it in a refusal: block 2, hunk 1."""
    lines: tuple[tuple[str, str], ...]

    @property
    def quoted(self) -> list[str]:
        """The lines that the file must hold."""
        return [text for sign, text in self.lines if sign != "+"]

    @property
    def made(self) -> list[str]:
        """The lines that take their place."""
        return [text for sign, text in self.lines if sign != "-"]


def apply(text: str, answer: str) -> str:
    """`text` with the edits of `answer` made. ValueError names the edit that does not apply, and why."""
    file = _File(text)
    lines = _split(answer)
    first = next((line for line in lines if _OPEN.fullmatch(line) or _HUNK.fullmatch(line)), "")
    edits = list(_hunks(lines) if first.startswith("@") else _blocks(lines) if first else ())
    if not edits:
        raise ValueError("there is no edit: neither a line `<<<<<<< SEARCH` nor a hunk `@@ -1,3 +1,3 @@`")
    places: list[int] = []
    for edit in edits:
        place = _place(edit, file)
        if places and place < (end := places[-1] + len(edits[len(places) - 1].quoted)):
            raise ValueError(
                f"{edit.name}: its text (line {place + 1}) is not below the text of the edit before it, which ends at "
                f"line {end}; put edits in the file's order, without overlap"
            )
        places.append(place)
    return file.changed(list(zip(places, edits, strict=True)))


class _File:
    """Lines, each with the characters that end it."""

    def __init__(self, text: str) -> None:
        parts = text.split("\n")
        last = parts.pop()
        self.lines = _split(text)
        self.ends = ["\r\n" if part.endswith("\r") else "\n" for part in parts]
        if last:
            self.ends.append("\r" if last.endswith("\r") else "")
        self._whole = "\n".join(["", *self.lines, ""])

    def find(self, quoted: list[str]) -> list[int]:
        """The first few places (line indices) where these lines are."""
        wanted = "\n".join(["", *quoted, ""])
        found: list[int] = []
        at = self._whole.find(wanted)
        while at >= 0 and len(found) <= _COUNTED:
            found.append(self._whole.count("\n", 0, at))
            at = self._whole.find(wanted, at + 1)
        return found

    def changed(self, edits: list[tuple[int, Edit]]) -> str:
        """The text with each edit made at its place."""
        old = [*zip(self.lines, self.ends, strict=True)]
        made: list[tuple[str, str]] = []
        at = 0
        for place, edit in edits:
            made += old[at:place]
            at = place
            for sign, text in edit.lines:
                if sign == "+":
                    made.append((text, self._end(at)))
                    continue
                if sign == " ":
                    made.append(old[at])
                at += 1
        made += old[at:]
        if not made:
            return ""
        usual = self._end(0)
        inner = [line + (end if end.endswith("\n") else usual) for line, end in made[:-1]]
        return "".join([*inner, made[-1][0], self.ends[-1]])

    def _end(self, at: int) -> str:
        """How a new line before line `at` ends: as the line above it, which may just have gone."""
        end = self.ends[max(at - 1, 0)]
        return end if end.endswith("\n") else self.ends[0] if self.ends[0].endswith("\n") else "\n"


def _split(text: str) -> list[str]:
    """The lines of a text, without what ends them."""
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def _place(edit: Edit, file: _File) -> int:
    quoted = edit.quoted
    if not any(line.strip() for line in quoted):
        raise ValueError(f"{edit.name}: it quotes no line of the file; quote one beside the place, and keep it")
    if quoted == edit.made:
        raise ValueError(f"{edit.name}: it changes nothing")
    found = file.find(quoted)
    if len(found) == 1:
        return found[0]
    if not found:
        raise ValueError(f"{edit.name}: the file does not hold these lines. {_nearest(quoted, file.lines)}")
    times = f"{len(found)} times" if len(found) <= _COUNTED else f"more than {_COUNTED} times"
    lines = ", ".join(str(place + 1) for place in found[:_COUNTED])
    raise ValueError(
        f"{edit.name}: the file holds these lines {times} (at lines {lines}); quote more lines around them"
    )


def _blocks(lines: list[str]) -> Iterator[Edit]:
    at = count = 0
    while at < len(lines):
        opened = _OPEN.fullmatch(lines[at])
        at += 1
        if opened is None:
            _check_between(at, lines[at - 1], "block")
            continue
        count += 1
        _check_count(count)
        name, length = f"block {count}", len(opened[1])
        divider, close, start = "=" * length, f"{'>' * length} REPLACE", at
        while at < len(lines) and lines[at].rstrip(" \t") != close:
            if (inner := _OPEN.fullmatch(lines[at])) and len(inner[1]) == length:
                raise ValueError(f"{name}: another block opens inside it; close it, or use longer markers for it")
            at += 1
        if at == len(lines):
            raise ValueError(f"{name}: it is not closed by a line {close}")
        body = lines[start:at]
        at += 1
        dividers = [index for index, line in enumerate(body) if line.rstrip(" \t") == divider]
        if not dividers:
            raise ValueError(f"{name}: it has no line {divider} between the two texts")
        if len(dividers) > 1:
            raise ValueError(
                f"{name}: it has {len(dividers)} lines {divider}; where they are code, write all its markers longer, "
                "by two characters each"
            )
        yield _replacement(name, body[: dividers[0]], body[dividers[0] + 1 :])


def _replacement(name: str, old: list[str], new: list[str]) -> Edit:
    """The edit that puts one text in the place of another, and leaves what both begin and end with."""
    first = _shared(old, new)
    last = _shared(old[first:][::-1], new[first:][::-1])
    kept, end = len(old) - last, len(new) - last
    lines = [*((" ", line) for line in old[:first]), *(("-", line) for line in old[first:kept])]
    return Edit(name, (*lines, *(("+", line) for line in new[first:end]), *((" ", line) for line in old[kept:])))


def _shared(one: list[str], other: list[str]) -> int:
    """How many lines at the start are the same."""
    return len([*takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))])


def _check_count(count: int) -> None:
    if count > _MOST:
        raise ValueError(f"there are more than {_MOST} edits; use fewer and larger ones")


def _check_between(number: int, line: str, what: str) -> None:
    if line.strip() and not line.startswith("```"):
        raise ValueError(f"line {number} of the edits is outside every {what}: {line[:80]!r}")


def _hunks(lines: list[str]) -> Iterator[Edit]:
    starts = [index for index, line in enumerate(lines) if _HUNK.fullmatch(line)]
    _check_count(len(starts))
    for number, line in enumerate(lines[: starts[0]], start=1):
        if not line.startswith(_HEAD):
            _check_between(number, line, "hunk")
    for count, (start, end) in enumerate(zip(starts, [*starts[1:], len(lines)], strict=True), 1):
        body = lines[start + 1 : end]
        while body and (not body[-1].strip() or body[-1] == "```"):
            body.pop()
        if odd := [line for line in body if line and line[0] not in " +-\\"]:
            raise ValueError(f"hunk {count}: a line starts with none of space, - and +: {odd[0][:80]!r}")
        yield Edit(f"hunk {count}", tuple((line[:1] or " ", line[1:]) for line in body if line[:1] != "\\"))


def _nearest(quoted: list[str], lines: list[str]) -> str:
    """Where some lines were probably meant, told to who quoted them wrongly: the lines that are most like them, and the
    first difference. Never used to place an edit.
    """
    wanted, held = ([line.strip()[:_WIDTH] for line in text] for text in (quoted[:_QUOTED], lines))
    alike = SequenceMatcher(lambda line: not line, held, wanted).find_longest_match()
    if alike.size:
        start = alike.a - alike.b
    else:  # the line that is most like the longest quoted one
        longest = max(wanted, key=len)
        if not (close := get_close_matches(longest, held, n=1, cutoff=0.3)):
            return "Nothing in it is like them."
        start = held.index(close[0]) - wanted.index(longest)
    difference = ""
    for number, line in enumerate(quoted, start=1):
        place = start + number
        if not 0 < place <= len(lines):
            difference = f"Quoted line {number} is beyond the file's end. "
        elif line != (here := lines[place - 1]):
            blanks = " (other blanks only)" if line.split() == here.split() else ""
            shown = f"{line[:_WIDTH]!r}, line {place} of the file is {here[:_WIDTH]!r}{blanks}"
            difference = f"Quoted line {number} is {shown}. "
        if difference:
            break
    numbered = list(enumerate(lines, start=1))[max(0, start) : start + min(len(quoted), _CONTEXT)]
    text = "\n".join(f"{number:5}| {line[:_WIDTH]}" for number, line in numbered)
    return f"{difference}The nearest lines of the file are:\n{text}"
