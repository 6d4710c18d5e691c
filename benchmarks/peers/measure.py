"""What a command and everything it starts cost: CPU and memory of the process tree from /proc, room on disk.

This process adopts what a command leaves behind (Linux' child subreaper), so no descendant escapes the account.
While a command runs, this process starts nothing else.
"""

import ctypes
import os
import signal
import statistics
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_SAMPLE_S = 0.1
_ADOPT = 36  # PR_SET_CHILD_SUBREAPER


@dataclass(frozen=True)
class Mark:
    """A moment of a run."""

    at: float
    """`time.monotonic()`."""
    cpu_s: float
    """CPU seconds of the tree until then, to 10 ms for each process."""


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    """Its exit code; negative for a signal."""
    wall_s: float
    """To 0.1 s."""
    cpu_s: float
    """Of the whole tree, as the kernel accounts for ended processes."""
    peak_bytes: int
    """Largest memory of the tree, sampled every 0.1 s; a shared page counts once."""


class Meter:
    """Marks one run: the first model call, and every evaluation after it. A context manager.

    `fifo` gets a byte for each evaluation.
    """

    def __init__(self, fifo: Path) -> None:
        self.started = time.monotonic()
        self.first: Mark | None = None
        self.evaluations: list[Mark] = []
        os.mkfifo(fifo)
        self._end = os.open(fifo, os.O_RDWR)  # both ends: it is never at its end
        self._reader = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> "Meter":
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        os.write(self._end, b"!")
        self._reader.join()
        os.close(self._end)

    def called(self) -> None:
        """The model is asked."""
        if self.first is None:
            self.first = mark()

    def _read(self) -> None:
        while os.read(self._end, 1) == b".":
            if self.first is not None:
                self.evaluations.append(mark())


def mark() -> Mark:
    """Now."""
    return Mark(time.monotonic(), sum(_tree().values()))


def growth(marks: list[Mark]) -> tuple[float, float]:
    """Wall and CPU time of the last tenth of the steps against the first.

    A tenth is a whole number of threes: ksflow's rounds write three candidates.
    """
    size = 3 * max(1, (len(marks) - 1) // 30)
    spans = (marks[: size + 1], marks[-size - 1 :])
    wall = [span[-1].at - span[0].at for span in spans]
    cpu = [max(span[-1].cpu_s - span[0].cpu_s, _TICK_S) for span in spans]
    return wall[1] / wall[0], cpu[1] / cpu[0]


def run(command: list[str], folder: Path, environment: Mapping[str, str], log: Path, limit_s: float) -> Ended:
    """Run a command in `folder` to its end, and wait for what it leaves behind; both are killed at the limit."""
    ctypes.CDLL(None).prctl(_ADOPT, 1, 0, 0, 0)
    started, peak = time.monotonic(), 0
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, cwd=folder, env=dict(environment), stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )
    code, wall_s, cpu_s = 0, 0.0, 0.0
    while True:
        try:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return Ended(code, wall_s, cpu_s, peak)
        if pid:
            cpu_s += usage.ru_utime + usage.ru_stime
        else:
            peak = max(peak, sum(map(_memory, _tree())))
            if time.monotonic() - started > limit_s:
                _kill()
            time.sleep(_SAMPLE_S)
        if pid == process.pid:
            code = process.returncode = os.waitstatus_to_exitcode(status)
            wall_s = time.monotonic() - started


def cpu_of(command: list[str], environment: Mapping[str, str]) -> float:
    """CPU seconds of a short command, the median of five."""
    times = []
    for _ in range(5):
        process = subprocess.Popen(command, env=dict(environment), stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        times.append(usage.ru_utime + usage.ru_stime)
    return statistics.median(times)


def room(folder: Path) -> int:
    """Bytes on disk of everything below a folder."""
    return sum(file.lstat().st_blocks * 512 for file in folder.rglob("*") if file.is_file())


def _tree() -> dict[int, float]:
    """Every descendant of this process, with its CPU seconds and those of the children it has waited for."""
    parents: dict[int, int] = {}
    spent: dict[int, float] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError), open(f"/proc/{name}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
                parents[int(name)] = int(fields[1])
                spent[int(name)] = sum(map(int, fields[11:15])) * _TICK_S
    found: dict[int, float] = {}
    generation = {os.getpid()}
    while generation:
        generation = {pid for pid, parent in parents.items() if parent in generation}
        found |= {pid: spent[pid] for pid in generation}
    return found


def _memory(pid: int) -> int:
    with suppress(OSError), open(f"/proc/{pid}/smaps_rollup") as file:
        for line in file:
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def _kill() -> None:
    for pid in _tree():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
