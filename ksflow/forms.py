"""What a kernel's text comes to when layout and comments are taken away: two of one form are the same code.

A cheap, lexical notion: names, order and numbers count. Text that cannot be read as its language keeps its lines, so
the worst that can happen is that a repeat goes unnoticed.
"""

import hashlib
import io
import re
import tokenize

from ksflow.records import Kernel

# What is not closed ends with the text or the line: every match succeeds, so hostile text takes no longer than other.
_LEXEME = re.compile(
    r"""(?P<text>R"(?P<end>[^()\\\s"]{0,16})\((?:.*?\)(?P=end)"|.*)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?)"""
    r"""|(?P<layout>(?:\s|//(?:\\\r?\n|[^\n])*|/\*(?:.*?\*/|.*))+)""",
    re.DOTALL,
)
_LAYOUT = (tokenize.COMMENT, tokenize.NL)


def form(kernel: Kernel) -> str:
    """Names the code: 16 hexadecimal digits. Files that are comments and nothing else keep their texts."""
    bare = _python if kernel.language in ("python", "triton") else _c_like
    parts = [kernel.language]
    for name, body in kernel.files.items():
        parts += [name, bare(body) or body]
    return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()[:16]


def _c_like(text: str) -> str:
    return _LEXEME.sub(_shortened, text).strip()


def _shortened(found: re.Match[str]) -> str:
    """Strings stay; layout is a blank, or a line end where it holds one: the preprocessor reads lines."""
    return found["text"] or ("\n" if "\n" in found["layout"] else " ")


def _python(text: str) -> str:
    try:
        tokens = [
            (token.type, token.string.strip() or token.type)
            for token in tokenize.generate_tokens(io.StringIO(text).readline)
            if token.type not in _LAYOUT
        ]
    except (tokenize.TokenError, SyntaxError, ValueError, RecursionError):
        return "\n".join(line.rstrip() for line in text.splitlines() if line.strip())
    return repr(tokens) if len(tokens) > 1 else ""
