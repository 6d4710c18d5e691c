"""What the system refuses is told by what it was: never a network as a folder, never a helper's pipe as our own."""

import re
import resource
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ksflow.errors import of_system

_HELPER_DIES = """
import sys
from ksflow import __main__
from ksflow.cli import verbs

def examine(words, overrides):
    raise {error}

verbs.COMMANDS["doctor"] = examine
sys.argv = ["ksflow", "doctor"]
sys.exit(__main__.main())
"""


def _refused(folder: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        socket.create_connection(free.getsockname(), timeout=5)


def _silent(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        client.settimeout(0.01)
        client.recv(1)


def _full_disk(folder: Path) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        full.write("x")


def _file_for_folder(folder: Path) -> None:
    (folder / "file").write_text("")
    (folder / "file" / "below").mkdir()


def _gone(folder: Path) -> None:
    (folder / "gone").read_text()


def _too_many(folder: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
    try:
        (folder / "one_more").write_text("")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def _unknown(folder: Path) -> None:
    raise OSError


@pytest.mark.parametrize(
    ("fails", "said"),
    [
        (_refused, "nobody listens there"),
        (_silent, "no answer in time"),
        (_full_disk, "the disk is full"),
        (_file_for_folder, "cannot write here: .*/file/below'; go to a folder you can write to"),
        (_gone, "/gone'; it is not there"),
        (_too_many, "raise `ulimit -n`"),
        (_unknown, "^OSError; the system refuses it$"),
    ],
)
def test_what_the_system_refuses_is_told_by_what_it_was(
    tmp_path: Path, fails: Callable[[Path], None], said: str
) -> None:
    with pytest.raises(OSError) as met:  # noqa: PT011 - its words are what is asked about
        fails(tmp_path)
    told = str(of_system(met.value))
    assert re.search(said, told), told
    assert ("write here" in told) == (fails is _file_for_folder)


@pytest.mark.parametrize("error", ["BrokenPipeError(32, 'Broken pipe')", "TimeoutError(110, 'timed out')"])
def test_a_command_that_the_system_refuses_something_says_so(error: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _HELPER_DIES.format(error=error)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("ksflow: [Errno ")
