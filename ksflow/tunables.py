"""Tunables: numbers a kernel declares where it assigns them, in any language.

    constexpr int MR = 8;         // tune: 4 6 8 12 | tile: rows of the register tile
    #define STAGES 2              // tune: 1 2 3
    BLOCK_M: tl.constexpr = 64    # tune: 32 64 128

The value is what is assigned; the list is what may be; after `|` come the kind and its meaning, both optional.
Text in, text out: nothing is run, and everything but the assigned values is left as it is, byte for byte.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

_LINE = re.compile(
    r"""(?P<head>\s*\#\s*define\s+(?P<macro>[A-Za-z_]\w*)\s+
               | [^=]*?\b(?P<name>[A-Za-z_]\w*)(?:\s*:[^=]+?)?\s*=\s*)
        (?P<value>[\w.+-]+)
        (?P<tail>\s*;?\s*(?://|\#)\s*tune:\s*(?P<options>[\w.+\-\s,]+?)
            (?:\|\s*(?P<kind>\w+)\s*(?::\s*(?P<doc>.*?))?)?\s*)""",
    re.VERBOSE,
)
_LONGEST = 300  # characters: a declaration is a short line, and the pattern backtracks on long ones


@dataclass(frozen=True)
class Tunable:
    """One declared choice."""

    name: str
    value: str
    options: tuple[str, ...]
    kind: str = ""
    """form, decode, pack, tile, block, vector, unroll, prefetch, precision, fuse, memory, compiler or nothing."""
    doc: str = ""


def tunables(text: str) -> tuple[Tunable, ...]:
    """What `text` declares, in order. A value outside its own list counts as one of its options."""
    found: dict[str, Tunable] = {}
    for match in filter(None, map(_declaration, text.split("\n"))):
        name, value = match["name"] or match["macro"], match["value"]
        options = tuple(dict.fromkeys(re.split(r"[\s,]+", match["options"].strip(" \t,"))))
        if value not in options:
            options = (value, *options)
        if name not in found:
            found[name] = Tunable(name, value, options, match["kind"] or "", match["doc"] or "")
    return tuple(found.values())


def values(text: str) -> dict[str, str]:
    """Tunable -> the value `text` assigns."""
    return {tunable.name: tunable.value for tunable in tunables(text)}


def assign(text: str, changes: Mapping[str, str]) -> str:
    """`text` with other values. Raises ValueError for an unknown tunable or a value outside its list."""
    declared = {tunable.name: tunable for tunable in tunables(text)}
    for name, value in changes.items():
        if name not in declared:
            raise ValueError(f"no tunable {name}; declared: {', '.join(declared) or 'none'}")
        if value not in declared[name].options:
            raise ValueError(f"{name} can be {' '.join(declared[name].options)}, not {value}")
    return "\n".join(_rewrite(line, changes) for line in text.split("\n"))


def _declaration(line: str) -> re.Match[str] | None:
    return _LINE.fullmatch(line) if "tune:" in line and len(line) <= _LONGEST else None


def _rewrite(line: str, changes: Mapping[str, str]) -> str:
    match = _declaration(line)
    value = changes.get(match["name"] or match["macro"]) if match else None
    return f"{match['head']}{value}{match['tail']}" if match and value is not None else line
