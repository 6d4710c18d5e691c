"""Which passages bear on a question, by the words they share, and an outline that a model can choose from. No model."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby, pairwise

from ksflow.errors import short
from ksflow.records import Document, Problem, Target
from ksflow.source.tokens import estimate

CHARACTERS = 4
"""Of a token, by and large."""
_WORD = re.compile(r"[^\W\d]\w+|\d{2,}")
_COMMON = """the and for that this with from are was were not but its into than then them they have has had will would
can could each which what when where how all any one two more most other such only also be is it in of on to as at by or
if an must may should there their these those been between over under very same"""
_STOP = frozenset(_COMMON.split())
_ALWAYS = (
    "latency throughput cycles alignment register shared memory cache bank conflict bandwidth instruction pipeline"
)
"""What any kernel's writer asks about."""
_LINES = 240
"""Of an outline."""


@dataclass(frozen=True)
class ShownPassage:
    """A passage as a prompt shows it."""

    document: str
    place: str
    text: str
    order: int
    """Its position in everything that could be read."""

    @property
    def source(self) -> str:
        """As notes cite it: `NAME, PLACE`."""
        return f"{self.document}, {self.place}" if self.place else self.document

    @property
    def block(self) -> str:
        """Under its source."""
        return f"### source: {self.source}\n{self.text}\n\n"

    @property
    def tokens(self) -> int:
        """About so many."""
        return estimate(self.block)


def passages(documents: Iterable[Document]) -> tuple[ShownPassage, ...]:
    """Everything that could be read, in order, each under `NAME, PLACE`."""
    pairs = [(document.source, passage) for document in documents for passage in document.passages]
    return tuple(ShownPassage(name, passage.place, passage.text, order) for order, (name, passage) in enumerate(pairs))


def question(problem: Problem, target: Target | None) -> str:
    """What is looked for: the task, its languages and shapes, the machine."""
    chip = [target.name, target.chip, target.march, *target.features] if target else []
    types = {arg.dtype for arg in problem.args}
    parts = [problem.title, problem.description, problem.statement, *problem.languages, *sorted(types), *chip, _ALWAYS]
    return " ".join(parts)


def rank(shown: Sequence[ShownPassage], wanted: str) -> tuple[ShownPassage, ...]:
    """The passages that share words with the question, the most relevant first; of equals the earlier."""
    about = " ".join(word for word in wanted.split() if word.lower() not in _STOP)
    scores = relevance([word_set(f"{item.source} {item.text}") for item in shown], about)
    scored = sorted(zip(scores, shown, strict=True), key=lambda pair: (-pair[0], pair[1].order))
    return tuple(item for score, item in scored if score > 0)


def groups(shown: Sequence[ShownPassage]) -> list[tuple[ShownPassage, ...]]:
    """Neighbours that share a heading, packed into at most `_LINES`: the lines of an outline."""
    groups = [tuple(same) for _, same in groupby(shown, key=_heading)]
    least = 1
    while len(groups) > _LINES:  # neighbours together until they have `least` passages
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
    """A line for each group: its number, what it is, how long, and how it begins."""
    lines = []
    for number, group in enumerate(groups, 1):
        last = f" to {short(group[-1].place or group[-1].document, 50)}" if len(group) > 1 else ""
        size = sum(item.tokens for item in group)
        lines.append(f"{number}. {short(group[0].source, 90)}{last} ({size} tokens): {short(group[0].text, 50)}")
    return "\n".join(lines)


def _heading(item: ShownPassage) -> tuple[str, str]:
    """What neighbours share: the heading of pages, the upper two of a path; of lines nothing."""
    page, _, heading = item.place.partition(", ")
    if page.startswith(("page ", "lines ")):
        return item.document, heading or page
    return item.document, " > ".join(item.place.split(" > ")[:2])


def batches(chosen: Iterable[ShownPassage], room: int) -> list[tuple[ShownPassage, ...]]:
    """In document order, in batches of at most `room` characters (one passage at least)."""
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


# -- words ---------------------------------------------------------------------------------------


def relevance(own: Sequence[frozenset[str]], about: str) -> list[float]:
    """The weight of the words that each text shares with `about`, against that of all its words; rare ones weigh most.

    `own`: the words of each text. The notes of prompts and the passages of a digestion are both ranked by it.
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
    """What each word weighs, and what each text is divided by. Many questions are asked of the same notes."""
    count = Counter(word for words in own for word in words)
    weight = {word: math.log(1 + len(own) / often) for word, often in count.items()}
    return weight, [math.sqrt(math.fsum(weight[word] for word in words) or 1.0) for words in own]


def word_set(text: str) -> frozenset[str]:
    """The words of a text, as `relevance` takes them."""
    return frozenset(_words(text))


def _words(text: str) -> list[str]:
    """Lower case; a compound name whole, in its parts and in its neighbouring pairs."""
    words = []
    for name in _WORD.findall(text.lower()):
        words.append(name)
        parts = [part for part in name.split("_") if part]
        if len(parts) > 1:
            words += [part for part in parts if len(part) > 1]
            words += ["_".join(pair) for pair in pairwise(parts)]
    return words
