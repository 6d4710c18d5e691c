"""Run a tool with a limit on its time, and leave nothing of it behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ksflow.children import environment
from ksflow.stages.evaluator.box.native import descendants

_LAST = 300
"""Characters of a tool's last words in a sentence."""
_END_S = 5.0


@dataclass(frozen=True)
class Ran:
    """How a tool ended."""

    status: int
    output: str
    """Of both streams, in the order it came."""
    timed_out: bool = False

    @property
    def last_words(self) -> str:
        """The last line that says something."""
        lines = [line.strip("= \t") for line in self.output.splitlines()]
        return next((line for line in reversed(lines) if line), f"it ended with status {self.status}")[:_LAST]


def program(job: Path) -> list[str]:
    """The command of the program that the tools watch."""
    return [sys.executable, "-P", "-m", "ksflow.stages.evaluator.profile.program", str(job)]


def run(command: Sequence[str], timeout_s: float, extra: Mapping[str, str] | None = None) -> Ran:
    """Run it with an environment that has no keys; after the time-out its whole process tree is killed.

    What has left both its tree and its session is not found.
    """
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment(extra or {}),
        start_new_session=True,
    ) as process:
        try:
            words, _ = process.communicate(timeout=timeout_s)
            return Ran(process.returncode, words.decode("utf-8", "replace"))
        except subprocess.TimeoutExpired:
            _kill([process.pid, *descendants(process.pid, dead=False), *_session(process.pid)])
            return Ran(-signal.SIGKILL, _rest(process), timed_out=True)
        finally:
            end = time.monotonic() + _END_S
            while (left := _session(process.pid)) and time.monotonic() < end:
                _kill(left)
                time.sleep(0.01)


def _kill(pids: Iterable[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _session(leader: int) -> list[int]:
    """Living processes of a session, its leader among them."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            fields = Path("/proc", name, "stat").read_bytes().rpartition(b")")[2].split()
            if int(fields[3]) == leader and fields[0] not in (b"Z", b"X"):
                found.append(int(name))
    return found


def _rest(process: "subprocess.Popen[bytes]") -> str:
    with suppress(subprocess.TimeoutExpired):
        return process.communicate(timeout=_END_S)[0].decode("utf-8", "replace")
    return ""
