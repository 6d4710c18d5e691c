"""Edits in the answer of a model: search/replace blocks or the hunks of a unified diff (`patch` has the grammar)."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile

_OPEN = re.compile(r"(<{7,100}) SEARCH[ \t]*")
_HUNK = re.compile(r"@@( .*)?")
_SIGNS = (" ", "+", "-")
_HEAD = ("diff ", "index ", "--- ", "+++ ")
_MOST = 200  # edits of one answer
_STRAY = re.compile(r"\s*(?:[<=>]{5,}|@@)")


@dataclass(frozen=True)
class Edit:
    """One change: lines that stay (` `), go (`-`) or come (`+`), in order."""

    name: str  # its name in an error: block 2, hunk 1
    lines: tuple[tuple[str, str], ...]

    @property
    def old_lines(self) -> list[str]:
        """The lines that the file must contain."""
        return [text for sign, text in self.lines if sign != "+"]

    @property
    def new_lines(self) -> list[str]:
        """The lines that replace them."""
        return [text for sign, text in self.lines if sign != "-"]


def has_edits(answer: str) -> bool:
    """Return whether a text opens a block or a hunk."""
    return any(_OPEN.fullmatch(line) or _HUNK.fullmatch(line) for line in split_lines(answer))


def read_edits(answer: str) -> list[Edit]:
    """Return the edits of an answer, in order. Raises ValueError where there are none, or they cannot be read."""
    lines = split_lines(answer)
    first = next((line for line in lines if _OPEN.fullmatch(line) or _HUNK.fullmatch(line)), "")
    edits = list(_hunks(lines) if first.startswith("@") else _blocks(lines) if first else ())
    if not edits:
        raise ValueError("there is no edit: neither a line `<<<<<<< SEARCH` nor a hunk `@@ -1,3 +1,3 @@`")
    if len(edits) > _MOST:
        raise ValueError(f"there are more than {_MOST} edits; use fewer and larger ones")
    return edits


def split_lines(text: str) -> list[str]:
    """Return the lines of a text without their line ends."""
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def _blocks(lines: list[str]) -> Iterator[Edit]:
    at = count = 0
    while at < len(lines):
        opened = _OPEN.fullmatch(lines[at])
        at += 1
        if opened is None:
            _check_between(at, lines[at - 1], "block")
            continue
        count += 1
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
    """Return the edit that replaces one text by another, keeping their common first and last lines."""
    first = shared_lines(old, new)
    last = shared_lines(old[first:][::-1], new[first:][::-1])
    start, end = len(old) - last, len(new) - last
    lines = [*((" ", line) for line in old[:first]), *(("-", line) for line in old[first:start])]
    return Edit(name, (*lines, *(("+", line) for line in new[first:end]), *((" ", line) for line in old[start:])))


def shared_lines(first: list[str], second: list[str]) -> int:
    """Return how many lines at the start are the same."""
    return len([*takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False))])


def _check_between(number: int, line: str, what: str) -> None:
    """Raise ValueError for a line outside of all edits that looks like a part of one."""
    if _STRAY.match(line) or (what == "hunk" and line.startswith(("+", "-"))):
        raise ValueError(f"line {number} of the edits is outside every {what}: {line[:80]!r}")


def _hunks(lines: list[str]) -> Iterator[Edit]:
    starts = [index for index, line in enumerate(lines) if _HUNK.fullmatch(line)]
    for number, line in enumerate(lines[: starts[0]], start=1):
        if not line.startswith(_HEAD):
            _check_between(number, line, "hunk")
    for count, (start, end) in enumerate(zip(starts, [*starts[1:], len(lines)], strict=True), 1):
        body = lines[start + 1 : end]
        while body and (not body[-1].strip() or body[-1] == "```"):
            body.pop()
        signed = ((line[:1], line[1:]) if line[:1] in _SIGNS else (" ", line) for line in body if line[:1] != "\\")
        yield Edit(f"hunk {count}", tuple(signed))
