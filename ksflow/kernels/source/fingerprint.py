"""Fingerprints of kernels: a kernel's text without layout and comments; equal ones are the same code.

A cheap, lexical notion: names, order, numbers and strings count. The worst case is an undetected repeat.
"""

import re

from ksflow.errors import suggest
from ksflow.kernels.languages import LANGUAGES
from ksflow.kernels.source.flags import flag_lines
from ksflow.kernels.source.tunables import launch_lines, tunables
from ksflow.records import Kernel, digest

# Unclosed tokens end with the text or the line: every match succeeds, so hostile text takes no longer.
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
    """Return the code's fingerprint: 16 hexadecimal digits. Comments count if they are launch lines, compiler flags or
    declarations of tunables, or all that a file has. Raises ValueError for an unknown language.
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
    """Return the main file's tunables, sorted, each with its options and its condition."""
    return sorted(f"tune: {each.name} {' '.join(sorted(each.options))} {each.when}" for each in tunables(kernel.main))


def _c_like(text: str) -> str:
    """Keep strings; reduce layout to a blank, or a line end if it contains one: the preprocessor reads lines."""
    return _C_LIKE.sub(lambda match: match["text"] or ("\n" if "\n" in match["layout"] else " "), text).strip()


def _python(text: str) -> str:
    """Keep strings and indentation; drop empty lines and comments, reduce other blanks to one."""
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
