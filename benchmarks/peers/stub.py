"""The stub evaluator, the same in every tool: it waits, and makes a time of the code's text.

It runs in the tools' own environments, so its top imports the standard library alone, and little of it: ShinkaEvolve
starts this file as a process for every candidate. OpenEvolve calls `evaluate`, ksflow builds `StubEvaluator`.
The environment says PEERS_SECONDS, the wait, and PEERS_DONE, a FIFO that gets one byte after each evaluation.
"""

from __future__ import annotations

import json
import os
import sys
import time
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ksflow.records import Evaluation, Kernel, Problem, Trial


def time_us(code: str) -> float:
    """Between 100 and 200, by the text alone."""
    return 100 + zlib.crc32(code.encode()) % 1000 / 10


def judged(code: str, seconds: float) -> float:
    """The time in microseconds, after the wait; whoever measures is told."""
    time.sleep(seconds)
    done = os.open(os.environ["PEERS_DONE"], os.O_WRONLY)
    os.write(done, b".")
    os.close(done)
    return time_us(code)


def evaluate(program_path: str) -> dict[str, float]:
    """OpenEvolve's entry, and what ShinkaEvolve's process writes down: higher is better there."""
    with open(program_path) as file:
        return {"combined_score": 1000 / judged(file.read(), float(os.environ["PEERS_SECONDS"]))}


class StubEvaluator:
    """ksflow's entry: accepts everything."""

    judge = "stub-1"
    fingerprint = "stub"

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self, problem: Problem, kernel: Kernel, versus: tuple[Trial, ...]) -> Evaluation:
        """A time that depends on the text alone, and its ratios to the trials it is compared with."""
        from ksflow.records import Evaluation, Evidence, Timing, Verdict, parse

        us = judged(kernel.main, self.seconds)
        rows = []
        for trial in versus:
            ratio = time_us(trial.kernel.main) / us if trial.kernel else 1.0
            rows.append({"id": trial.id, "speedup": ratio, "low": ratio * 0.99, "high": ratio * 1.01})
        control = {"speedup": 1.0, "low": 0.99, "high": 1.01}
        claims = [{**row, "faster": row["low"] > 1.01, "control": control, "ranked": True, "why": ""} for row in rows]
        evidence = {"against": rows, **({"claim": claims[0]} if claims else {})}
        timings = tuple(Timing(case.name, us, (us,)) for case in problem.benchmarks)
        return Evaluation(
            Verdict.ACCEPT, "", us, timings, parse(Evidence, evidence), "none", self.fingerprint, judge=self.judge
        )


def main() -> None:
    """ShinkaEvolve's entry: --program_path FILE --results_dir FOLDER."""
    given = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=True))
    results = given["--results_dir"]
    os.makedirs(results, exist_ok=True)
    metrics = evaluate(given["--program_path"])
    for name, content in (("metrics", metrics), ("correct", {"correct": True, "error": None})):
        with open(f"{results}/{name}.json", "w") as file:
            json.dump(content, file)


if __name__ == "__main__":
    main()
