"""How busy a Ray cluster of stand-in judges is kept: a run with many rounds in flight, its kernels judged by Ray tasks.

    python benchmarks/ray_workers.py [--workers 64] [--rounds 16] [--experiments 8] [--evaluation-s 20] [--turns 6]

The stand-in sleeps on a worker process of its own for each judgement, 20 s give or take a fifth. Designers and writers
answer after a second each. Everything else is real: the rounds, their commits, `evaluator=ray`, a Ray cluster of this
machine. Reported is the share of the workers' time in which they judged, from when each had had its first kernel until
the last rounds began, and what the search itself took of the CPU.
"""

import argparse
import os
import random
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from ksflow.evaluation.judge import VERSION
from ksflow.evaluation.remote.ray_client import ClusterSettings, RayClient
from ksflow.kernels.hardware import target
from ksflow.kernels.problem.loader import load
from ksflow.lineage import Lineage
from ksflow.loop.run import Run, Stages
from ksflow.loop.schedule import Schedule
from ksflow.loop.search import search
from ksflow.records import (
    Evaluation,
    Experiment,
    Kernel,
    Note,
    Plan,
    Population,
    Problem,
    Seed,
    Selection,
    Target,
    Timing,
    Trial,
    Verdict,
)
from ksflow.stages.digester.none import Nothing
from ksflow.stages.evaluator.ray import RayEvaluator
from ksflow.stages.selector.tournament import Tournament

_ANSWER_S = 1.0


class Sleeping:
    """A judge that takes its time, and tells when it did."""

    seconds = 20.0

    def __init__(self, target: Target) -> None:
        self.target = target

    def __call__(self, problem: Problem, kernel: Kernel, versus: tuple[Trial, ...]) -> Evaluation:
        """Accept, at a time made from the text."""
        began, dice = time.monotonic(), random.Random(kernel.digest)
        time.sleep(self.seconds * dice.uniform(0.8, 1.2))
        us = dice.uniform(100, 200)
        timings = tuple(Timing(case.name, us) for case in problem.benchmarks)
        score = problem.aggregate(timing.us for timing in timings)
        found = Evaluation(Verdict.ACCEPT, "", score, timings, target=str(self.target), judge=f"local-{VERSION}")
        return found.with_evidence(more={"turn": [began, time.monotonic()], "pid": os.getpid()})

    def prepare(self, problem: Problem, kernel: Kernel) -> None:
        """There is nothing to compile."""

    def close(self) -> None:
        """There is nothing to end."""


class Designer:
    """So many experiments, all of them run."""

    def __init__(self, experiments: int) -> None:
        self.experiments = experiments

    def __call__(self, problem: Problem, population: Population, selection: Selection, notes: tuple[Note, ...]) -> Plan:
        """After a second."""
        time.sleep(_ANSWER_S)
        each = tuple(Experiment(f"number {n}", "", (0.0, 1.0), 1.0) for n in range(self.experiments))
        return Plan(("numbers",), each, tuple(range(self.experiments)), "designer=benchmark")


class Writer:
    """A text that was not there before, after a second."""

    def __call__(
        self,
        problem: Problem,
        selection: Selection,
        experiment: Experiment,
        notes: tuple[Note, ...],
        failed: Trial | None = None,
    ) -> Kernel:
        """Another number."""
        time.sleep(_ANSWER_S)
        return Kernel("python", {"kernel.py": f"def custom_kernel(data):\n    return data * {random.random()}\n"})


def measure(workers: int, rounds: int, experiments: int, turns: int) -> dict[str, float]:
    """One run: the workers' busy share, evaluations, seconds, and CPU seconds of this process for each evaluation."""
    evaluator = RayEvaluator(target.detect(), devices=workers)
    evaluator.client = RayClient(evaluator.target, ClusterSettings(devices=workers, make=Sleeping))
    evaluator.start()
    with tempfile.TemporaryDirectory() as folder:
        lineage = Lineage(Path(folder) / "lineage.git", "ray_workers")
        stages = Stages(Tournament(size=1), Designer(experiments), Writer(), evaluator, Nothing())
        schedule = Schedule(evaluations=workers * turns, rounds_in_flight=rounds, confirm=False)
        cpu = time.process_time()
        seed = Seed("seed.py", Kernel("python", {"kernel.py": "VALUE = 0\n"}))
        search(Run(load("softmax", "cpu"), lineage, stages, schedule), (seed,))
        cpu = time.process_time() - cpu
        trials = lineage.last_population.trials
        lineage.close()
    evaluator.client.close()
    told = [trial.evaluation.evidence.more for trial in trials if trial.evaluation]
    found = sorted(tuple(one["turn"]) for one in told if "turn" in one)
    first: dict[int, float] = {}
    for one in sorted(told, key=lambda one: one["turn"][0]):
        first.setdefault(one["pid"], one["turn"][0])
    begin, end = max(sorted(first.values())[:workers]), found[-rounds * experiments][0]
    busy = sum(max(min(ended, end) - max(began, begin), 0.0) for began, ended in found)
    return {
        "processes": len(first),
        "judged": len(found),
        "window_s": end - begin,
        "busy": busy / (workers * (end - begin)),
        "cpu_ms": 1000 * cpu / len(found),
    }


def main() -> None:
    """Run and print a line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=16, help="rounds in flight")
    parser.add_argument("--experiments", type=int, default=8, help="of a round")
    parser.add_argument("--evaluation-s", type=float, default=20.0)
    parser.add_argument("--turns", type=int, default=8, help="evaluations for each worker")
    given = parser.parse_args()
    Sleeping.seconds = given.evaluation_s
    found = measure(given.workers, given.rounds, given.experiments, given.turns)
    print(
        f"{datetime.now(UTC):%Y-%m-%d}: {given.workers} workers ({found['processes']} processes), "
        f"{given.rounds} rounds of {given.experiments} in flight, evaluations of {given.evaluation_s:g} s: "
        f"{found['judged']} judged, busy {found['busy']:.1%} of {found['window_s']:.0f} s; "
        f"the search took {found['cpu_ms']:.0f} ms of CPU for each"
    )


if __name__ == "__main__":
    main()
