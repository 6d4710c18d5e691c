"""What a kernel's text comes to when layout and comments are taken away: two of one form are the same code.

A cheap, lexical notion: names, order and numbers count, and so does what stands in strings. The worst that can happen
is that a repeat goes unnoticed.
"""

import re

from ksflow.errors import suggest
from ksflow.languages import LANGUAGES
from ksflow.records import Kernel, digest
from ksflow.source.flags import flag_lines
from ksflow.source.tunables import launch_lines, tunables

# What is not closed ends with the text or the line: every match succeeds, so hostile text takes no longer than other.
_TEXT = r""""(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?"""
_C_LIKE = re.compile(
    rf"""(?P<text>R"(?P<end>[^()\\\s"]{{0,16}})\((?:.*?\)(?P=end)"|.*)|{_TEXT})"""
    r"""|(?P<layout>(?:\s|//(?:\\\r?\n|[^\n])*|/\*(?:.*?\*/|.*))+)""",
    re.DOTALL,
)
_LONG = "|".join(rf"{quotes}(?:\\.|[^\\])*?(?:{quotes}|\Z)" for quotes in ('"""', "'''"))
_PYTHON = re.compile(
    rf"(?P<text>{_LONG}|{_TEXT})"
    r"|(?P<blank>[ \t\f]+(?=[^\s#]))|(?P<rest>[ \t\f]*(?:\#[^\n]*)?(?:\r?\n|\Z))(?P<indent>[ \t]*)",
    re.DOTALL,
)


def source_fingerprint(kernel: Kernel) -> str:
    """Names the code: 16 hexadecimal digits. Files that are comments and nothing else keep their texts.

    Comments that count: the lines of a launch plan, those with flags for the compiler, and what tunables are declared
    with. ValueError where the language is none.
    """
    if kernel.language not in LANGUAGES:
        raise ValueError(f"no language {kernel.language!r}; {suggest(kernel.language, LANGUAGES)}")
    bare = _python if LANGUAGES[kernel.language].python else _c_like
    parts = [kernel.language]
    for name, body in kernel.files.items():
        parts += [name, bare(body) or body, *(f"{kind}: {rest}" for kind, rest in launch_lines(body))]
        parts += flag_lines(body) if kernel.language == "cpp" else ()
    return digest(*parts, *declarations(kernel))


def declarations(kernel: Kernel) -> list[str]:
    """Return what the main file declares for a tuner, sorted: each tunable with the values and the condition it has."""
    return sorted(f"tune: {each.name} {' '.join(sorted(each.options))} {each.when}" for each in tunables(kernel.main))


def _c_like(text: str) -> str:
    """Strings stay; layout is a blank, or a line end where it holds one: the preprocessor reads lines."""
    return _C_LIKE.sub(lambda match: match["text"] or ("\n" if "\n" in match["layout"] else " "), text).strip()


def _python(text: str) -> str:
    """Strings and indentation stay; empty lines and comments go, other blanks are one."""
    lines: list[list[str]] = [[]]
    end = 0
    for match in _PYTHON.finditer(text):
        lines[-1].append(text[end : match.start()])
        end = match.end()
        if match["rest"] is None:
            lines[-1].append(match["text"] or " ")
        else:
            lines.append([match["indent"]])
    lines[-1].append(text[end:])
    return "\n".join(filter(str.strip, map("".join, lines)))
