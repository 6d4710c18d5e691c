"""Where in a file some lines were probably meant: told to who quoted them wrongly, never used to place an edit."""

import re
from collections import Counter, defaultdict

_CONTEXT = 10  # lines of the file that are shown
_WIDTH = 160  # characters of a line that are shown
_QUOTED = 200  # quoted lines that are looked at
_COMMON = 20  # a line that occurs more often says nothing of the place
_WORD = re.compile(r"\w{1,50}")


def nearest(quoted: list[str], lines: list[str]) -> str:
    """The lines of a file that are most like the quoted ones, and the first difference."""
    start = _by_lines(quoted, lines)
    if start is None:
        start = _by_words(quoted, lines)
    if start is None:
        return "Nothing in it is like them."
    shown = "\n".join(
        f"{index + 1:5}| {lines[index][:_WIDTH]}"
        for index in range(max(0, start), min(len(lines), start + min(len(quoted), _CONTEXT)))
    )
    return f"{_difference(quoted, lines, start)}The nearest lines of the file are:\n{shown}"


def _by_lines(quoted: list[str], lines: list[str]) -> int | None:
    """Where most quoted lines are in place, blanks at their ends aside."""
    where: dict[str, list[int]] = defaultdict(list)
    for index, line in enumerate(lines):
        where[line.strip()].append(index)
    votes: Counter[int] = Counter()
    for offset, line in enumerate(quoted[:_QUOTED]):
        places = where.get(line.strip(), ()) if line.strip() else ()
        if len(places) <= _COMMON:
            votes.update(place - offset for place in places)
    return min(votes, key=lambda start: (-votes[start], start)) if votes else None


def _by_words(quoted: list[str], lines: list[str]) -> int | None:
    """Where the line is that shares most words with the longest quoted one."""
    offset = max(range(min(len(quoted), _QUOTED)), key=lambda index: len(quoted[index]))
    wanted = set(_WORD.findall(quoted[offset][:1000]))
    best, start = 0.0, None
    for index, line in enumerate(lines):
        words = set(_WORD.findall(line[:1000]))
        score = len(words & wanted) / (len(words | wanted) or 1)
        if score > best:
            best, start = score, index - offset
    return start


def _difference(quoted: list[str], lines: list[str], start: int) -> str:
    for offset, line in enumerate(quoted):
        index = start + offset
        held = lines[index] if 0 <= index < len(lines) else None
        if line == held:
            continue
        if held is None:
            return f"Quoted line {offset + 1} is beyond the file's end. "
        blanks = " (other blanks only)" if line.split() == held.split() else ""
        quoted_line, held_line = repr(line[:_WIDTH]), repr(held[:_WIDTH])
        return f"Quoted line {offset + 1} is {quoted_line}, line {index + 1} of the file is {held_line}{blanks}. "
    return ""
