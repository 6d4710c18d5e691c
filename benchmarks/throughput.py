"""How busy the device is kept when models are slow: rounds in flight against a stub model on loopback.

    python benchmarks/throughput.py [--scale 20] [--trials 120] [--model-s 20] [--evaluation-s 5]

The stub model answers after 20 s and an evaluation takes 5 s, both divided by --scale. Every stage asks over HTTP,
every kernel and call is committed. Reported is the steady state, the first and the last two rounds in flight left out,
against the bound: one evaluation after the other, or all rounds waiting for models, whichever is slower.
"""

import argparse
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from peers.model import StubModel

from ksflow.kernels.problem.loader import load
from ksflow.lineage import Lineage
from ksflow.lm import Model
from ksflow.loop.run import Run, Stages
from ksflow.loop.schedule import Schedule
from ksflow.loop.search import search
from ksflow.records import Evaluation, Kernel, Problem, Seed, Timing, Trial, Verdict
from ksflow.stages.designer.llm import LlmDesigner
from ksflow.stages.digester.none import Nothing
from ksflow.stages.selector.llm import LlmSelector
from ksflow.stages.writer.rewrite import Rewrite

_SEED = "VALUE = 0\n\n\ndef custom_kernel(data):\n    return data\n"


class Device:
    """Takes its time for every kernel, and remembers when."""

    judge = fingerprint = "stub"

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.turns: list[tuple[float, float]] = []

    def __call__(self, problem: Problem, kernel: Kernel, versus: tuple[Trial, ...]) -> Evaluation:
        """Accept, at a time made from the text."""
        began = time.monotonic()
        time.sleep(self.seconds)
        us = 100.0 + int(kernel.digest, 16) % 1000 / 10
        timings = tuple(Timing(case.name, us) for case in problem.benchmarks)
        self.turns.append((began, time.monotonic()))
        return Evaluation(Verdict.ACCEPT, "", us, timings, target=self.fingerprint, judge=self.judge)


def measure(rounds: int, trials: int, model_s: float, evaluation_s: float) -> dict[str, float]:
    """One run with so many rounds in flight: the share of time the device was busy, and throughput over its bound."""
    device = Device(evaluation_s)
    with tempfile.TemporaryDirectory() as folder, StubModel(model_s, lambda: None) as stub:
        model = Model("stub", "openai", api_base=stub.url, cache=False, retries=0)
        lineage = Lineage(Path(folder) / "lineage.git", "throughput")
        stages = Stages(LlmSelector(model), LlmDesigner(model), Rewrite(model), device, Nothing())
        schedule = Schedule(evaluations=trials, rounds_in_flight=rounds, confirm=False)
        seed = Seed("seed.py", Kernel("python", {"kernel.py": _SEED}))
        search(Run(load("softmax", "cpu"), lineage, stages, schedule), (seed,))
        lineage.close()
    edge = 2 * 3 * rounds
    steady = device.turns[edge:-edge]
    span = steady[-1][1] - steady[0][0]
    rate = len(steady) / span
    bound = min(1 / evaluation_s, 3 * rounds / (3 * model_s + evaluation_s))
    return {"busy": sum(end - began for began, end in steady) / span, "of bound": rate / bound}


def main() -> None:
    """Run and print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--scale", type=float, default=20.0)
    parser.add_argument("--trials", type=int, default=150)
    parser.add_argument("--model-s", type=float, default=20.0)
    parser.add_argument("--evaluation-s", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, nargs="*", default=[1, 4, 8], help="rounds in flight")
    given = parser.parse_args()
    print(
        f"{datetime.now(UTC):%Y-%m-%d}: model {given.model_s:g} s, evaluation {given.evaluation_s:g} s, "
        f"both / {given.scale:g}; {given.trials} trials"
    )
    for rounds in given.rounds:
        trials = min(given.trials, 60 * rounds)
        found = measure(rounds, trials, given.model_s / given.scale, given.evaluation_s / given.scale)
        print(
            f"{rounds} rounds in flight: device busy {found['busy']:.0%}, throughput {found['of bound']:.0%} of bound"
        )


if __name__ == "__main__":
    main()
