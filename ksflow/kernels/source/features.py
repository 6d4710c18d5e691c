"""Features of a kernel that its source and its compiler's report show: matrix cores, shared memory, precision, ...

The features are data (`features.yaml`), and so are their signs in each language (`ksflow/kernels/languages`). Facts
only: a feature is `present` if a line or a figure shows it, `absent` if its absence shows, else `unknown`. Comments
and strings show nothing, inline assembly does. Code that may not be compiled, because a tunable or the preprocessor
chooses between forms, shows nothing unless the compiler's report does. The source is not executed.
"""

import re
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ksflow.errors import one_line
from ksflow.kernels.languages import LANGUAGES, Language, detect_language
from ksflow.kernels.source.flags import compiler_flags, flag_lines
from ksflow.kernels.source.tunables import Tunable, tunables
from ksflow.records import CompiledKernel, Evaluation, Feature, Json, Kernel, Presence

_SHOWN = 3  # lines that are cited for one feature
_WIDTH = 100
_LONGEST = 1000  # characters of a line that are searched

# Unclosed tokens end with the text or the line, so every match succeeds and hostile text takes no longer.
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

    row: Json  # its row of `features.yaml`, with empty values for missing keys
    marks: tuple[re.Pattern[str], ...]
    hints: tuple[re.Pattern[str], ...]
    named: tuple[re.Pattern[str], ...]
    absent: bool  # whether a source without any of them lacks the feature


class _Line(NamedTuple):
    at: str  # `kernel.cu:12`
    code: str  # without comments and strings
    text: str  # as written
    sure: bool  # whether no `#if` encloses it


@cache
def _data() -> Json:
    import yaml

    return dict(yaml.safe_load(Path(__file__).with_name("features.yaml").read_text(encoding="utf-8")))


def reader() -> str:
    """Return the name of this version of the catalogue."""
    return f"catalogue {_data()['version']}"


@cache
def names(kernel_language: str) -> tuple[str, ...]:
    """Return the features that are described for a language."""
    return tuple(entry.row["name"] for entry in _entries(kernel_language))


def features(kernel: Kernel, evaluation: Evaluation | None = None) -> tuple[Feature, ...]:
    """Return every feature of the catalogue, from the kernel's source and the compiler's report in its verdict."""
    source, compiled = _source(kernel), evaluation.evidence.compiler if evaluation else ()
    return tuple(_feature(entry, source, compiled) for entry in _entries(kernel.language))


def code_of(text: str, kernel_language: str) -> str:
    """Return a source with blanks in place of comments and strings, except for those of inline assembly."""
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
    """A kernel's text, prepared for searching."""

    lines: tuple[_Line, ...]
    tunables: tuple[Tunable, ...]
    flags: tuple[str, ...]  # that its compiler is given
    switches: frozenset[str]  # names in the lines with flags
    forms: str  # why code in the text may not be compiled, or ""
    elsewhere: str  # why code may exist outside of the text, or ""

    def having(self, rules: tuple[re.Pattern[str], ...]) -> list[_Line]:
        return [line for line in self.lines if any(rule.search(line.code) for rule in rules)]


def _source(kernel: Kernel) -> _Source:
    lines, elsewhere = list[_Line](), ""
    plain = re.compile(re.sub(r"\s", "", _data()["plain_headers"]))
    for name, text in kernel.files.items():
        kind = LANGUAGES[detect_language(name, text, (kernel.language,)) or kernel.language]
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
    flags: tuple[str, ...] = ()
    switches = frozenset(re.findall(r"\w+", " ".join(flag_lines(kernel.main))))
    with suppress(ValueError):  # of a kernel with other flags, which is not compiled
        flags = compiler_flags(kernel.main)
    return _Source(
        tuple(lines), declared, flags, switches, f"{shown} chooses what is compiled" if chosen else "", elsewhere
    )


@cache
def _entries(kernel_language: str) -> tuple[_Entry, ...]:
    entries, spoken = [], LANGUAGES[kernel_language]
    usual = {"tunables": (), "counts": False, "values": {}, "launches": False, "compiled": {}, "flags": ()}
    for row in _data()["features"]:
        marks, hints, hinted = (_patterns(row, key, spoken) for key in ("marks", "hints", "named"))
        if marks or hints or hinted or row["name"] in spoken.told:
            entries.append(_Entry({**usual, **row}, marks, hints, hinted, row["name"] in spoken.absent))
    return tuple(entries)


def _patterns(row: Json, key: str, spoken: Language) -> tuple[re.Pattern[str], ...]:
    shared = (rules for language, rules in row.get(key, {}).items() if language in spoken.families)
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
    asked = [f"compiled with {flag}" for flag in source.flags if flag in entry.row["flags"]]
    seen = [*evidence, *asked, *declared[: 2 * _SHOWN], *_cited(launched), *_cited(marked or hinted or named)]
    sure = launched or asked or (not source.forms and any(line.sure for line in marked))
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
    if chosen := [row["values"][t.value] for t in source.tunables if t.value in row["values"]]:
        return Presence(chosen[0])
    counted = (t for t in source.tunables if t.kind in row["tunables"] and t.name not in source.switches)
    numbers = [int(t.value) for t in counted if t.value.isdigit()]
    return (Presence.PRESENT if max(numbers) > 1 else Presence.ABSENT) if row["counts"] and numbers else None


def _compiled(entry: _Entry, source: _Source, rows: tuple[CompiledKernel, ...]) -> tuple[Presence | None, list[str]]:
    """Return a feature's presence by the compiler's report, None if it does not decide, and the evidence."""
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
    ordered = sorted(lines, key=lambda line: not line.sure)
    rest = [f"and {len(lines) - _SHOWN} more lines"] if lines[_SHOWN:] else []
    return [*(f"{line.at}: {one_line(line.text, _WIDTH)}" for line in ordered[:_SHOWN]), *rest]
