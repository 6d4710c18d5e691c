"""Answers as sections under header lines, closed by a marker: split, never repaired.

Lines end at `\\n` alone, so every other character of the payload (the last section) is kept: carriage returns, form
feeds, Unicode's own line separators, lines that look like headers or fences. Of the payload's end only one thing is
not its own: the line break before the closing marker.
"""

import re

from ksflow.lm.strict import check_text

HEADER = re.compile(r"\[\[ ## (\w+) ## \]\]")
COMPLETED = "[[ ## completed ## ]]"
_FENCE = re.compile(r"```[\w+.-]*[ \t\r]*")


def split(answer: str, names: list[str]) -> dict[str, str]:
    """Section -> text. Headers inside the last one belong to it. ValueError says what is wrong."""
    try:
        check_text(answer)
    except ValueError as error:
        raise ValueError(f"the answer cannot be used: {error}") from None
    lines = answer.split("\n")
    end = _end(lines)
    starts: dict[str, int] = {}
    for index, line in enumerate(lines[:end]):
        match = HEADER.fullmatch(line.strip()) if line.lstrip().startswith("[[") else None
        if match and match[1] in names and names[-1] not in starts:
            if match[1] in starts:
                raise ValueError(f"the section {match[1]} appears twice")
            starts[match[1]] = index
    if missing := [name for name in names if name not in starts]:
        raise ValueError(f"missing sections: {', '.join(missing)}; {names[-1]} comes last")
    ends = sorted([*starts.values(), end])
    texts = {name: "\n".join(lines[starts[name] + 1 : ends[ends.index(starts[name]) + 1]]) for name in names}
    return {name: _section(name, text, name == names[-1]) for name, text in texts.items()}


def _end(lines: list[str]) -> int:
    """The index of the closing marker, after which there must be nothing."""
    marks = [index for index, line in enumerate(lines) if line.strip() == COMPLETED]
    if not marks:
        raise ValueError(f"the last line must be {COMPLETED}; the answer was cut off or not closed")
    if any(line.strip() for line in lines[marks[-1] + 1 :]):
        raise ValueError(f"there is text after {COMPLETED}")
    return marks[-1]


def _section(name: str, text: str, payload: bool) -> str:
    text = unfence(text) if payload else text.strip()
    if not text.strip():
        raise ValueError(f"the section {name} is empty")
    return text


def unfence(text: str) -> str:
    """`text` without a fence around all of it. ValueError if it does not end the text."""
    lines = text.strip("\n").split("\n")
    if not _FENCE.fullmatch(lines[0]):
        return text
    last = max(index for index, line in enumerate(lines) if line.strip())
    if last == 0 or lines[last].strip() != "```":
        raise ValueError("a ``` fence opens and is not closed at the section's end")
    return "".join(f"{line}\n" for line in lines[1:last])
