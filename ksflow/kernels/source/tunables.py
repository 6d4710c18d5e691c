"""Tunables: numbers that a kernel declares where it assigns them, in any language (problems/README.md).

    constexpr int MT = 2;         // tune: 1 2 3 | tile: tiles of 16 rows | if FORM == amx or FORM == dot
    BLOCK_M: tl.constexpr = 64    # tune: 32 64 128

A GPU kernel with launch lines can take other values for some cases (`dispatch`), and rule values out (`require`). A CPU
kernel says which values need an instruction set (`needs`). The source is not executed, and everything but the assigned
values stays the same, byte for byte.
"""

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from ksflow.kernels.source.expressions import Number, calculate, expression

_LINE = re.compile(
    r"""(?P<head>\s*\#\s*define\s+(?P<macro>[A-Za-z_]\w*)\s+
               | [^=]*?\b(?P<name>[A-Za-z_]\w*)(?:\s*:[^=]+?)?\s*=\s*)
        (?P<value>[\w.+-]+)
        (?P<tail>\s*;?\s*(?://|\#)\s*tune:\s*(?P<options>[\w.+\-][\w.+\-\s,]*?)
            (?:\|\s*(?!if\s)(?P<kind>\w+)\s*(?::\s*(?P<doc>.*?))?)?(?:\|\s*if\s(?P<when>.*?))?\s*)""",
    re.VERBOSE,
)
_TUNE = re.compile(
    r"""[^"'`]*?(?:\b(?P<value>[\w.]+)\s*;?\s*)?(?://|\#)\s*tune(?:\s*[:=]|\s+[-+]?\d|\b[^|]*\||\b(?=.*\b(?P=value)\b))"""
)
"""Matches a line that is meant to declare values, valid or not: with a colon, a number or a kind after `tune`, or with
the assigned value among its words; not in quotes.
"""
_TERM = re.compile(r"\s*(?P<name>[A-Za-z_]\w*)\s*(?P<sign>==|!=)\s*(?P<value>[\w.+-]+)\s*")
_LONGEST = 300  # characters: a declaration is a short line, and the pattern backtracks on long ones
NUMBER = (
    r"-?(?:0[xX][0-9a-fA-F]+|(?:\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)[fF]?|(?:0|[1-9]\d*)[uUlL]*)|[tT]rue|[fF]alse"
)
"""A literal, as a source assigns it."""
_CONSTANT = re.compile(
    rf"""(?P<head>\s*\#\s*define\s+(?P<macro>[A-Za-z_]\w*)\s+
                | (?!\s)[\w\s:<>,.]*?\b(?P<name>[A-Za-z_]\w*)(?:\s*:[^=]+?)?\s*=\s*)
         (?P<value>{NUMBER})
         (?P<tail>\s*;?\s*(?:(?://|\#).*)?)""",
    re.VERBOSE,
)
_LAUNCH_LINE = re.compile(
    r"(?P<mark>\s*(?://|\#)\s*)(?P<kind>launch|workspace|require|dispatch|tensormap):(?P<rest>.*)"
)
_NEEDS = re.compile(r"\s*(?://|\#)\s*needs:\s*(?P<feature>\w+)(?:\s+if\s(?P<when>.*))?")
"""Matches `// needs: amx_bf16 if FORM == amx`: such values are for a CPU with this instruction set."""
_DISPATCH = re.compile(r"if\s(?P<when>[^:]+):(?P<values>.+)")
NUM_THREADS = "NUM_THREADS"  # a compiler's definition: the number of a kernel's cores
DISPATCH = "dispatch: if "  # begins the name of a change for some cases: `dispatch: if m <= 1024` -> `BM=64 STAGES=4`


@dataclass(frozen=True)
class Condition:
    """When a tunable has an effect: if any, or every, term holds."""

    terms: tuple[tuple[str, bool, str], ...]  # name, whether its value must be equal or different, value
    every: bool = False

    def holds(self, config: Mapping[str, str]) -> bool:
        """Return whether it holds for these values. A term on an unknown name does not hold."""
        terms = (name in config and (config[name] == value) is equal for name, equal, value in self.terms)
        return all(terms) if self.every else any(terms)


@dataclass(frozen=True)
class Tunable:
    """One declared choice."""

    name: str
    value: str
    options: tuple[str, ...]
    kind: str = ""
    """form, decode, pack, tile, block, vector, unroll, prefetch, precision, fuse, memory, compiler, threads or none."""
    doc: str = ""
    when: Condition | None = None  # when the kernel reads it; None: always


def tunables(text: str) -> tuple[Tunable, ...]:
    """Return the tunables that a source declares, in order; their options include the assigned value. An invalid
    condition is ignored.
    """
    declared: dict[str, Tunable] = {}
    for match in filter(None, (_match(_LINE, line) for line in text.split("\n"))):
        name, value = match["name"] or match["macro"], match["value"]
        options = tuple(dict.fromkeys(re.split(r"[\s,]+", match["options"].strip(" \t,"))))
        if value not in options:
            options = (value, *options)
        when = None
        with contextlib.suppress(ValueError):
            when = _condition(match["when"], declared)
        doc = (match["doc"] or "").strip()
        declared.setdefault(name, Tunable(name, value, options, match["kind"] or "", doc, when))
    return tuple(declared.values())


@lru_cache(maxsize=4096)
def for_cores(declared: tuple[Tunable, ...], cores: int) -> tuple[Tunable, ...]:
    """Return tunables with the options that count for so many cores: of kind `threads` with one core the value alone,
    and beside NUM_THREADS only smaller numbers.
    """

    def counts(tunable: Tunable, option: str) -> bool:
        beyond = NUM_THREADS in tunable.options and option.isdecimal() and int(option) >= cores
        return tunable.kind != "threads" or option == tunable.value or (cores > 1 and not beyond)

    return tuple(replace(each, options=tuple(o for o in each.options if counts(each, o))) for each in declared)


def needs(text: str) -> tuple[tuple[str, Condition], ...]:
    """Return instruction sets (`Target.features`) and when the kernel needs them, from all valid `needs` lines."""
    lines = [match for line in text.split("\n") if (match := _match(_NEEDS, line))]
    declared, found = {each.name: each for each in tunables(text)} if lines else {}, list[tuple[str, Condition]]()
    for match in lines:
        with contextlib.suppress(ValueError):
            if when := _condition(match["when"], declared):
                found.append((match["feature"], when))
    return tuple(found)


def mistake(text: str) -> tuple[int, str, str] | None:
    """Return line number, line and error of the first invalid `tune` comment, None if there is none."""
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        match = _match(_LINE, line) or _match(_NEEDS, line)
        if match and match["when"] is not None:
            try:
                above = tunables("\n".join(lines[: number - 1]))
                _condition(match["when"], {tunable.name: tunable for tunable in above})
            except ValueError as error:
                return number, line.strip(), str(error)
        elif not match and "tune" in line and _TUNE.match(line[-_LONGEST:]):
            return number, line.strip(), "declares no values: write `NAME = VALUE  // tune: 8 16 32`"
    return None


def _condition(text: str | None, above: Mapping[str, Tunable]) -> Condition | None:
    if text is None:
        return None
    every = re.search(r"\sand\s", text) is not None
    matches = [_TERM.fullmatch(term) for term in re.split(r"\sand\s" if every else r"\sor\s", text)]
    terms = tuple((match["name"], match["sign"] == "==", match["value"]) for match in matches if match)
    if len(terms) < len(matches):
        raise ValueError(f"`if {text}` is no condition: write `if NAME == VALUE or NAME != VALUE`, or `and` throughout")
    for name, _, value in terms:
        if name not in above:
            raise ValueError(f"no tunable {name} is declared above; those are: {', '.join(above) or 'none'}")
        if value not in above[name].options:
            raise ValueError(f"{name} is never {value}; its values: {' '.join(above[name].options)}")
    return Condition(terms, every)


def effective_values(declared: Sequence[Tunable], config: Mapping[str, str]) -> dict[str, str]:
    """Return the values of `config` that the kernel reads, given the others."""
    counts: dict[str, str] = {}
    for tunable in declared:
        if tunable.name in config and (tunable.when is None or tunable.when.holds(counts)):
            counts[tunable.name] = config[tunable.name]
    return counts


def values(text: str) -> dict[str, str]:
    """Return tunable -> assigned value."""
    return {tunable.name: tunable.value for tunable in tunables(text)}


def without_values(text: str) -> str:
    """Return `text` without what tuning changes: the values and options of its tunables, and its dispatch lines."""
    kept = []
    for line in text.split("\n"):
        declaration = _match(_LINE, line)
        rule = _LAUNCH_LINE.fullmatch(line) if "dispatch:" in line else None
        if declaration or not (rule and rule["kind"] == "dispatch"):
            kept.append(declaration["head"] if declaration else line)
    return "\n".join(kept)


def dispatches(text: str) -> dict[str, dict[str, str]]:
    """Return condition -> tunable -> value for the cases where it is the first that holds, from all valid lines."""
    conditions: dict[str, dict[str, str]] = {}
    for kind, rest in launch_lines(text):
        with contextlib.suppress(ValueError):
            if kind == "dispatch":
                conditions.setdefault(*read_dispatch(rest))
    return conditions


def read_dispatch(rest: str) -> tuple[str, dict[str, str]]:
    """Return the condition and the values of a dispatch line. Raises ValueError."""
    match = _DISPATCH.fullmatch(rest)
    if match is None:
        raise ValueError("is not `if CONDITION: NAME=VALUE ...`")
    return match["when"].strip(), _pairs(match["values"])


def requires(text: str) -> tuple[str, ...]:
    """Return the expressions of the `require` lines."""
    return tuple(rest for kind, rest in launch_lines(text) if kind == "require")


def launch_lines(text: str) -> tuple[tuple[str, str], ...]:
    """Return (kind, text) of every line that is a launch, workspace, require, dispatch or tensormap line, in order."""
    matches = (_LAUNCH_LINE.fullmatch(line) for line in text.split("\n"))
    return tuple((match["kind"], match["rest"].strip()) for match in matches if match)


def has_launches(text: str) -> bool:
    """Return whether `text` has launch lines, so that it needs no host code."""
    return any(kind == "launch" for kind, _ in launch_lines(text))


def constants(text: str) -> dict[str, Number]:
    """Return the numbers that a source declares at top level, one per line; of equal names the first."""
    numbers: dict[str, Number] = {}
    for match in filter(None, (_match(_CONSTANT, line) for line in text.split("\n"))):
        numbers.setdefault(match["name"] or match["macro"], number(match["value"]))
    return numbers


def redeclare(line: str, values: Mapping[str, str]) -> str:
    """Return a line of a source, with another value if it declares one of these constants."""
    return _rewrite(_CONSTANT, line, values)


def _match(pattern: re.Pattern[str], line: str) -> re.Match[str] | None:
    word = "tune:" if pattern is _LINE else "needs:" if pattern is _NEEDS else ""
    return pattern.fullmatch(line) if len(line) <= _LONGEST and word in line else None


def _rewrite(pattern: re.Pattern[str], line: str, values: Mapping[str, str]) -> str:
    match = _match(pattern, line) if values else None
    value = values.get(match["name"] or match["macro"]) if match else None
    return f"{match['head']}{value}{match['tail']}" if match and value is not None else line


def number(literal: str) -> Number:
    """Return the value of a literal of any of the languages; true is 1. Raises ValueError."""
    plain = literal.lower()
    if plain in ("true", "false"):
        return int(plain == "true")
    if "x" in plain:
        return int(plain, 16)
    plain = plain.rstrip("ulf")
    return float(plain) if "." in plain or "e" in plain else int(plain)


def ruled_out(rules: tuple[str, ...], known: Mapping[str, Number], config: Mapping[str, str]) -> bool:
    """Return whether one of a source's `requires`, with its `constants` (known), forbids `config` for every case."""
    for rule in rules:
        with contextlib.suppress(ValueError):
            assigned = {name: number(config[name]) for name in known.keys() & config.keys()}
            if not calculate(rule, {**known, **assigned}):
                return True
    return False


def assign(text: str, changes: Mapping[str, str]) -> str:
    """Return `text` with other values, for all or (`dispatch: if ...`) for some cases; "" removes such a line. Raises
    ValueError.
    """
    declared = {tunable.name: tunable for tunable in tunables(text)}
    lines = {name.removeprefix(DISPATCH): value for name, value in changes.items() if name.startswith(DISPATCH)}
    plain = {name: value for name, value in changes.items() if not name.startswith(DISPATCH)}
    _check(plain, declared)
    for when, pairs in lines.items():
        expression(when)
        _check(_pairs(pairs), declared)
    if lines and not has_launches(text):
        raise ValueError("dispatch lines need launch lines: the kernel's own host code decides what it launches")
    text = "\n".join(_rewrite(_LINE, line, plain) for line in text.split("\n"))
    return _dispatched(text, lines) if lines else text


def _check(changes: Mapping[str, str], declared: Mapping[str, Tunable]) -> None:
    for name, value in changes.items():
        if name not in declared:
            raise ValueError(f"no tunable {name}; declared: {', '.join(declared) or 'none'}")
        if value not in declared[name].options:
            raise ValueError(f"{name} can be {' '.join(declared[name].options)}, not {value}")


def _pairs(text: str) -> dict[str, str]:
    """Return `BM=64 STAGES=4` as names and values. Raises ValueError."""
    pairs = [pair.partition("=") for pair in re.sub(r"\s*=\s*", "=", text).replace(",", " ").split()]
    if wrong := [name for name, sign, value in pairs if not (name and sign and value)]:
        raise ValueError(f"dispatch: {wrong[0]!r} is not NAME=VALUE")
    return {name: value for name, _, value in pairs}


def _dispatched(text: str, changes: Mapping[str, str]) -> str:
    lines = list[str]()
    left, at, mark = dict(changes), -1, ""
    for line in text.split("\n"):
        rule = _LAUNCH_LINE.fullmatch(line)
        match = _DISPATCH.fullmatch(rule["rest"].strip()) if rule and rule["kind"] == "dispatch" else None
        if rule and rule["kind"] == "launch" and at < 0:
            at, mark = len(lines), rule["mark"]
        when = match["when"].strip() if match else ""
        if rule is None or when not in changes:
            lines.append(line)
        elif pairs := left.pop(when, ""):
            lines.append(f"{rule['mark']}{DISPATCH}{when}: {pairs}")
    new = [f"{mark}{DISPATCH}{when}: {pairs}" for when, pairs in left.items() if pairs]
    return "\n".join([*lines[:at], *new, *lines[at:]])
