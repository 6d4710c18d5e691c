"""Conversion between a kernel's files and one text, and checks of a new main file."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath

from ksflow.kernels.languages import LANGUAGES, detect_language
from ksflow.kernels.source.tunables import has_launches
from ksflow.records import Kernel

_NAMED = re.compile(r"\s*(?://|#)\s*file:\s*(\S+)\s*")
_PART = re.compile(r"^===== (\S+) =====( removed)?[ \t]*\n?", re.MULTILINE)
_REPLACED = re.compile(r"^>{7,}.*$", re.MULTILINE)
"""The end of a block with edits, which may quote a line that begins a file."""
_NEEDED = re.compile(r'^\s*(?:#\s*include\s*"([^"\n]+)"|(?:from|import)\s+(\w+))', re.MULTILINE)
MORE_FILES = (
    "A line `===== NAME =====` after the main file begins another one (header, source, module), whole; a line "
    "`===== NAME ===== removed` takes one away; the others stay."
)  # tells a model how to write more than the main file
MOST_FILES = 64  # of a kernel

_NO_TOKENS = re.compile(
    r'"""(?:.|\n)*?"""|\'\'\'(?:.|\n)*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''
    r"|//[^\n]*|/\*(?:.|\n)*?\*/|#[^\n]*"
)  # comments and strings of any of the languages
_FENCE = re.compile(r"^[ \t]*(?:`{3,}[^`\n]*|~{3,}[^~\n]*)$", re.MULTILINE)
_DIFF = re.compile(r"^(?:diff --git |@@ -\d|--- a/|\+\+\+ b/|<{7,} SEARCH)", re.MULTILINE)
_STATEMENT = re.compile(r"[;{}]\s*$|^\s*(?:import|from|def|class|@\w+|[\w.\[\]]+\s*=)(?:\W|$)", re.MULTILINE)


def as_code(text: str) -> str:
    """Return a file without the Markdown that a model may have put around it. Raises ValueError if ambiguous."""
    fences = _FENCE.findall(_NO_TOKENS.sub("", text))
    if not fences:
        return text
    *lines, last = text.rstrip().split("\n")
    if len(fences) == 1 and _FENCE.fullmatch(last):
        return "".join(f"{line}\n" for line in lines)
    from markdown_it import MarkdownIt  # workers do not have it

    lines = text.split("\n")
    blocks = [token for token in MarkdownIt("commonmark").parse(text) if token.type == "fence"]
    for block in blocks if len(blocks) == 1 else ():
        begin, end = block.map or (0, 0)
        outside = "\n".join([*lines[:begin], *lines[end:]])
        if lines[end - 1].strip().startswith(block.markup) and end - begin > 1 and not _STATEMENT.search(outside):
            return str(block.content)
    raise ValueError("code: it is an answer with fenced blocks in it, not one file; write the file alone")


def as_files(text: str) -> str:
    """Return the same for a main file with other files below it as in `MORE_FILES`, each with or without Markdown."""
    try:
        return end_with_newline(as_code(text))
    except ValueError:
        main, *rest = _PART.split(text)
        if not rest:
            raise
        whole = main and end_with_newline(as_code(main))
        for name, removed, body in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
            whole += f"===== {name} ====={removed or ''}\n{body and end_with_newline(as_code(body))}"
        return whole


def split_files(edits: str) -> tuple[str, str]:
    """Return edits, and the text of the files below them as in `MORE_FILES`."""
    last = max((match.end() for match in _REPLACED.finditer(edits)), default=0)
    first = _PART.search(edits, last)
    return (edits[: first.start()], edits[first.start() :]) if first else (edits, "")


def end_with_newline(text: str) -> str:
    return text if text.endswith("\n") else f"{text}\n"


def with_main(kernel: Kernel, text: str) -> dict[str, str]:
    """Return the kernel's files, with the main one replaced."""
    return {**kernel.files, next(iter(kernel.files)): text}


def as_text(files: Mapping[str, str]) -> str:
    """Return a kernel's files as one text: the main one, then each other one as in `MORE_FILES`."""
    main, *others = files
    below = "".join(f"===== {name} =====\n{files[name]}" for name in others)
    return end_with_newline(files[main]) + below if others else files[main]


def needed_files(text: str) -> list[str]:
    """Return the names of files that a source may include or import."""
    return [included or f"{module}.py" for included, module in _NEEDED.findall(text)]


def replace_main(kernel: Kernel, text: str, languages: Sequence[str], report: str) -> Kernel:
    """Return the kernel with another main file, which its first line may name (`// file: gemm.cu`), and with the
    changes of other files as in `MORE_FILES`, which stay if the name's ending does. Raises ValueError.
    """
    main, *others = kernel.files
    text, *rest = _PART.split(text)
    match = _NAMED.fullmatch(text.partition("\n")[0])
    name = match[1] if match else main
    kind = detect_language(name, text, languages)
    if kind not in languages:
        raise ValueError(f"code: {name} is {kind or 'of no known language'}; the task takes: {', '.join(languages)}")
    stay = others if PurePath(name).suffix == PurePath(main).suffix else []
    if name in stay:
        raise ValueError(f"code: {name} is the name of another file of the kernel")
    files = {name: text, **{other: kernel.files[other] for other in stay}}
    for other, removed, body in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
        if other == name or (removed and (other not in files or body.strip())):
            raise ValueError(f"code: `===== {other} ====={removed or ''}` is of no other file of the kernel's")
        if removed:
            del files[other]
        else:
            files[other] = end_with_newline(body)
    if len(files) > MOST_FILES:
        raise ValueError(f"code: {len(files)} files are more than {MOST_FILES}")
    return Kernel(kind, files, report)


def check(new: Kernel, known: Iterable[Kernel], max_kb: int, entry: str = "custom_kernel") -> None:
    """Raise ValueError if the files are too long, no source, lack `entry`, or differ from a known kernel in blanks
    only.
    """
    code = new.main
    if (size := len("".join(new.files.values()).encode("utf-8"))) > max_kb * 1000:
        raise ValueError(f"code: {size} bytes are more than {max_kb} kB")
    bare = _NO_TOKENS.sub("", code)
    if _DIFF.search(bare):
        raise ValueError("code: it is a diff; the whole file is asked for")
    if not _STATEMENT.search(bare):
        raise ValueError("code: it is prose, not a source file")
    on_device = bool(LANGUAGES[new.language].launch_lines)
    if entry not in code and not (on_device and has_launches(code)):
        strong = " and has no `launch:` line" if on_device else f" ({new.language})"
        raise ValueError(f"code: it does not define {entry}{strong}")
    if any(_words(new) == _words(kernel) for kernel in known):
        raise ValueError("code: it is the code that was given, unchanged")


def _words(kernel: Kernel) -> tuple[list[str], dict[str, list[str]]]:
    _, *others = kernel.files
    return kernel.main.split(), {name: kernel.files[name].split() for name in others}
