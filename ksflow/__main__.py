"""The door: a verb, then Hydra overrides. `python -m ksflow problem=softmax` is the verb `run`; no word is help."""

import atexit
import errno
import gc
import importlib
import io
import os
import select
import shutil
import signal
import sys
import textwrap
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import takewhile
from typing import Any

from ksflow import __version__
from ksflow.cli import usage
from ksflow.errors import ConfigError, KsflowError, NothingTried, of_system, strip_controls
from ksflow.evaluation.processes import ending
from ksflow.home import expand_home
from ksflow.redaction import redact

_FLAGS = {"--json": "format=json", "--patch": "patch=true", "--remove": "remove=true", "--sections": "sections=true"}
_HELP = {"--help", "-h", "help"}
_LEFT_BEHIND_S = 5.0  # how long the end of the process waits for threads that a stage has left behind


def main() -> int:
    """Run one command; the exit code: 0; 2: the user can mend it; 4: nothing was tried; 130: abandoned.

    Some commands have codes of their own; `COMMAND --help` tells.
    """
    gc.set_threshold(50_000)  # Python's 700 cost a run an eighth of its CPU, and its start more
    _open_streams()
    if sys.executable:  # `../.venv/bin/python`: the way there need not be in a sandbox
        folder, name = os.path.split(sys.executable)
        sys.executable = os.path.join(os.path.realpath(folder), name)
    try:
        with ending.handle_signals(_interrupt, ending.FROM_SYSTEM):
            code = _command([expand_home(argument) for argument in sys.argv[1:]])
        sys.stdout.flush()
        return code
    except BrokenPipeError as error:
        look = select.poll()
        for number in (1, 2):
            look.register(number, 0)
        if not any(event & (select.POLLERR | select.POLLHUP) for _, event in look.poll(0)):  # another program's pipe
            return _fail(str(of_system(error)))
        # what is still to be written goes nowhere, so that the end of the program says nothing about it
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except BrokenPipeError:
                with suppress(OSError):
                    os.dup2(nowhere, stream.fileno())
        return 128 + signal.SIGPIPE  # as a shell reports it


def program() -> None:
    """Run `main` as the whole of this process, and end it, also where a stage has left a thread that does not end."""
    code, over = 1, threading.Event()
    try:
        code = main()
    finally:
        atexit.register(over.set)  # called when every thread that Python waits for has ended
        threading.Thread(target=_leave, args=(code, over), daemon=True).start()
    sys.exit(code)


def _leave(code: int, over: threading.Event) -> None:
    if not over.wait(_LEFT_BEHIND_S):
        names = ", ".join(t.name for t in threading.enumerate() if not t.daemon and t is not threading.main_thread())
        _fail(f"left behind at the end: a thread of a stage that does not end by itself ({names})")
        sys.stderr.flush()
        os._exit(code)


def _interrupt(_: int) -> None:
    raise KeyboardInterrupt


def _command(arguments: list[str]) -> int:
    """The command's exit code; what a user can mend is one line on stderr."""
    try:
        return _dispatch(arguments)
    except KsflowError as error:
        return _fail(" ".join(str(error).split()), NothingTried.status if type(error) is NothingTried else 2)
    except KeyboardInterrupt:
        return _fail("interrupted; nothing that was written is lost, the same command goes on", 130)
    except BrokenPipeError:
        raise
    except OSError as error:
        return _fail(strip_controls(" ".join(str(of_system(error)).split())))


def _dispatch(arguments: list[str]) -> int:
    arguments = arguments or ["--help"]
    if "--version" in arguments or arguments == ["-V"]:
        return _say(f"ksflow {__version__}")
    arguments = [_FLAGS.get(argument, argument) for argument in arguments]
    verb = list(takewhile(_is_word, arguments))
    name = verb[0] if verb else "run"
    if not _HELP.isdisjoint(arguments):
        return _help([word for word in arguments if word not in _HELP])
    if name not in usage.COMMANDS:
        raise ConfigError(usage.unknown(name))
    if name == "worker":
        worker = importlib.import_module("ksflow.evaluation.remote.worker")  # where only torch is installed
        return int(worker.main(arguments[1:]))
    gc.disable()  # what is imported stays: a search for cycles among it finds none
    from ksflow.cli import verbs

    if name != "run":  # which goes on importing until it is built
        gc.enable()
    commands: dict[str, Callable[[list[str], list[str]], int]] = verbs.COMMANDS
    return commands[name](verb[1:], arguments[len(verb) :])


def _help(words: list[str]) -> int:
    """Print the page of a command, of options and keys, or of all commands, wherever `--help` stands."""
    if told := next((word for word in words if word in usage.COMMANDS), ""):
        return _say(usage.command_page(told))
    if words:
        from ksflow.config import pages  # brings Hydra

        if text := pages.pages(words):
            return _say(f"{text}\n\n`ksflow run --help` says what a search takes, `ksflow --help` lists all commands.")
    if unknown := next(filter(_is_word, words), ""):
        raise ConfigError(usage.unknown(unknown))
    return _say(usage.full_page(__version__))


def _is_word(argument: str) -> bool:
    """Whether it is part of a command, not an override: a name, a file, a branch such as softmax/lr=1,b=2/00003."""
    name = argument.partition("=")[0]
    branch = "/" in name and argument.count("/") == 2 and argument.rpartition("/")[2].isalnum()
    return not argument.startswith(("-", "+", "~")) and (name == argument or branch)


def _open_streams() -> None:
    """Have all three: closed ones lead nowhere, and what a terminal's encoding lacks is shown by its number.

    What is written to a terminal that was closed meanwhile is lost, without an error.
    """
    while (nowhere := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(nowhere, True)
    os.close(nowhere)
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r+", encoding="utf-8"))  # noqa: SIM115 - to the end
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a caller may have put another one there
            stream.reconfigure(errors="backslashreplace")
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper) and stream.isatty():
            lasting = io.BufferedWriter(_Terminal(number, "w", closefd=False))
            setattr(sys, name, io.TextIOWrapper(lasting, stream.encoding, stream.errors, line_buffering=True))


class _Terminal(io.FileIO):
    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return len(data)


def _say(text: str) -> int:
    sys.stdout.write(text.rstrip("\n") + "\n")
    return 0


def _fail(text: str, code: int = 2) -> int:
    """One line on stderr; at a terminal it goes on below, from one word to the next."""
    line = redact(strip_controls(f"ksflow: {text}"))
    if sys.stderr.isatty():
        width = shutil.get_terminal_size().columns
        line = textwrap.fill(line, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    sys.stderr.write(f"{line}\n")
    return code


if __name__ == "__main__":
    program()
