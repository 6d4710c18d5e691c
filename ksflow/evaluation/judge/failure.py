"""A sandbox's failures, and its output, of which the head and the tail are kept."""

import builtins
import contextlib
import os
import re
import signal
from collections.abc import Mapping

from ksflow import errors

CAUSES = {"memory": "used up its memory", "disk": "filled its disk", "stopped": "stopped itself"}
"""By the supervisor's word for the end of a sandbox."""
_DRAINS = 64
_LOG_PART = 2000
_PLACE = re.compile(r'File "(?:[^"]*/)?([^"/,]+)(?:, \w+)?", line (\d+)')


class Failure(Exception):
    """A sandbox failed: `kind` is error, wrong, exit, timeout, cheat or harness."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text


class Overdue(Failure):
    def __init__(self) -> None:
        super().__init__("timeout", "no answer in time")


def exit_failure(cause: str, status: int | None) -> Failure:
    """Return the failure of a sandbox that ended, by the supervisor's cause or the exit status, if known."""
    if cause:
        return Failure("exit", CAUSES[cause.partition(" ")[0]])
    if status is None:
        return Failure("exit", "closed its socket")
    if status >= 0:
        return Failure("exit", f"exited with status {status}")
    number = -status
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    if name == "SIGXCPU":
        return Failure("timeout", "used up its CPU time")
    hint = ", perhaps because it used too much memory" if name == "SIGKILL" else ""
    return Failure("exit", f"killed by {name}{hint}")


class Log:
    """A pipe that is drained while waiting; its head and tail are kept."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.reader, False)
        self.head, self.tail, self.total = b"", b"", 0
        self.sealed = False

    def seal(self) -> None:
        """Discard all further output."""
        if not self.sealed:
            self.drain()
            self.sealed = True

    def drain(self) -> None:
        """Read the available output."""
        with contextlib.suppress(BlockingIOError):
            for _ in range(_DRAINS):
                chunk = os.read(self.reader, 1 << 16)
                if self.sealed and chunk:
                    continue
                self.total += len(chunk)
                missing = _LOG_PART - len(self.head)
                self.head += chunk[:missing]
                self.tail = (self.tail + chunk[max(missing, 0) :])[-_LOG_PART:]
                if len(chunk) < 1 << 16:
                    return

    def text(self) -> str:
        """Return head and tail, with a note of the bytes missing between them."""
        lost = self.total - len(self.head) - len(self.tail)
        gap = f"\n... {lost} bytes ...\n".encode() if lost else b""
        return strip_controls(self.head + gap + self.tail)


def without_values(kind: str, text: str, files: Mapping[str, str]) -> str:
    """Return the message of a failure while the sandbox holds secret inputs: the type of the exception, and its line in
    the kernel's own `files`. The exception's text could reveal inputs to the next kernel."""
    if kind == "wrong":
        return "custom_kernel returned an invalid result: check the number, type, shape and dtype of its values"
    name = re.split(r"\W", text, maxsplit=1)[0]
    known = isinstance(error := getattr(builtins, name, None), type) and issubclass(error, BaseException)
    message = f"{name if known else 'an exception'}, on secret inputs; its message stays secret too"
    return f"{message}\n{': '.join(location)}" if (location := at_line(text, files)) else message


def at_line(text: str, files: Mapping[str, str]) -> tuple[str, ...]:
    """Return the last place in the kernel's own `files` that a traceback names, and that line; empty if none."""
    for file, line in reversed(_PLACE.findall(text)):
        lines = files.get(file, "").splitlines()
        if 0 < int(line[:9]) <= len(lines):
            return f"{file}, line {int(line)}", lines[int(line) - 1].strip()
    return ()


def strip_controls(text: bytes) -> str:
    """Return a sandbox's output without control characters."""
    return errors.strip_controls(text.decode("utf-8", "replace"))
