"""A kernel of a user's own, from a file or a folder."""

import re
from collections.abc import Collection
from pathlib import Path

from ksflow.errors import ConfigError
from ksflow.kernels.languages import ENDINGS, LANGUAGES, ON_DEVICE, detect_language
from ksflow.kernels.problem.file import read_text
from ksflow.kernels.source.answer import MOST_FILES
from ksflow.kernels.source.tunables import has_launches, mistake
from ksflow.records import Kernel

_SIDECAR = re.compile(r"\n\n# =+\n# ===== sidecar: (\S+) \(\d+ bytes, [^)]*\) =====\n# =+\n\n")
_LOST = re.compile(r"^# (?:WARNING: solution loads sidecar '([^']+)' but|sidecar '([^']+)' omitted)", re.MULTILINE)
_DEFINED = re.compile(
    r"^(?:def custom_kernel\b|custom_kernel\s*=|[^/#\n]*\bcustom_kernel\s*\([^;{}]*\)\s*\{)", re.MULTILINE
)
_HEADERS = (".h", ".hh", ".hpp", ".cuh", ".inc", ".inl")
_MOST_BYTES = 1 << 20  # of a folder's files


def kernel_file(path: str, languages: Collection[str] = (*ENDINGS.values(), "triton")) -> Kernel:
    """A kernel from a user's own file or folder; the ending tells the language. Raises ConfigError."""
    given = Path(path).expanduser()
    file, *beside = _in_folder(given) if given.is_dir() else [given]
    name = file.name.removesuffix(".txt")  # published sources are called solution.py.txt
    if Path(name).suffix not in ENDINGS:
        raise ConfigError(f"{path}: a kernel's file ends in one of {' '.join(ENDINGS)}")
    text, sidecars = _without_sidecars(path, read_text(file))
    if (found := detect_language(name, text, languages)) not in languages:
        takes = f"{path} is {found}; this problem takes {', '.join(languages)} on this target"
        raise ConfigError(f"{takes}; {found} is {for_gpus(found)}" if found in ON_DEVICE else takes)
    if wrong := mistake(text):
        number, line, why = wrong
        raise ConfigError(f"{file}:{number}: `{line[:80]}` {why}")
    try:
        return Kernel(
            found, {name: text, **sidecars, **{one.name: read_text(one) for one in beside}}, f"given as {given.name}"
        )
    except ValueError as error:
        raise ConfigError(f"{path}: {error}; rename the file") from error


def _without_sidecars(path: str, text: str) -> tuple[str, dict[str, str]]:
    """A published source as kernelbench.com has it, and the files that follow it under banners. Raises ConfigError."""
    if lost := _LOST.search(text):
        raise ConfigError(f"{path}: the file {lost[1] or lost[2]}, which it loads, was not published with it")
    main, *rest = _SIDECAR.split(text)
    return (f"{main.rstrip()}\n" if rest else main), dict(zip(rest[::2], rest[1::2], strict=True))


def _in_folder(folder: Path) -> list[Path]:
    """A kernel's files: the one that defines `custom_kernel` first, then the others that may belong to its language."""
    files = sorted(file for file in folder.iterdir() if not file.name.startswith((".", "__pycache__")))
    if inner := next((file for file in files if file.is_dir()), None):
        raise ConfigError(f"{inner}: the files of a kernel lie in one folder; move them up, or name their file alone")
    sources = [file for file in files if file.suffix in ENDINGS]
    main = [file for file in sources if _DEFINED.search(text := read_text(file)) or has_launches(text)]
    if len(main) != 1:
        those = f"{' and '.join(file.name for file in main)} do" if main else "none does"
        raise ConfigError(f"{folder}: one file of a kernel defines custom_kernel; here {those}")
    kind = ENDINGS[main[0].suffix]
    fit = [one for one in files if ENDINGS.get(one.suffix) == kind or (one.suffix in _HEADERS and kind != "python")]
    beside = [file for file in fit if file != main[0]]
    if len(beside) >= MOST_FILES or sum(file.stat().st_size for file in fit) > _MOST_BYTES:
        raise ConfigError(f"{folder}: a kernel has at most {MOST_FILES} files of {_MOST_BYTES >> 10} KiB in all")
    return [*main, *beside]


def for_gpus(kind: str) -> str:
    """What a kernel in a GPU's language is for: the end of an error where the target is another."""
    target = LANGUAGES[kind].target
    return f"for a GPU such as target={target}; where none is here, with evaluator=static or evaluator=spool"
