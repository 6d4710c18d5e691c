"""Where things live on disk. What ships is read-only data beside this file; what a run makes is the user's."""

import contextlib
import errno
import os
import re
import threading
from collections.abc import Iterable
from pathlib import Path

_HOME_PATH = re.compile(r"(?:(?<=^)|(?<=[\[,]))~(?:/[^,\]]*|(?=[,\]]|$))")
PLAIN_VALUE = re.compile(r"[\w/.+@%*:-]+", re.ASCII)  # what Hydra's grammar takes as it is
PACKAGE = Path(__file__).resolve().parent


def shipped_path(*parts: str) -> Path:
    """A path inside the shipped data: `shipped_path("problems", "softmax")`."""
    return PACKAGE.joinpath(*parts)


def default_options() -> dict[str, str]:
    """Return group -> the option that `conf/config.yaml` chooses."""
    text = shipped_path("conf", "config.yaml").read_text(encoding="utf-8")
    return dict(re.findall(r"^  - (\w+): (\w+)", text, re.MULTILINE))


def problem_folders(folder: Path) -> list[str]:
    """The names of the problems that lie in a folder."""
    return sorted(found.parent.name for found in folder.glob("*/problem.yaml"))


def sections(file: Path) -> dict[str, str]:
    """The parts of a text that ships, each below a line `@@ NAME what it is`."""
    _, *parts = re.split(r"^@@ (\w+).*\n", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def cache(*parts: str) -> Path:
    """A path for what may be deleted at any time (compiled kernels), under `$KSFLOW_CACHE` or XDG's cache."""
    base = os.environ.get("KSFLOW_CACHE")
    root = Path(base) if base else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ksflow"
    return root.joinpath(*parts)


def expand_home(argument: str) -> str:
    """A `key=value` word of a command line with the home folder for `~/`, which no shell expands after a dotted key.

    A path that Hydra's grammar has no place for is put between quotes.
    """
    key, equals, value = argument.partition("=")
    if not equals or "'" in value or '"' in value:
        return argument
    return f"{key}={_HOME_PATH.sub(lambda found: plain_or_quoted(os.path.expanduser(found[0])), value)}"


def plain_or_quoted(value: str) -> str:
    """A value as Hydra's grammar takes it; one that is quoted already stays as it is."""
    if PLAIN_VALUE.fullmatch(value) or value[:1] in ("'", '"'):
        return value
    return quote_value(value)


def quote_value(value: str) -> str:
    """A value as one text, whatever is in it."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def write(path: Path, data: str | bytes, durable: bool = False) -> None:
    """All of it or nothing, whoever else writes there; where it is `durable`, it is on disk when this returns.

    A character that UTF-8 does not have becomes a question mark.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    draft = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}")
    try:
        draft.write_bytes(data.encode("utf-8", "replace") if isinstance(data, str) else data)
        if durable:
            _flush(draft)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    if durable:
        with contextlib.suppress(OSError):  # not every file system knows how for a folder
            _flush(path.parent)


def _flush(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def bytes_of(file: Path) -> bytes:
    """What a file of the system's holds, such as one below /proc; empty where it cannot be read."""
    try:
        return file.read_bytes()
    except OSError:
        return b""


def text_of(file: Path) -> str:
    """The same as a text, without white space around it."""
    return bytes_of(file).decode("utf-8", "replace").strip()


def not_source(folder: str, names: Iterable[str]) -> set[str]:
    """What in a folder of a user's repository is none of its source: git's own, lineages, what runs write beside them,
    and what is neither a file nor a folder nor a link (pipes, sockets).
    """
    return {name for name in names if name == ".git" or _is_written_by_runs(Path(folder, name))}


def _is_written_by_runs(path: Path) -> bool:
    if not path.is_dir():
        return not (path.is_symlink() or path.is_file())
    if path.name == "runs" and (path == Path.cwd() / "runs" or (path / "lineage.git").is_dir()):
        return True
    return (path / "HEAD").is_file() and (path / "ksflow").is_dir()  # a lineage
