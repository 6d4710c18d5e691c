"""Counters of the whole machine in /proc and /sys: a sandbox sees them as they were when the judge started.

Free memory, open files, interrupts, idle times: one sandbox could change such a number and another one read it. Files
keep an earlier text, for libraries that parse them; folders of counters are empty. A file that cannot be covered stays.
"""

import contextlib
import ctypes
import glob
import os
import stat
import tomllib
from functools import cache
from pathlib import Path

from ksflow.evaluation.sandbox import linux

MACHINE_FILES = tomllib.loads(Path(__file__).with_name("machine_files.toml").read_text(encoding="utf-8"))
_COUNTERS = MACHINE_FILES["counters"]
_LONGEST = 1 << 16
_BIND = 0x1000
_SYSTEM_BYTES = 112


@cache
def texts() -> dict[str, str]:
    """Return file -> its text at the first call; "" if that is too long to be copied into every sandbox."""
    contents = {}
    for path in (*(f"/proc/{name}" for name in os.listdir("/proc")), *_all(_COUNTERS["files"])):
        with contextlib.suppress(OSError):
            mode = os.lstat(path).st_mode
            if stat.S_ISREG(mode) and mode & stat.S_IROTH and os.path.basename(path) not in _COUNTERS["steady"]:
                with open(path, encoding="utf-8", errors="replace") as file:
                    text = file.read(_LONGEST + 1)
                contents[path] = text if len(text) <= _LONGEST else ""
    return contents


@cache
def folders() -> tuple[str, ...]:
    """Return the folders that are empty in a sandbox."""
    own = [f"/proc/{name}" for name in os.listdir("/proc") if not name.isdigit() and name not in _COUNTERS["own"]]
    return (*(path for path in own if os.path.isdir(path) and not os.path.islink(path)), *_all(_COUNTERS["folders"]))


@cache
def system() -> bytes:
    """Return the result of the call `sysinfo` at the first call of this function."""
    buffer = ctypes.create_string_buffer(_SYSTEM_BYTES)
    linux.call("sysinfo", buffer)
    return buffer.raw


def cover(root: str) -> None:
    """Mount the texts and an empty folder over the real ones, below a root that is being built."""
    text, empty = f"{root}/.text", f"{root}/.empty"
    os.mkdir(empty)
    for path in folders():
        with contextlib.suppress(OSError):
            linux.mount(empty, root + path, None, _BIND)
    os.rmdir(empty)
    for path, content in texts().items():
        Path(text).write_text(content, encoding="utf-8")
        with contextlib.suppress(OSError):
            linux.mount(text, root + path, None, _BIND)
        os.remove(text)  # the mount keeps the file


def _all(patterns: list[str]) -> list[str]:
    return [path for pattern in patterns for path in sorted(glob.glob(pattern))]
