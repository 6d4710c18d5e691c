"""Reading of long documents: a model chooses places in an outline; ranking by shared words fills the rest."""

import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby, pairwise

from ksflow.errors import ConfigError, shorten
from ksflow.kernels.source.tokens import estimate
from ksflow.records import Document, Problem, Target

CHARACTERS = 4  # of a token, on average
_WORD = re.compile(r"[^\W\d]\w+|\d{2,}")
_COMMON = """the and for that this with from are was were not but its into than then them they have has had will would
can could each which what when where how all any one two more most other such only also be is it in of on to as at by or
if an must may should there their these those been between over under very same"""
_STOP = frozenset(_COMMON.split())
# Words that interest every author of kernels.
_ALWAYS = (
    "latency throughput cycles alignment register shared memory cache bank conflict bandwidth instruction pipeline"
)
_LINES = 240  # of an outline


@dataclass(frozen=True)
class ShownPassage:
    """A passage in a prompt."""

    document: str
    place: str
    text: str
    order: int  # its position among all readable passages

    @property
    def source(self) -> str:
        """Its name in citations: `NAME, PLACE`."""
        return f"{self.document}, {self.place}" if self.place else self.document

    @property
    def block(self) -> str:
        """Its text under its source."""
        return f"### source: {self.source}\n{self.text}\n\n"

    @property
    def tokens(self) -> int:
        """Estimated tokens."""
        return estimate(self.block)


def passages(documents: Iterable[Document]) -> tuple[ShownPassage, ...]:
    """Return all readable passages, in order, each under `NAME, PLACE`."""
    pairs = [(document.source, passage) for document in documents for passage in document.passages]
    return tuple(ShownPassage(name, passage.place, passage.text, order) for order, (name, passage) in enumerate(pairs))


def question(problem: Problem, target: Target | None) -> str:
    """Return the topics to look for: the task, its languages and types, the machine."""
    chip = [target.name, target.chip, target.march, *target.features] if target else []
    types = {arg.dtype for arg in problem.args}
    parts = [problem.title, problem.description, problem.statement, *problem.languages, *sorted(types), *chip, _ALWAYS]
    return " ".join(parts)


def rank(shown: Sequence[ShownPassage], wanted: str) -> tuple[ShownPassage, ...]:
    """Return the passages that share words with the question, most relevant first, then in order."""
    about = " ".join(word for word in wanted.split() if word.lower() not in _STOP)
    scores = relevance([word_set(f"{item.source} {item.text}") for item in shown], about)
    scored = sorted(zip(scores, shown, strict=True), key=lambda pair: (-pair[0], pair[1].order))
    return tuple(item for score, item in scored if score > 0)


def groups(shown: Sequence[ShownPassage]) -> list[tuple[ShownPassage, ...]]:
    """Return groups of neighbours with a common heading, at most `_LINES`: the lines of an outline."""
    groups = [tuple(same) for _, same in groupby(shown, key=_heading)]
    least = 1
    while len(groups) > _LINES:  # merge neighbours until groups have `least` passages
        least *= 2
        packed: list[tuple[ShownPassage, ...]] = []
        for group in groups:
            if packed and len(packed[-1]) < least:
                packed[-1] += group
            else:
                packed.append(group)
        groups = packed
    return groups


def outline(groups: Sequence[tuple[ShownPassage, ...]]) -> str:
    """Return a line for each group: number, source, length, beginning."""
    lines = []
    for number, group in enumerate(groups, 1):
        last = f" to {shorten(group[-1].place or group[-1].document, 50)}" if len(group) > 1 else ""
        size = sum(item.tokens for item in group)
        lines.append(f"{number}. {shorten(group[0].source, 90)}{last} ({size} tokens): {shorten(group[0].text, 50)}")
    return "\n".join(lines)


def _heading(item: ShownPassage) -> tuple[str, str]:
    """Return what neighbours share: the heading of pages, the upper two levels of a path, nothing for lines."""
    page, _, heading = item.place.partition(", ")
    if page.startswith(("page ", "lines ")):
        return item.document, heading or page
    return item.document, " > ".join(item.place.split(" > ")[:2])


def batches(chosen: Iterable[ShownPassage], room: int) -> list[tuple[ShownPassage, ...]]:
    """Return the passages in document order, in batches of at most `room` characters (at least one passage each)."""
    ordered = sorted(chosen, key=lambda item: item.order)
    batches: list[tuple[ShownPassage, ...]] = []
    size = 0
    for item in ordered:
        if batches and size + len(item.block) <= room:
            batches[-1] += (item,)
            size += len(item.block)
        else:
            batches.append((item,))
            size = len(item.block)
    return batches


def relevance(own: Sequence[frozenset[str]], about: str) -> list[float]:
    """Return the weight of the words that each text (its words) shares with `about`, relative to that of all its words;
    rare words have most weight.
    """
    if not about:
        return [0.0] * len(own)
    sought = Counter(_words(about))
    weight, lengths = _weights(tuple(own))
    shared = (sorted(words & sought.keys()) for words in own)
    sums = (math.fsum(weight[word] * (1 + math.log(sought[word])) for word in words) for words in shared)
    return [total / length for total, length in zip(sums, lengths, strict=True)]


@lru_cache(4)
def _weights(own: tuple[frozenset[str], ...]) -> tuple[dict[str, float], list[float]]:
    """Return each word's weight and each text's divisor; the same notes are ranked for many questions."""
    count = Counter(word for words in own for word in words)
    weight = {word: math.log(1 + len(own) / often) for word, often in count.items()}
    return weight, [math.sqrt(math.fsum(weight[word] for word in words) or 1.0) for words in own]


def word_set(text: str) -> frozenset[str]:
    """Return the words of a text for `relevance`."""
    return frozenset(_words(text))


def _words(text: str) -> list[str]:
    words = []
    for name in _WORD.findall(text.lower()):
        words.append(name)
        parts = [part for part in name.split("_") if part]
        if len(parts) > 1:
            words += [part for part in parts if len(part) > 1]
            words += ["_".join(pair) for pair in pairwise(parts)]
    return words


Choose = Callable[[str, str], tuple[int, ...]]
"""Takes an outline and the room left, in words; returns numbers of its lines, the most useful first."""


@dataclass(frozen=True)
class ReadingPlan:
    """Passages to read, in pieces, and unread ones."""

    pieces: tuple[tuple[ShownPassage, ...], ...]
    unread: tuple[ShownPassage, ...] = ()


@dataclass(frozen=True)
class ReadingBudget:
    """Limits of a digestion."""

    tokens: int  # of everything that is sent
    fixed: int  # of each prompt, beside the documents
    piece: int  # characters of documents in one prompt

    def fits(self, shown: Sequence[ShownPassage], before: int = 0) -> bool:
        """Return whether all of it can be read, after `before` tokens."""
        parts = batches(shown, self.piece)
        return before + sum(self.fixed + sum(item.tokens for item in part) for part in parts) <= self.tokens


def plan_reading(shown: Sequence[ShownPassage], wanted: str, room: ReadingBudget, choose: Choose) -> ReadingPlan:
    """Plan to read all, or what `choose` returns, then passages similar to the question. ConfigError without room."""
    if room.fits(shown):
        return ReadingPlan(tuple(batches(shown, room.piece)))
    sections = groups(shown)
    text = outline(sections)
    before = room.fixed + len(text) // 3
    ranked = rank(shown, wanted)
    order = {item.order: index for index, item in enumerate(ranked)}
    named = [
        item
        for number in choose(text, f"about {room.tokens - before} of {sum(item.tokens for item in shown)} tokens")
        for item in sorted(sections[number - 1], key=lambda item: order.get(item.order, len(order)))
    ]
    wished = list(dict.fromkeys([*named, *ranked]))
    count = bisect_left(range(1, len(wished) + 1), True, key=lambda most: not room.fits(wished[:most], before))
    chosen = wished[:count]
    if not chosen:
        raise ConfigError(f"digester.tokens={room.tokens} leaves no room for a passage; raise it")
    read = {item.order for item in chosen}
    unread = tuple(item for item in shown if item.order not in read)
    return ReadingPlan(tuple(batches(chosen, room.piece)), unread)
