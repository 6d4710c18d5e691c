"""What a trial costs as a run grows: trials with stages that do nothing, through a real lineage, thousand by thousand.

    python benchmarks/scale.py [--trials 10000] [--folder /tmp]

Prints for each decade (and with --every N for each N trials) the mean CPU of a trial (this process, git's helpers and
packing), the mean wall time, resident memory, the lineage's size on disk and its files; at the end the last thousand
against the first and the fourth. Packing comes after what it packs: a first thousand is charged with one or two packs,
a later one with two or three. A run of 100,000 trials makes a million objects: see where --folder is.
"""

import argparse
import resource
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from overhead import Write, cpu_s, design, digest, evaluate, select

from ksflow.kernels.problem.loader import load
from ksflow.lineage import Lineage
from ksflow.loop.events import Event, Judged
from ksflow.loop.run import Run, Stages
from ksflow.loop.schedule import Schedule
from ksflow.loop.search import search
from ksflow.records import Kernel, Seed

_PART = 1000


def rss_mb() -> float:
    """Resident memory of this process now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6


def on_disk(path: Path) -> tuple[float, int]:
    """MB that a folder takes, and how many files are in it."""
    said = subprocess.run(["du", "-s", "-B1000", path], capture_output=True, text=True, check=False).stdout
    files = subprocess.run(["find", path, "-type", "f", "-printf", "."], capture_output=True, check=False).stdout
    return int(said.split()[0]) / 1e3, len(files)


class Meter:
    """Looks at the clocks each time that a thousand trials are done, or the first ten and hundred."""

    def __init__(self, path: Path, every: int) -> None:
        self.path, self.every = path, every
        self.done, self.at = -1, 0
        self.cpu = self.wall = 0.0
        self.looking_s = 0.0
        self.parts: list[float] = []
        """CPU ms a trial of each thousand."""
        self._part = 0.0
        self._lock = threading.Lock()

    def __call__(self, event: Event, run: Run) -> None:
        """Told of every event."""
        if not isinstance(event, Judged):
            return
        with self._lock:
            self._count()

    def _count(self) -> None:
        self.done += 1  # the seed is none
        if self.done == 0:
            self.cpu = self._part = cpu_s()
            self.wall = time.monotonic()
        elif self.done % _PART == 0 or self.done in (10, 100):
            self.look()

    def look(self) -> None:
        """Print a row where one is due."""
        cpu, wall = cpu_s(), time.monotonic()
        if self.done % _PART == 0:
            self.parts.append((cpu - self._part) / _PART * 1e3)
        if self.done in (10, 100, 1000, 10_000, 100_000) or self.done % self.every == 0:
            trials = self.done - self.at
            size, files = on_disk(self.path)
            print(
                f"{self.at + 1:>7} to {self.done:<7} {1e3 * (cpu - self.cpu) / trials:6.1f} ms CPU"
                f" {1e3 * (wall - self.wall) / trials:7.1f} ms wall {rss_mb():6.0f} MB resident"
                f" {size:8.1f} MB on disk in {files} files",
                flush=True,
            )
            self.at, self.cpu, self.wall = self.done, cpu_s(), time.monotonic()
        if self.done % _PART == 0:
            self._part = cpu_s()


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--every", type=int, default=10**9)
    parser.add_argument("--folder", default=None)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        path = Path(folder) / "lineage.git"
        lineage, meter = Lineage(path, "scale"), Meter(path, given.every)
        stages = {"select": select, "design": design, "write": Write(), "evaluate": evaluate, "digest": digest}
        seed = Seed("seed.cpp", Kernel("cpp", {"kernel.cpp": "// seed"}))
        schedule = Schedule(evaluations=given.trials, confirm=False)
        run = Run(load("softmax", "cpu"), lineage, Stages(**stages), schedule, (meter,))  # type: ignore[arg-type]
        search(run, (seed,))
        lineage.close()
        size, files = on_disk(path)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"closed: {size:.1f} MB on disk in {files} files; at most {peak:.0f} MB resident")
    if len(meter.parts) > 1:
        for name, part in (("first", meter.parts[0]), ("fourth", meter.parts[min(3, len(meter.parts) - 1)])):
            last = meter.parts[-1]
            print(f"last thousand / {name} thousand, CPU: {last:.1f} / {part:.1f} ms = {last / part:.2f}")


if __name__ == "__main__":
    main()
