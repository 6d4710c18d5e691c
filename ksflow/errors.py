"""Every exception a user can meet, the one boundary that makes them, and words as they are shown.

    KsflowError
    ├── ConfigError    the set-up is wrong: a key, a folder, a missing compiler; the user mends it
    ├── StageError     a stage could not do its work; the loop records a failed trial and goes on
    ├── BudgetError    a model call would go beyond a budget; the run ends cleanly, and goes on next time
    │   └── Interrupted   nobody waits for the answer any more, because the run is being ended
    ├── NothingTried   a run ended before it had tried anything: no model answers, a stage always raises
    └── LineageError   the git repository is not what it should be

A bad kernel is not an error: it is an `Evaluation` with its verdict.
"""

import difflib
import errno
import logging
import os
import socket
import sysconfig
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec
from pathlib import Path

from ksflow import home

_OURS = (Path(__file__).parent, Path(__file__).resolve().parent, (Path(__file__).parent / "stages").resolve())
_NOT_OWN = tuple(f"{folder}/" for folder in (*_OURS, sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")))
"""Where files lie that are no user's."""

_OF_KIND: tuple[tuple[type[OSError], str], ...] = (
    (ConnectionRefusedError, "nobody listens there: start the server, or see whether its address is right"),
    (BrokenPipeError, "a program that was asked something has ended: run again"),
    (ConnectionError, "the other side ended the connection: try again"),
    (TimeoutError, "no answer in time: see whether the other side is up, and try again"),
    (socket.gaierror, "no machine of that name is known: see whether address and network are right"),
)
"""What the kinds of the system's errors that have nothing to do with files mean, and what to do."""
_OF_NUMBER = {
    errno.ENOSPC: "the disk is full: make room, or go to a folder on another one",
    errno.EDQUOT: "your share of the disk is used up: make room, or go to a folder on another one",
    errno.EFBIG: "the file would be larger than is allowed: raise `ulimit -f`",
    errno.EMFILE: "this process has too many files open: raise `ulimit -n`",
    errno.ENFILE: "this machine has too many files open: end other programs",
    errno.ENOMEM: "there is no memory left: end other programs, or raise `ulimit -v`",
    errno.EAGAIN: "no process or thread can be started: end other programs, or raise `ulimit -u`",
    errno.EIO: "the disk fails: look at the system's log",
    errno.ENAMETOOLONG: "the name is too long: take a shorter one",
    errno.EISDIR: "a folder is where a file must be: move it away, or name another",
    errno.ENOENT: "it is not there: see whether it was moved or removed meanwhile",
}
UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
"""What reading a file of JSON raises which somebody else has written or changed."""
_MOST_LETTERS = 4000  # so much of what a stage's error says is kept
_UNSPEAKABLE = "its message cannot be shown"
_NOT_WRITABLE = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST}


class KsflowError(Exception):
    """Something a user can act on. The message is one sentence: the cause, then the remedy."""


class ConfigError(KsflowError):
    """The configuration or the machine cannot do what was asked."""


class StageError(KsflowError):
    """A stage failed. `stage` names it; the loop keeps the reason with the trial."""

    def __init__(self, stage: str, reason: str) -> None:
        reason = reason[: 2 * _MOST_LETTERS].encode("utf-8", "replace").decode()
        super().__init__(f"{stage}: {reason}")
        self.stage = stage
        self.reason = reason


class LeaveStage(BaseException):
    """The way out of a stage's call for its caller; no error, so it passes the boundary."""


class BudgetError(KsflowError):
    """What is left of a budget does not cover the next model call."""


class Interrupted(BudgetError):
    """The run is being ended, and nobody waits for a person's answer any more. The next run asks again."""


class NothingTried(KsflowError):
    """A run ended without having tried anything. The message says why; the program's exit status is `status`."""

    status = 4

    def __init__(self, why: str) -> None:
        super().__init__(f"nothing was tried: {why}")


class LineageError(KsflowError):
    """The lineage repository is missing, foreign, corrupt or not writable."""


def strip_controls(text: str) -> str:
    """Words of a model, a document or a file's name, without what steers a terminal."""
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else "�" for c in text)


def one_line(text: str, most: int = 160) -> str:
    """The text on one line, cut at so many characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 3]}..."


def shorten(text: str, most: int = 160) -> str:
    """The same, safe in a table."""
    return one_line(text.replace("|", "/"), most)


def pluralize(number: int, what: str) -> str:
    """`1 note`, `2 notes`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def boolean(name: str, value: str) -> bool:
    """What a command's own `name=true` or `name=false` says. ConfigError."""
    if (plain := value.lower()) not in ("true", "false"):
        raise ConfigError(f"{name}={value}; valid: true, false")
    return plain == "true"


def one_of(name: str, value: str, valid: Iterable[str]) -> str:
    """What a command's own `name=value` says, one of the valid words. ConfigError."""
    if value not in (words := tuple(valid)):
        raise ConfigError(f"{name}={value}; valid: {', '.join(words)}")
    return value


def suggest(word: object, valid: Iterable[str], before: str = "") -> str:
    """The tail of an error about a mistyped word: what was meant, with what is typed before it, and what is valid."""
    names = sorted(valid)
    close = difflib.get_close_matches(str(word), names, 1)
    hint = f"did you mean {before}{close[0]}? " if close else ""
    return f"{hint}valid: {', '.join(names) or 'none'}"


def need_package(who: str, package: str, module: str, extra: str) -> None:
    """ConfigError where a module cannot be imported; nothing is imported."""
    if find_spec(module) is None:
        raise ConfigError(f"{who} needs the {package} package: pip install 'ksflow[{extra}]'")


def error_location(error: BaseException) -> str:
    """Where in a user's own files an error was raised: ` (my_parts.py, line 9)`; empty where it was in none.

    What comes with Python, with ksflow or from a package is nobody's own. Of errors that were raised from others the
    first that has such a place counts.
    """
    found: BaseException | None = error
    seen: set[int] = set()
    while found is not None and id(found) not in seen:
        if where := own_line(traceback.extract_tb(found.__traceback__)):
            return where
        seen.add(id(found))
        found = found.__cause__ or found.__context__
    return ""


def own_line(stack: traceback.StackSummary) -> str:
    """The last place of a stack in a user's own files, in the same words."""
    frames = [frame for frame in stack if _own(frame.filename)]
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""


def _own(file: str) -> bool:
    path = Path(file)
    elsewhere = {"site-packages", "dist-packages"} & set(path.parts) or any(map(file.startswith, _NOT_OWN))
    return not (file.startswith("<") or elsewhere)


def of_system(error: OSError) -> ConfigError:
    """What an error of the system's means: by its kind, its number and the path that it concerns, with a remedy."""
    for kind, meaning in _OF_KIND:
        if isinstance(error, kind):
            return ConfigError(f"{error}; {meaning}")
    number = error.errno if type(error).__module__ == "builtins" else None  # a library's numbers are its own
    if number in _NOT_WRITABLE | {errno.ENOENT} and isinstance(error.filename, str | Path) and _no_cache(error):
        return ConfigError(f"cannot keep files below {home.cache()}: {error}; set KSFLOW_CACHE to a folder of yours")
    if number in _NOT_WRITABLE and error.filename is not None:
        if os.path.isfile(error.filename) and not os.access(error.filename, os.R_OK):
            return ConfigError(f"cannot read {os.fsdecode(error.filename)}: {error.strerror}; see who may read it")
        return ConfigError(f"cannot write here: {error}; go to a folder you can write to")
    return ConfigError(f"{str(error) or type(error).__name__}; {_OF_NUMBER.get(number or 0, 'the system refuses it')}")


def _no_cache(error: OSError) -> bool:
    """Whether the cache folder cannot be made, or cannot be written to."""
    at, root = Path(error.filename), home.cache()
    return root.is_relative_to(at) or (error.errno != errno.ENOENT and at.is_relative_to(root))


def describe_error(error: BaseException) -> str:
    """`ValueError: what it says`, cut at `_MOST_LETTERS`; the type alone where the error's own `__str__` fails."""
    kind = type(error).__name__
    try:
        return f"{kind}: {str(error).strip() or 'no message'}"[:_MOST_LETTERS]
    except BaseException:  # noqa: BLE001 - a user's method, which may raise anything
        return f"{kind}: {_UNSPEAKABLE}"


def keep_traceback(error: BaseException, what: str) -> None:
    """Write an unexpected error with its whole traceback to the run's log; a person is told of it in one line."""
    words = describe_error(error)
    written = words.encode("utf-8", "backslashreplace").decode()  # no file takes a lone surrogate
    if len(words) == _MOST_LETTERS or words.endswith(_UNSPEAKABLE) or written != words:
        error = StageError(what, written).with_traceback(error.__traceback__)
    logging.getLogger("ksflow").info("%s failed", what, exc_info=error)


@contextmanager
def stage_boundary(stage: str) -> Iterator[None]:
    """Turn whatever a swappable part raises into a `StageError` that names the part, and the line where it is its own.

    That includes `sys.exit()`, a KeyboardInterrupt outside the main thread (no Ctrl-C arrives there: the part has
    raised it itself), and a `KsflowError` with a `__str__` of its own. The whole traceback goes to the run's log.
    """
    try:
        yield
    except BaseException as error:
        ours = isinstance(error, KsflowError | LeaveStage) and type(error).__str__ is KsflowError.__str__
        ctrl_c = isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread()
        if ours or ctrl_c:
            raise
        keep_traceback(error, stage)
        raise StageError(stage, f"{describe_error(error)}{error_location(error)}") from error


@contextmanager
def system_errors(explain: Callable[[OSError], KsflowError]) -> Iterator[None]:
    """Raise what `explain` makes of an error of the system's meanwhile."""
    try:
        yield
    except OSError as error:
        raise explain(error) from error


def reaching(trouble: str, remedy: str) -> AbstractContextManager[None]:
    """Turn an error of the system's meanwhile into a ConfigError: the trouble it makes, why, and the remedy."""

    def explain(error: OSError) -> ConfigError:
        why = error.strerror if error.strerror and str(error.filename) in (*trouble.split(), "None") else error
        return ConfigError(f"{trouble}: {why}; {remedy}")

    return system_errors(explain)


def explain_write_errors(what: object, remedy: str = "name another place") -> AbstractContextManager[None]:
    """The same where `what` cannot be written."""
    return reaching(f"{what} cannot be written", remedy)


@contextmanager
def catch_foreign() -> Iterator[list[Exception | SystemExit]]:
    """Keep what foreign code raises meanwhile (`sys.exit()`, too), at most one exception, instead of raising it."""
    caught: list[Exception | SystemExit] = []
    try:
        yield caught
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it is, it is not ours
        caught.append(error)
