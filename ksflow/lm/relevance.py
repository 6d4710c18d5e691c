"""Which passages bear on a question: BM25, and an outline that a model can choose from. Arithmetic, no model."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from ksflow.lm.render import CHARACTERS, short
from ksflow.records import Document, Problem, Target

_K1, _B = 1.2, 0.75
_WORD = re.compile(r"[a-z][a-z0-9_]+|\d{2,}")
_STOP = frozenset(
    re.findall(
        r"\w+",
        """the and for that this with from are was were not but its into than then them they have has had will would can
        could each which what when where how all any one two more most other such only also be is it in of on to as at
        by or if an must may should there their these those been between over under very same""",
    )
)
_ALWAYS = (
    "latency throughput cycles alignment register shared memory cache bank conflict bandwidth instruction pipeline"
)
"""What any kernel's writer asks about."""
_LINES = 240
"""Of an outline."""


@dataclass(frozen=True)
class Shown:
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
        return tokens(self.block)


def tokens(text: str) -> int:
    """About so many are in a text."""
    return len(text.encode("utf-8", "replace")) // CHARACTERS + 1


def passages(documents: Iterable[Document]) -> tuple[Shown, ...]:
    """Everything that could be read, in order, each under `NAME, PLACE`."""
    pairs = [(document.source, passage) for document in documents for passage in document.passages]
    return tuple(Shown(name, passage.place, passage.text, order) for order, (name, passage) in enumerate(pairs))


def question(problem: Problem, target: Target | None) -> str:
    """What is looked for: the task, its languages and shapes, the machine."""
    chip = [target.name, target.chip, target.march, *target.features] if target else []
    types = {arg.dtype for arg in problem.args}
    parts = [problem.title, problem.description, problem.statement, *problem.languages, *sorted(types), *chip, _ALWAYS]
    return " ".join(parts)


def rank(shown: Sequence[Shown], wanted: str) -> tuple[Shown, ...]:
    """The passages that share words with the question, the most relevant first; of equals the earlier."""
    bags = [Counter(_words(f"{item.source} {item.text}")) for item in shown]
    sizes = [bag.total() for bag in bags]
    mean = sum(sizes) / len(sizes) if sizes else 1.0
    spread = Counter(word for bag in bags for word in bag)
    weights = {
        word: math.log(1 + (len(bags) - spread[word] + 0.5) / (spread[word] + 0.5)) for word in set(_words(wanted))
    }

    def score(bag: Counter[str], size: int) -> float:
        length = _K1 * (1 - _B + _B * size / mean)
        return sum(weights[word] * bag[word] * (_K1 + 1) / (bag[word] + length) for word in weights if word in bag)

    # summed in the order of the words, so that the last digits are the same every time
    weights = dict(sorted(weights.items()))
    scored = [(-score(bag, size), item.order, item) for bag, size, item in zip(bags, sizes, shown, strict=True)]
    return tuple(item for lost, _, item in sorted(scored, key=lambda row: row[:2]) if lost < 0)


def _words(text: str) -> list[str]:
    """Words and names in lower case, names with underscores whole and in parts."""
    found = []
    for word in _WORD.findall(text.lower()):
        parts = [word, *word.split("_")] if "_" in word else [word]
        found += [part for part in parts if len(part) > 1 and part not in _STOP]
    return found


def groups(shown: Sequence[Shown]) -> list[tuple[Shown, ...]]:
    """Neighbours that share a heading, packed into at most `_LINES`: the lines of an outline."""
    made = [tuple(same) for _, same in groupby(shown, key=_heading)]
    least = 1
    while len(made) > _LINES:
        least *= 2
        made = _packed(made, least)
    return made


def _packed(made: list[tuple[Shown, ...]], least: int) -> list[tuple[Shown, ...]]:
    """Neighbours together until they have `least` passages."""
    packed: list[tuple[Shown, ...]] = []
    for group in made:
        if packed and len(packed[-1]) < least:
            packed[-1] += group
        else:
            packed.append(group)
    return packed


def outline(made: Sequence[tuple[Shown, ...]]) -> str:
    """A line for each group: its number, what it is, how long, and how it begins."""
    lines = []
    for number, group in enumerate(made, 1):
        last = f" to {short(group[-1].place or group[-1].document, 50)}" if len(group) > 1 else ""
        size = sum(item.tokens for item in group)
        lines.append(f"{number}. {short(group[0].source, 90)}{last} ({size} tokens): {short(group[0].text, 50)}")
    return "\n".join(lines)


def _heading(item: Shown) -> tuple[str, str]:
    """What neighbours share: the heading of pages, the upper two of a path; of lines nothing."""
    page, _, heading = item.place.partition(", ")
    if page.startswith(("page ", "lines ")):
        return item.document, heading or page
    return item.document, " > ".join(item.place.split(" > ")[:2])


def pieces(chosen: Iterable[Shown], room: int) -> list[tuple[Shown, ...]]:
    """In document order, in batches of at most `room` characters (one passage at least)."""
    ordered = sorted(chosen, key=lambda item: item.order)
    made: list[tuple[Shown, ...]] = []
    size = 0
    for item in ordered:
        if made and size + len(item.block) <= room:
            made[-1] += (item,)
            size += len(item.block)
        else:
            made.append((item,))
            size = len(item.block)
    return made
