"""A long source file in few tokens: repetitions are folded, and of the rest the relevant parts are shown.

The shown lines are the file's own, so edits may quote them. A comment replaces other lines, with their numbers and
their first lines.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import groupby, pairwise

from ksflow.kernels.source.tunables import has_launches, tunables
from ksflow.lm.prompts.brief import count
from ksflow.notes.relevance import relevance, word_set

_HEAD = 12  # lines of comment and signature that represent a part
_HEADER = 12  # tokens of `lines 120-180:`
_SMALL = 40  # tokens that a comment in their place would not save
_SHORT = 3  # lines that are always shown
_LONGEST_CYCLE = 24  # words of a list's element
_words = lru_cache(1024)(word_set)
_DIGITS = re.compile(r"\d+")
_WORD = re.compile(r"\w+|[^\w\s\"']")
_COMMENT = re.compile(r"(?://|#(?!\s*(?:include|define|if|endif|else|pragma|error)))[^\n]*|/\*(?:.|\n)*?\*/")


@dataclass(frozen=True)
class _Part:
    """A function, or another block at the top level of a file: its lines, and the number of the first."""

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
        """The number of its first lines with comments and signature."""
        for index, line in enumerate(self.lines[:_HEAD]):
            if line.rstrip().endswith(("{", ":")) and not line.lstrip().startswith(("//", "#")):
                return index + 1
        return min(len(self.lines), 2)

    @cached_property
    def settings(self) -> bool:
        """Whether it declares launches or tunables, which are always shown."""
        return has_launches(self.text) or bool(tunables(self.text))


def shorten_file(text: str, tokens: int, about: str) -> str:
    """Return the file if it fits; else its settings, the parts most relevant to `about`, and heads of the others."""
    if count(text) <= tokens:
        return text
    parts, like, sizes, known = _read(text)
    least = sum(sizes[part][part not in known] for part in parts if part not in like)
    whole = known | _bearing(text, tokens - least, about, as_head=True)
    shown: list[str] = []
    for folded, group in groupby(parts, lambda part: part in like):
        if folded:
            shown.append(_folded(list(group), like))
            continue
        for part in group:
            shown += part.lines if part in whole else _shortened(part)
    return "\n".join(shown)


def omitted_parts(text: str, tokens: int, about: str) -> str:
    """Return the most relevant parts that `shorten_file` leaves out, each under its line numbers."""
    parts = sorted(_bearing(text, tokens, about, as_head=False), key=lambda part: part.first)
    return "\n".join(f"lines {part.first}-{part.last}:\n{part.text}" for part in parts)


def requested_lines(text: str, asked: str, tokens: int) -> str:
    """Return the requested lines (`120-180, 300-340`) under their numbers, as many as fit."""
    all_lines, shown = text.split("\n"), ["the lines that you asked for:"]
    for first, last in re.findall(r"(\d+) ?- ?(\d+)", asked):
        block = "\n".join(all_lines[max(int(first) - 1, 0) : int(last)])
        room = tokens - sum(map(count, shown))
        shown.append(f"lines {first}-{last}:\n{first_lines(block, max(room, 0))}")
    return "\n\n".join(shown)


def first_lines(text: str, tokens: int) -> str:
    """Return as many of the first lines as fit, and the number of further ones."""
    lines = all_lines = text.split("\n")
    while lines and count("\n".join(lines)) > tokens:
        lines = lines[: min(len(lines) - 1, int(len(lines) * 0.9))]
    left = len(all_lines) - len(lines)
    return "\n".join([*lines, *([f"(and {left} lines more)"] if left else [])])


def _bearing(text: str, room: int, about: str, as_head: bool) -> set[_Part]:
    """Return the other parts most relevant to `about` that fit; `as_head`: their heads are shown already."""
    parts, like, sizes, known = _read(text)
    chosen = set()
    open_ = [part for part in parts if part not in known and part not in like]
    scores = relevance([_words(part.text) for part in open_], about)
    for _, part in sorted(zip(scores, open_, strict=True), key=lambda pair: (-pair[0], pair[1].first)):
        size = sizes[part][0] - (sizes[part][1] if as_head else -_HEADER)
        if size <= room:
            room -= size
            chosen.add(part)
    return chosen


@lru_cache(16)
def _read(text: str) -> tuple[list[_Part], dict[_Part, _Part], dict[_Part, tuple[int, int]], set[_Part]]:
    """Return the parts of a file, those like an earlier one, the tokens of each, whole and as its head, and the parts
    that are always shown whole.
    """
    parts = _parts(text.split("\n"))
    sizes = {part: (count(part.text), count("\n".join(_shortened(part)))) for part in parts}
    like = _alike(parts)
    first = {*like.values()}
    saves = {part for part in parts if sizes[part][0] > sizes[part][1] + _SMALL}
    known = {part for part in parts if part in first or part.settings or part not in saves}
    return parts, like, sizes, known - like.keys()


def _parts(all_lines: Sequence[str]) -> list[_Part]:
    starts = [
        number
        for number, (before, line) in enumerate(pairwise(["", *all_lines]))
        if not before.strip() and line[:1].strip() and line[0] not in ")}]"
    ]
    starts = sorted({0, *starts})
    return [_Part(a + 1, tuple(all_lines[a:b])) for a, b in pairwise([*starts, len(all_lines)])]


def _alike(parts: Iterable[_Part]) -> dict[_Part, _Part]:
    """Return part -> an earlier one that differs only in numbers and lengths of lists."""
    seen: dict[tuple[str, ...], _Part] = {}
    like: dict[_Part, _Part] = {}
    for part in parts:
        form = _form(part.text)
        if form in seen and not part.settings and len(part.lines) > _SHORT:
            like[part] = seen[form]
        seen.setdefault(form, part)
    return like


def _form(text: str) -> tuple[str, ...]:
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
    head, left = part.head, count("\n".join(part.lines[part.head :]))
    mark = f"{_comment(part)} ... lines {part.first + head}-{part.last} are left out ({left} tokens)\n"
    return [*part.lines[:head], mark]


def _folded(parts: list[_Part], like: dict[_Part, _Part]) -> str:
    """Return the comment that replaces parts similar to others."""
    names = list(dict.fromkeys(part.lines[max(part.head - 1, 0)].strip(" {:") for part in parts))
    others = ", ".join(f"{other.first}-{other.last}" for other in dict.fromkeys(like[part] for part in parts))
    shown = names[0] if len(names) == 1 else f"from {names[0]} to {names[-1]}"
    span = f"lines {parts[0].first}-{parts[-1].last}"
    return f"{_comment(parts[0])} ... {span} are {len(parts)} more like lines {others}, with other numbers: {shown}\n"


def _comment(part: _Part) -> str:
    return "#" if any(line.startswith(("def ", "@", "class ", "import ", "from ")) for line in part.lines) else "//"
