"""Answers as sections under header lines, closed by a marker: split, never repaired.

Lines end at `\\n` alone, so every other character of the payload (a kernel's code) is kept: carriage returns, form
feeds, Unicode's own line separators, lines that look like headers or fences. Of the payload's end only one thing is
not its own: the line break before the header or the marker that follows.

A section of JSON is what it should be or is refused. Beyond the standard: no key twice in an object, no NaN or
Infinity, no NUL character.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

HEADER = re.compile(r"\[\[ ## (\w+) ## \]\]")
COMPLETED = "[[ ## completed ## ]]"
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_FENCE = re.compile(r"([ \t]*)(`{3,}|~{3,})[^`]*")


def header(name: str) -> str:
    """Return the line above a section."""
    return f"[[ ## {name} ## ]]"


def join(texts: Mapping[str, str]) -> str:
    """Return an answer with these sections, as `split` reads it."""
    return "\n".join([*(f"{header(name)}\n{text}" for name, text in texts.items()), COMPLETED])


def split(answer: str, names: list[str], payload: str = "") -> dict[str, str]:
    """Section -> text. The payload (else the last section) is kept to the letter, and headers inside it belong to it.
    Of a section that follows it the last header counts; it may stand in front, too. ValueError says what is wrong.
    """
    payload = payload or names[-1]
    try:
        check_text(answer)
    except ValueError as error:
        raise ValueError(f"the answer cannot be used: {error}") from None
    lines = _without_thoughts(answer, names).split("\n")
    marks = [index for index, line in enumerate(lines) if line.strip() == COMPLETED]
    if not marks:
        raise ValueError(f"the last line must be {COMPLETED}; the answer was cut off or not closed")
    if any(line.strip() for line in lines[marks[-1] + 1 :]):
        raise ValueError(f"there is text after {COMPLETED}")
    end = marks[-1]
    starts: dict[str, int] = {}
    for index, line in enumerate(lines[:end]):
        match = HEADER.fullmatch(line.strip()) if line.lstrip().startswith("[[") else None
        if match and match[1] in names and payload not in starts:
            if match[1] in starts:
                raise ValueError(f"the section {match[1]} appears twice")
            starts[match[1]] = index
    for name in names[names.index(payload) + 1 :]:
        below = [index for index in range(starts.get(payload, end), end) if lines[index].strip() == header(name)]
        starts |= {name: below[-1]} if below and name not in starts else {}
    if missing := [name for name in names if name not in starts]:
        raise ValueError(f"missing sections: {', '.join(missing)}; {names[-1]} comes last")
    ends = sorted([*starts.values(), end])
    texts = {name: "\n".join(lines[starts[name] + 1 : ends[ends.index(starts[name]) + 1]]) for name in names}
    texts = {name: unfence(text) if name == payload else text.strip() for name, text in texts.items()}
    if empty := [name for name, text in texts.items() if not text.strip()]:
        raise ValueError(f"the section {empty[0]} is empty")
    return texts


def unfence(text: str) -> str:
    """Return `text` without a Markdown fence around all of it. Raises ValueError for one that is not closed there."""
    lines = text.strip("\n").split("\n")
    opening = _FENCE.fullmatch(lines[0])
    if not opening:
        return text
    last = max(index for index, line in enumerate(lines) if line.strip())
    indent, fence = opening[1], opening[2]
    closing = lines[last].strip()
    if last == 0 or len(closing) < len(fence) or closing.strip(fence[0]):
        raise ValueError(f"a {fence} fence opens and is not closed at the section's end")
    return "".join(f"{line.removeprefix(indent)}\n" for line in lines[1:last])


def _without_thoughts(answer: str, names: list[str]) -> str:
    """What follows the thoughts, which may rehearse the sections. ValueError where there is nothing but thoughts."""
    thoughts, closed, rest = answer.partition("</think>")
    opened = thoughts.lstrip().startswith("<think>")
    if opened and not closed:
        raise ValueError("the answer ends within its thoughts: <think> is not closed")
    own = closed and (opened or all(header(name) in rest for name in names))
    return rest if own else answer


def check_json(text: str) -> None:
    """Raise ValueError for valid JSON with a key twice in an object, NaN or Infinity, or an escaped NUL character."""
    json.loads(text, object_pairs_hook=_object, parse_constant=_constant)
    if _NUL.search(text):
        raise ValueError("it contains a NUL character")


def check_text(text: str) -> None:
    """Raise ValueError for characters that no file and no message may contain."""
    if "\0" in text:
        raise ValueError("it contains a NUL character")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("it is not valid Unicode (a lone surrogate)") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        (twice, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key {twice[:40]!r} appears twice in one object")
    return values


def _constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON; numbers are finite")
