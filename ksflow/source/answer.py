"""A kernel's files with another main file, and what a new main file must be."""

import re
from collections.abc import Iterable, Sequence
from pathlib import PurePath

from ksflow.records import DEVICE_LANGUAGES, Kernel, language
from ksflow.source.tunables import has_launches

_NAMED = re.compile(r"\s*(?://|#)\s*file:\s*(\S+)\s*")


_NO_TOKENS = re.compile(
    r'"""(?:.|\n)*?"""|\'\'\'(?:.|\n)*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''
    r"|//[^\n]*|/\*(?:.|\n)*?\*/|#[^\n]*"
)
"""Comments and texts, of any of the languages."""
_FENCE = re.compile(r"^[ \t]*(?:`{3,}[^`\n]*|~{3,}[^~\n]*)$", re.MULTILINE)
_DIFF = re.compile(r"^(?:diff --git |@@ -\d|--- a/|\+\+\+ b/|<{7,} SEARCH)", re.MULTILINE)
_STATEMENT = re.compile(r"[;{}]\s*$|^\s*(?:import|from|def|class|@\w+|[\w.\[\]]+\s*=)(?:\W|$)", re.MULTILINE)


def as_code(text: str) -> str:
    """A file out of the Markdown that a model may have put around it. ValueError where it is not clear which.

    No language has a line that is a fence, but in comments and texts: code without one is returned to the letter.
    """
    fences = _FENCE.findall(_NO_TOKENS.sub("", text))
    if not fences:
        return text
    *lines, last = text.rstrip().split("\n")
    if len(fences) == 1 and _FENCE.fullmatch(last):
        return "".join(f"{line}\n" for line in lines)
    from markdown_it import MarkdownIt  # which workers do not have

    lines = text.split("\n")
    blocks = [token for token in MarkdownIt("commonmark").parse(text) if token.type == "fence"]
    for block in blocks if len(blocks) == 1 else ():
        begin, end = block.map or (0, 0)
        outside = "\n".join([*lines[:begin], *lines[end:]])
        if lines[end - 1].strip().startswith(block.markup) and end - begin > 1 and not _STATEMENT.search(outside):
            return str(block.content)
    raise ValueError("code: it is an answer with fenced blocks in it, not one file; write the file alone")


def ended(text: str) -> str:
    """A file's text, ended by a line break as files are."""
    return text if text.endswith("\n") else f"{text}\n"


def with_main(kernel: Kernel, text: str) -> dict[str, str]:
    """The kernel's files, the main one replaced."""
    return {**kernel.files, next(iter(kernel.files)): text}


def rewritten(kernel: Kernel, text: str, languages: Sequence[str], report: str) -> Kernel:
    """The kernel with another main file, under the name that its first line may give: `// file: gemm.cu`.

    The name's ending and the text tell the language; the other files stay where the ending does. ValueError where it is
    none of `languages`.
    """
    main, *others = kernel.files
    match = _NAMED.fullmatch(text.partition("\n")[0])
    name = match[1] if match else main
    found = language(name, text)
    if found not in (*languages, kernel.language):
        raise ValueError(f"code: {name} is {found or 'of no known language'}; the task takes: {', '.join(languages)}")
    kept = others if PurePath(name).suffix == PurePath(main).suffix else []
    if name in kept:
        raise ValueError(f"code: {name} is the name of another file of the kernel")
    return Kernel(found, {name: text, **{other: kernel.files[other] for other in kept}}, report)


def check(new: Kernel, known: Iterable[Kernel], max_kb: int, entry: str = "custom_kernel") -> None:
    """ValueError if its main file is too long, lacks `entry`, or is that of a known kernel with other blanks."""
    code = new.main
    if (size := len(code.encode("utf-8"))) > max_kb * 1000:
        raise ValueError(f"code: {size} bytes are more than {max_kb} kB")
    bare = _NO_TOKENS.sub("", code)
    if _DIFF.search(bare):
        raise ValueError("code: it is a diff; the whole file is asked for")
    if not _STATEMENT.search(bare):
        raise ValueError("code: it is prose, not a source file")
    on_device = new.language in DEVICE_LANGUAGES
    if entry not in code and not (on_device and has_launches(code)):
        strong = " and has no `launch:` line" if on_device else f" ({new.language})"
        raise ValueError(f"code: it does not define {entry}{strong}")
    words = code.split()
    if any(words == kernel.main.split() for kernel in known):
        raise ValueError("code: it is the code that was given, unchanged")
