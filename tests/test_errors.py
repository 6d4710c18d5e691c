"""What the system refuses is told by what it was: never a network as a folder, never a helper's pipe as our own."""

import os
import re
import resource
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from test_cli import ksflow

from ksflow.errors import ConfigError, of_system
from ksflow.formats.kernelbench import importer

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


def _ksflow(folder: Path, *words: str, **environment: str) -> str:
    """What a command that fails says."""
    done = ksflow(folder, *words, **environment)
    assert done.returncode == 2, done.stdout + done.stderr
    return done.stderr.strip().splitlines()[-1]


def test_a_cache_that_cannot_be_made_is_named_with_its_variable(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("no folder")
    found = _ksflow(
        tmp_path, "problem", "check", "problem=softmax", KSFLOW_CACHE="", XDG_CACHE_HOME="", HOME=f"{tmp_path}/home"
    )
    assert "cannot keep files below" in found
    assert "KSFLOW_CACHE" in found


def test_prompts_without_docstrings_are_refused(tmp_path: Path) -> None:
    found = _ksflow(tmp_path, "problem=softmax", "recipe=dry_run", "llm=dummy", "writer=rewrite", PYTHONOPTIMIZE="2")
    assert "PYTHONOPTIMIZE=2" in found


def test_a_null_in_place_of_a_name_is_told_with_the_valid_ones(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("")
    with pytest.raises(ConfigError, match=r"problem\.precision=None; valid: bf16"):
        importer.load(str(tmp_path / "model.py"), precision=None)  # type: ignore[arg-type]


def test_a_config_folder_that_is_not_there_ends_a_run(tmp_path: Path) -> None:
    assert "--config-dir" in _ksflow(tmp_path, f"--config-dir={tmp_path}/absent", "problem=softmax", "recipe=dry_run")


@pytest.mark.parametrize("closing", [">&-", "<&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_errors(closing: str) -> None:
    done = subprocess.run(
        ["sh", "-c", f'"$0" -m ksflow --version {closing}', sys.executable], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


@pytest.mark.slow
def test_an_address_space_that_is_bounded_already_stays_bounded(tmp_path: Path) -> None:
    """Describing a problem once tried to raise that, and what the system said to it was blamed on the reference."""
    (tmp_path / "model.py").write_text(
        "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x * 2\n\n\n"
        "def get_inputs():\n    return [torch.rand(8, 8)]\n\n\ndef get_init_inputs():\n    return []\n"
    )
    words = "problem show problem=kernelbench problem.path=model.py"
    done = subprocess.run(
        ["sh", "-c", f'ulimit -v 6000000; "$0" -m ksflow {words}', sys.executable],
        cwd=tmp_path,
        env={**os.environ, "KSFLOW_CACHE": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
