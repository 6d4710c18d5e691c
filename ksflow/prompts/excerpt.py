"""A long source file in few tokens: what repeats itself is folded, and of the rest is shown what bears on the work.

What is shown are the file's own lines, so that edits may quote them. What is not has a comment in its place, with the
lines that it stands for and how they begin.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import groupby, pairwise

from ksflow.notes.relevance import relevance, word_set
from ksflow.prompts.brief import count
from ksflow.source.tunables import has_launches, tunables

_HEAD = 12  # lines of comment and signature that stand for a part
_HEADER = 12  # tokens of `lines 120-180:`
_SMALL = 40  # tokens that a comment in their place would not save
_SHORT = 3  # lines that are shown, whatever they are like
_LONGEST_CYCLE = 24  # words of a list's element
_DIGITS = re.compile(r"\d+")
_WORD = re.compile(r"\w+|[^\w\s\"']")
_COMMENT = re.compile(r"(?://|#(?!\s*(?:include|define|if|endif|else|pragma|error)))[^\n]*|/\*(?:.|\n)*?\*/")


@dataclass(frozen=True)
class _Part:
    """A function, or what else stands together at the top of a file: its lines, and the number of the first."""

    first: int
    lines: tuple[str, ...]

    @cached_property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def last(self) -> int:
        return self.first + len(self.lines) - 1

    @property
    def head(self) -> int:
        """How many lines say what it is: comments, and the signature as far as its opening."""
        for index, line in enumerate(self.lines[:_HEAD]):
            if line.rstrip().endswith(("{", ":")) and not line.lstrip().startswith(("//", "#")):
                return index + 1
        return min(len(self.lines), 2)

    @cached_property
    def settings(self) -> bool:
        """Whether it declares how the kernel is launched and tuned, which nobody can do without."""
        return has_launches(self.text) or bool(tunables(self.text))


def of(text: str, tokens: int, about: str) -> str:
    """The file where it has room in `tokens`; else its settings, the parts that bear most on `about`, and of each other
    part what it is.
    """
    if count(text) <= tokens:
        return text
    parts, like, _ = _read(text)
    whole = _known(text) | _bearing(text, tokens - _least(text), about, as_head=True)
    shown: list[str] = []
    for folded, group in groupby(parts, lambda part: part in like):
        if folded:
            shown.append(_folded(list(group), like))
            continue
        for part in group:
            shown += part.lines if part in whole else _shortened(part)
    return "\n".join(shown)


def more(text: str, tokens: int, about: str) -> str:
    """Those parts that `of` leaves out first and that bear most on `about`, each under its lines."""
    parts = sorted(_bearing(text, tokens, about, as_head=False), key=lambda part: part.first)
    return "\n".join(f"lines {part.first}-{part.last}:\n{part.text}" for part in parts)


def lines(text: str, asked: str, tokens: int) -> str:
    """The lines that were asked for (`120-180, 300-340`) under their numbers, as many as have room."""
    all_lines, shown = text.split("\n"), ["the lines that you asked for:"]
    for first, last in re.findall(r"(\d+) ?- ?(\d+)", asked):
        block = "\n".join(all_lines[max(int(first) - 1, 0) : int(last)])
        room = tokens - sum(map(count, shown))
        shown.append(f"lines {first}-{last}:\n{beginning(block, max(room, 0))}")
    return "\n\n".join(shown)


def beginning(text: str, tokens: int) -> str:
    """As many of the first lines as have room, and how many lines more there are."""
    lines = all_lines = text.split("\n")
    while lines and count("\n".join(lines)) > tokens:
        lines = lines[: min(len(lines) - 1, int(len(lines) * 0.9))]
    left = len(all_lines) - len(lines)
    return "\n".join([*lines, *([f"(and {left} lines more)"] if left else [])])


@lru_cache(16)
def _known(text: str) -> frozenset[_Part]:
    """The parts that are shown whatever they bear on."""
    parts, like, sizes = _read(text)
    first = {*like.values()}
    return frozenset(
        part
        for part in parts
        if part not in like and (part in first or part.settings or sizes[part][0] <= sizes[part][1] + _SMALL)
    )


def _least(text: str) -> int:
    """The tokens of the file with every other part as its head."""
    parts, like, sizes = _read(text)
    known = _known(text)
    return sum(sizes[part][part not in known] for part in parts if part not in like)


def _bearing(text: str, room: int, about: str, as_head: bool) -> set[_Part]:
    """Other parts that bear most on `about` and have room; `as_head`: their heads have it already."""
    parts, like, sizes = _read(text)
    known, chosen = _known(text), set()
    open_ = [part for part in parts if part not in known and part not in like]
    scores = relevance([_words(part) for part in open_], about)
    for _, part in sorted(zip(scores, open_, strict=True), key=lambda pair: (-pair[0], pair[1].first)):
        size = sizes[part][0] - (sizes[part][1] if as_head else -_HEADER)
        if size <= room:
            room -= size
            chosen.add(part)
    return chosen


@lru_cache(16)
def _read(text: str) -> tuple[list[_Part], dict[_Part, _Part], dict[_Part, tuple[int, int]]]:
    """The parts of a file, those that are like one before them, and the tokens of each whole and as its head."""
    parts = _parts(text.split("\n"))
    sizes = {part: (count(part.text), count("\n".join(_shortened(part)))) for part in parts}
    return parts, _alike(parts), sizes


@lru_cache(1024)
def _words(part: _Part) -> frozenset[str]:
    return word_set(part.text)


def _parts(all_lines: Sequence[str]) -> list[_Part]:
    """A part begins behind a blank line, where a line is not indented and closes nothing."""
    starts = [
        number
        for number, (before, line) in enumerate(pairwise(["", *all_lines]))
        if not before.strip() and line[:1].strip() and line[0] not in ")}]"
    ]
    starts = sorted({0, *starts})
    return [_Part(a + 1, tuple(all_lines[a:b])) for a, b in pairwise([*starts, len(all_lines)])]


def _alike(parts: Iterable[_Part]) -> dict[_Part, _Part]:
    """Part -> the one before it that differs in numbers and in the lengths of lists alone."""
    seen: dict[tuple[str, ...], _Part] = {}
    like: dict[_Part, _Part] = {}
    for part in parts:
        form = _form(part.text)
        if form in seen and not part.settings and len(part.lines) > _SHORT:
            like[part] = seen[form]
        seen.setdefault(form, part)
    return like


def _form(text: str) -> tuple[str, ...]:
    """The words of a text with one for all numbers, and with one element of each list."""
    words = [_DIGITS.sub("0", word) for word in _WORD.findall(_COMMENT.sub("", text))]
    form: list[str] = []
    for word in words:
        form.append(word)
        for cycle in range(2, _LONGEST_CYCLE):
            if len(form) >= 2 * cycle and form[-cycle:] == form[-2 * cycle : -cycle]:
                del form[-cycle:]
                break
    return tuple(form)


def _shortened(part: _Part) -> list[str]:
    """A part's head, and what stands in the place of the lines behind it."""
    head, left = part.head, count("\n".join(part.lines[part.head :]))
    mark = f"{_comment(part)} ... lines {part.first + head}-{part.last} are left out ({left} tokens)\n"
    return [*part.lines[:head], mark]


def _folded(parts: list[_Part], like: dict[_Part, _Part]) -> str:
    """What stands in the place of parts that are like others."""
    names = list(dict.fromkeys(part.lines[max(part.head - 1, 0)].strip(" {:") for part in parts))
    others = ", ".join(f"{other.first}-{other.last}" for other in dict.fromkeys(like[part] for part in parts))
    shown = names[0] if len(names) == 1 else f"from {names[0]} to {names[-1]}"
    span = f"lines {parts[0].first}-{parts[-1].last}"
    return f"{_comment(parts[0])} ... {span} are {len(parts)} more like lines {others}, with other numbers: {shown}\n"


def _comment(part: _Part) -> str:
    return "#" if any(line.startswith(("def ", "@", "class ", "import ", "from ")) for line in part.lines) else "//"
