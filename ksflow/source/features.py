"""What of a kernel's features its source and its compiler's report show: matrix cores, shared memory, precision, ...

Which features there are is data: `features.yaml`; what shows each in a language, too: `ksflow/languages`. Facts only: a
feature is `present` where a line or a figure shows it, `absent` where its absence shows, else `unknown`. Comments and
strings show nothing, inline assembly does. What may not be compiled, because a tunable or the preprocessor chooses
between forms, shows nothing either unless the compiler's report does.
Texts and records in, records out; nothing is run.
"""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ksflow.errors import one_line
from ksflow.languages import LANGUAGES, Language, named
from ksflow.records import CompiledKernel, Evaluation, Feature, Json, Kernel, Presence
from ksflow.source.tunables import Tunable, tunables

_SHOWN = 3
"""Lines that are cited for one feature."""
_WIDTH = 100
_LONGEST = 1000
"""Characters of a line that are searched."""

# What is not closed ends with the text or the line, so every match succeeds and hostile text takes no longer.
_C_TOKEN = re.compile(
    r"""R"(?P<end>[^()\\\s"]{0,16})\((?:.*?\)(?P=end)"|.*)|"(?:\\.|[^"\\\n])*"?|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])*'?"""
    r"""|(?P<comment>//(?:\\\r?\n|[^\n])*|/\*(?:.*?\*/|.*))|(?P<asm>\b(?:asm|__asm__|__asm)\b)|(?P<bracket>[()])""",
    re.DOTALL,
)
_ASM_COMMENT = re.compile(r"//(?:(?!\\n)[^\"\n])*|/\*(?:.*?\*/|.*)", re.DOTALL)
_PYTHON_TOKEN = re.compile(
    "|".join(rf"{quotes}(?:\\.|[^\\])*?(?:{quotes}|\Z)" for quotes in ('"""', "'''"))
    + r"""|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?|\#[^\n]*""",
    re.DOTALL,
)
_INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"\n]+)[>"]', re.MULTILINE)
_CONDITION = re.compile(r"^\s*#\s*(if|endif)")
_LAUNCH = re.compile(r"\s*(?://|\#)\s*launch:.*")


class _Entry(NamedTuple):
    """A feature of the catalogue, for one language."""

    row: Json
    """As `features.yaml` has it, with empty values for what it leaves out."""
    marks: tuple[re.Pattern[str], ...]
    hints: tuple[re.Pattern[str], ...]
    named: tuple[re.Pattern[str], ...]
    absent: bool
    """Whether a source without any of them is one without the feature."""


class _Line(NamedTuple):
    at: str
    """`kernel.cu:12`"""
    code: str
    """Without comments and strings."""
    text: str
    """As it is written."""
    sure: bool
    """Whether no `#if` decides about it."""


@cache
def _data() -> Json:
    import yaml

    return dict(yaml.safe_load(Path(__file__).with_name("features.yaml").read_text(encoding="utf-8")))


def reader() -> str:
    """Names this version of the catalogue."""
    return f"catalogue {_data()['version']}"


@cache
def names(kernel_language: str) -> tuple[str, ...]:
    """The features that are told of kernels in a language."""
    return tuple(entry.row["name"] for entry in _entries(kernel_language))


def features(kernel: Kernel, evaluation: Evaluation | None = None) -> tuple[Feature, ...]:
    """Every feature of the catalogue, as the kernel's source and the compiler's report in its verdict show it."""
    source, compiled = _source(kernel), evaluation.evidence.compiler if evaluation else ()
    return tuple(_feature(entry, source, compiled) for entry in _entries(kernel.language))


def code_of(text: str, kernel_language: str) -> str:
    """A source with blanks for its comments and strings, line by line as long as it was.

    The strings of inline assembly are code, and stay, without the comments in them.
    """
    if LANGUAGES[kernel_language].python:
        return _PYTHON_TOKEN.sub(lambda match: _blank(match[0]), text)
    depth: int | None = None  # of brackets, within inline assembly

    def replaced(match: re.Match[str]) -> str:
        nonlocal depth
        if match["asm"]:
            depth = 0
        elif match["bracket"]:
            depth = None if depth is None else depth + (1 if match[0] == "(" else -1)
            depth = None if match[0] == ")" and depth == 0 else depth
        elif match["comment"] or not depth:
            return _blank(match[0])
        else:
            return _ASM_COMMENT.sub(lambda comment: _blank(comment[0]), match[0])
        return match[0]

    return _C_TOKEN.sub(replaced, text)


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)


@dataclass(frozen=True)
class _Source:
    """A kernel's text as it is searched."""

    lines: tuple[_Line, ...]
    tunables: tuple[Tunable, ...]
    forms: str
    """Why what stands in it may not be compiled; empty where nothing chooses."""
    elsewhere: str
    """Why what does not stand in it may be there all the same; empty where it says everything."""

    def having(self, rules: tuple[re.Pattern[str], ...]) -> list[_Line]:
        """The lines that one of the patterns is found on."""
        return [line for line in self.lines if any(rule.search(line.code) for rule in rules)]


def _source(kernel: Kernel) -> _Source:
    lines, elsewhere = list[_Line](), ""
    plain = re.compile(re.sub(r"\s", "", _data()["plain_headers"]))
    for name, text in kernel.files.items():
        kind = LANGUAGES[named(name, text, (kernel.language,)) or kernel.language]
        code, depth = code_of(text, kind.name), 0
        calls = [rule for kinds, rule in _data()["elsewhere"].items() if kinds in kind.families]
        cause = next((call[0] for rule in calls if (call := re.search(rule, code))), "")
        headers = [] if kind.python else _INCLUDE.findall(text)
        cause = cause or next((file for file in headers if not plain.fullmatch(file) and file not in kernel.files), "")
        elsewhere = elsewhere or (f"{cause[:_WIDTH]} brings code that is not here" if cause else "")
        for number, (written, bare) in enumerate(zip(text.split("\n"), code.split("\n"), strict=True), 1):
            if condition := _CONDITION.match(bare):
                depth += 1 if condition[1] == "if" else -1
            if len(bare) > _LONGEST:
                elsewhere = elsewhere or f"{name}:{number} is too long to be read"
            launch = _LAUNCH.fullmatch(written)
            lines.append(_Line(f"{name}:{number}", (written if launch else bare)[:_LONGEST], written, depth <= 0))
    declared = tunables(kernel.main)
    chosen = [f"{t.name} = {t.value}" for t in declared if t.kind in _data()["forms"]]
    shown = ", ".join([*chosen[:_SHOWN], *(["..."] if chosen[_SHOWN:] else [])])
    return _Source(tuple(lines), declared, f"{shown} chooses what is compiled" if chosen else "", elsewhere)


@cache
def _entries(kernel_language: str) -> tuple[_Entry, ...]:
    entries, spoken = [], LANGUAGES[kernel_language]
    usual = {"tunables": (), "counts": False, "values": {}, "launches": False, "compiled": {}}
    for row in _data()["features"]:
        marks, hints, hinted = (_patterns(row, key, spoken) for key in ("marks", "hints", "named"))
        if marks or hints or hinted or row["name"] in spoken.told:
            entries.append(_Entry({**usual, **row}, marks, hints, hinted, row["name"] in spoken.absent))
    return tuple(entries)


def _patterns(row: Json, key: str, spoken: Language) -> tuple[re.Pattern[str], ...]:
    """The language's own, and those of its families."""
    shared = (rules for family, rules in row.get(key, {}).items() if family in spoken.families)
    return tuple(re.compile(rule) for group in (getattr(spoken, key).get(row["name"], ()), *shared) for rule in group)


def _feature(entry: _Entry, source: _Source, compiled: tuple[CompiledKernel, ...]) -> Feature:
    state, evidence = _compiled(entry, source, compiled)
    marked, hinted, named = (source.having(rules) for rules in (entry.marks, entry.hints, entry.named))
    launched = [line for line in source.lines if entry.row["launches"] and _LAUNCH.fullmatch(line.text)]
    declared = [
        f"{t.name} = {t.value}{f' ({t.doc})' if t.doc else ''}"
        for t in source.tunables
        if t.kind in entry.row["tunables"] or t.value in entry.row["values"]
    ]
    seen = [*evidence, *declared[: 2 * _SHOWN], *_cited(launched), *_cited(marked or hinted or named)]
    sure = launched or (not source.forms and any(line.sure for line in marked))
    state = state or (Presence.PRESENT if sure else _declared(entry.row, source))
    why = ""
    if state is None and marked:
        why = source.forms or "#if decides whether it is compiled"
    elif state is None and hinted:
        why = "what compiles it decides"
    elif state is None and named:
        why = "that alone is no proof"
    elif state is None and entry.absent and not source.elsewhere:
        state, why = Presence.ABSENT, "nothing in the source asks for it"
    elif state is None:
        why = source.elsewhere if entry.absent else "neither source nor compiler tells"
    return Feature(entry.row["name"], state or Presence.UNKNOWN, (*seen, *filter(None, [why])))


def _declared(row: Json, source: _Source) -> Presence | None:
    """What the values of the tunables say of a feature; None where they do not decide."""
    if chosen := [row["values"][t.value] for t in source.tunables if t.value in row["values"]]:
        return Presence(chosen[0])
    numbers = [int(t.value) for t in source.tunables if t.kind in row["tunables"] and t.value.isdigit()]
    return (Presence.PRESENT if max(numbers) > 1 else Presence.ABSENT) if row["counts"] and numbers else None


def _compiled(entry: _Entry, source: _Source, rows: tuple[CompiledKernel, ...]) -> tuple[Presence | None, list[str]]:
    """What the compiler's report says of a feature; None where it does not decide."""
    lines: dict[str, None] = {}
    known: list[bool] = []
    instructions, figure, unless = map(entry.row["compiled"].get, ("instructions", "figure", "unless"))
    for row in rows:
        amounts = ""
        if instructions and row.instructions:
            named = [name for name, n in row.instructions.items() if n and re.search(instructions, name, re.IGNORECASE)]
            amounts = ", ".join(f"{row.instructions[name]} {name}" for name in named)
            known.append(bool(named))
        elif figure and (amount := getattr(row, figure)) is not None:
            amounts = f"{amount} bytes" if amount else ""
            known.append(amount > 0)
        if amounts:
            lines[f"compiler: {row.kernel}: {amounts}"] = None
    if any(known):
        return Presence.PRESENT, list(lines)[:_SHOWN]
    if not known or len(known) < len(rows) or (unless and source.having((re.compile(unless),))):
        return None, []
    return Presence.ABSENT, ["compiler: counts none" if instructions else "compiler: 0 bytes"]


def _cited(lines: list[_Line]) -> list[str]:
    """`kernel.cu:12: the line`, the first of them that no `#if` decides about."""
    ordered = sorted(lines, key=lambda line: not line.sure)
    rest = [f"and {len(lines) - _SHOWN} more lines"] if lines[_SHOWN:] else []
    return [*(f"{line.at}: {one_line(line.text, _WIDTH)}" for line in ordered[:_SHOWN]), *rest]
