"""What the orchestration costs: 1,000 trials with stages that do nothing, through a real lineage.

    python benchmarks/overhead.py [--trials 1000]

Prints CPU per trial (this process and git's helpers) at the median, the last 100 against the first, the lineage's size
after its own maintenance, resident memory, and the time from process start to the first stage call.
"""

import argparse
import contextlib
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from ksflow.evaluation.sandbox import linux
from ksflow.kernels.problem.loader import load
from ksflow.lineage import Lineage
from ksflow.loop.events import Event, Judged
from ksflow.loop.run import Run, Stages
from ksflow.loop.schedule import Schedule
from ksflow.loop.search import search
from ksflow.records import (
    Evaluation,
    Experiment,
    Kernel,
    Material,
    Note,
    Plan,
    Population,
    Problem,
    Seed,
    Selection,
    Timing,
    Trial,
    Verdict,
    portfolio,
)


def select(problem: Problem, population: Population) -> Selection:
    """The best, and the newest accepted."""
    newest = next(t for t in reversed(population.trials) if t.score_us)
    return population.choose(population.ranked[0].id, newest.id, "best and newest")


def design(problem: Problem, population: Population, selection: Selection, notes: tuple[Note, ...]) -> Plan:
    """Five experiments of plausible size."""
    number = len(population.trials)
    experiments = tuple(
        Experiment(
            f"experiment {number}.{index}: enlarge the register tile so that more values stay in registers",
            "the tile is larger and the result is right",
            (float(index), float(10 + index)),
            float(index),
        )
        for index in range(5)
    )
    avenues = tuple(f"avenue {index}: make it faster in way {index}" for index in range(10))
    return Plan(avenues, experiments, portfolio(experiments))


class Write:
    """A 4 kB kernel that differs a little each time."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(
        self,
        problem: Problem,
        selection: Selection,
        experiment: Experiment,
        notes: tuple[Note, ...],
        failed: Trial | None = None,
    ) -> Kernel:
        self.count += 1
        lines = [f"// line {line} of a small kernel, nothing to see here" for line in range(80)]
        lines[self.count % 80] = f"constexpr int VALUE = {self.count};"
        return Kernel("cpp", {"kernel.cpp": "\n".join(lines)}, "changed one line")


def evaluate(problem: Problem, kernel: Kernel, versus: tuple[Trial, ...]) -> Evaluation:
    """Accept, at a time made from the text."""
    us = 100.0 + int(kernel.digest, 16) % 1000 / 10
    samples = tuple(us + index / 10 for index in range(40))
    timings = tuple(Timing(case.name, us, samples) for case in problem.benchmarks)
    return Evaluation(Verdict.ACCEPT, "", us, timings, isolation="none", target="nothing")


def digest(problem: Problem, material: Material) -> tuple[Note, ...]:
    """Nothing is learnt."""
    return ()


def cpu_s() -> float:
    """CPU seconds of this process and its children, living and ended."""
    total = sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )
    for child in Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split():
        runs = Path(f"/proc/{child}/schedstat").read_text().split()
        total += int(runs[0]) / 1e9
    return total


_FIRST_CALL = """
import os, resource, sys, time
from ksflow.loop import startup
from ksflow.cli import verbs

def reached(*arguments):
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sys.stdout.write(f"{time.time()} {rss}")
    sys.stdout.flush()
    os._exit(0)

startup.judge = reached
verbs.run([], sys.argv[1:])
"""


def first_call() -> tuple[float, float]:
    """Seconds from the start of a process to its first stage call, and its memory in MB, as the main job is run."""
    with tempfile.TemporaryDirectory() as folder:
        overrides = [f"lineage.path={folder}/lineage.git", f"hydra.run.dir={folder}/log"]
        started = time.time()
        command = [sys.executable, "-c", _FIRST_CALL, *overrides]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        reached, rss = map(float, done.stdout.split())
        with contextlib.suppress(ChildProcessError):
            while True:  # the judge it had begun to start, else the next call would be timed beside that
                os.wait()
        return reached - started, rss


def main() -> None:
    """Run and print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=1000)
    count = parser.parse_args().trials
    costs: list[float] = []
    walls: list[float] = []
    last = [0.0, 0.0]
    lock = threading.Lock()
    linux.adopt_orphans()
    # before the trials: ext4 creates files slowly where many were deleted within the last minute
    firsts = [first_call() for _ in range(5)]

    def show(event: Event, run: Run) -> None:
        if not isinstance(event, Judged):
            return
        with lock:
            now = [cpu_s(), time.monotonic()]
            costs.append(1e3 * (now[0] - last[0]))
            walls.append(1e3 * (now[1] - last[1]))
            last[:] = now

    with tempfile.TemporaryDirectory() as folder:
        lineage = Lineage(Path(folder) / "lineage.git", "overhead")
        stages = Stages(select, design, Write(), evaluate, digest)
        seed = Seed("seed.cpp", Kernel("cpp", {"kernel.cpp": "// seed"}))
        schedule = Schedule(evaluations=count, confirm=False)
        search(Run(load("softmax", "cpu"), lineage, stages, schedule, (show,)), (seed,))
        rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        lineage.close()
        size = sum(f.stat().st_blocks * 512 for f in Path(folder).rglob("*") if f.is_file()) / 1e6
    times, memory = [seconds for seconds, _ in firsts], max(rss for _, rss in firsts)
    costs, walls = costs[1:], walls[1:]
    first, final = costs[:99], costs[-100:]
    rows = {
        "trials": f"{len(costs)}",
        "CPU ms per trial, median (mean)": f"{statistics.median(costs):.1f} ({statistics.fmean(costs):.1f})",
        "wall ms per trial, median": f"{statistics.median(walls):.1f}",
        "last 100 / first 100, CPU, mean": f"{statistics.fmean(final) / statistics.fmean(first):.2f}",
        "lineage after maintenance, MB": f"{size:.1f}",
        "resident memory of the loop, MB": f"{rss:.0f}",
        "start to first stage call, s": f"{statistics.median(times):.2f}",
        "resident memory of the main job then, MB": f"{memory:.0f}",
    }
    for name, value in rows.items():
        print(f"{name:42} {value}")


if __name__ == "__main__":
    main()
