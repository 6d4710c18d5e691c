"""What a kernel may have left on this machine: everything that a corpus kernel makes carries its mark."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import ksflow

_PATIENCE_S = 60.0
_IPC = {"shm": "-m", "sem": "-s", "msg": "-q"}
"""Kinds of SysV objects, and what `ipcrm` calls them."""


def traces(mark: str, judge: int, patience_s: float = _PATIENCE_S) -> list[str]:
    """What is left of a kernel, after a moment in which the dead may disappear."""
    end = time.monotonic() + patience_s
    while (found := _traces(mark, judge)) and time.monotonic() < end:
        time.sleep(0.05)
    return found


def port(mark: str) -> int:
    """A port number, and a SysV key in hexadecimal digits, for whoever carries this mark."""
    return 20000 + int(mark[1:], 16) % 10000


def taken(mark: str) -> bool:
    """Whether somebody else listens on its port."""
    return bool(_listening(port(mark)))


def clean(mark: str) -> None:
    """Remove what a kernel has left, so that the next test starts as this one did."""
    for pid in _processes(mark):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for path in _files(mark):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    for kind, name in _ipc(mark):
        subprocess.run(["ipcrm", _IPC[kind], name], check=True)


def _traces(mark: str, judge: int) -> list[str]:
    found = [f"process {pid}" for pid in _processes(mark)]
    found += [f"file {path}" for path in _files(mark)]
    found += [" ".join(one) for one in _ipc(mark)]
    found += [] if Path(f"/proc/{judge}").exists() else ["no judge"]
    return [*found, *_named(mark), *_listening(port(mark))]


def _processes(mark: str) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark.encode() in b"".join((folder / name).read_bytes() for name in ("comm", "cmdline", "environ")):
                found.append(int(folder.name))
    return found


def _files(mark: str) -> list[Path]:
    places = {Path(name) for name in ("/", "/tmp", "/var/tmp", "/dev/shm", "/run", "/usr/local/bin", Path.home())}
    places |= {Path.cwd(), Path(tempfile.gettempdir()), *map(Path, ksflow.__path__), Path(os.__file__).parent}
    return [path for place in places if place.is_dir() for path in place.glob(f"*{mark}*")]


def _ipc(mark: str) -> list[tuple[str, str]]:
    """SysV objects under the mark's key, which belong to nobody's process: their kind and their number."""
    key = int(str(port(mark)), 16)
    rows = [(kind, line.split()) for kind in _IPC for line in _lines(Path("/proc/sysvipc", kind))[1:]]
    return [(kind, words[1]) for kind, words in rows if int(words[0]) == key]


def _named(mark: str) -> list[str]:
    """Mounts and sockets with the mark in their name."""
    tables = (Path("/proc/self/mounts"), Path("/proc/net/unix"))
    return [f"{table.name}: {line}" for table in tables for line in _lines(table) if mark in line]


def _listening(number: int) -> list[str]:
    with socket.socket() as probe:
        return [f"listens on {number}"] if probe.connect_ex(("127.0.0.1", number)) == 0 else []


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []
