"""How far a kernel seems from itself: the same kernel as candidate and as rival, judged again and again.

    python benchmarks/equals.py [--times 20]

Prints the ratios' spread. On a quiet machine they stay within a few per cent;
a claim must beat what they reach.
"""

import argparse
import statistics

from ksflow.problem import load
from ksflow.records import Origin, Trial
from ksflow.stages.evaluator.local import LocalEvaluator
from ksflow.target import detect


def main() -> None:
    """Judge, and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--times", type=int, default=20)
    times = parser.parse_args().times
    problem = load("softmax")
    seed = next(seed for seed in problem.seeds if seed.name == "01_naive.cpp")
    judge = LocalEvaluator(detect())
    rival = Trial("00001", Origin.SEED, kernel=seed.kernel)
    rows = [judge(problem, seed.kernel, (rival,)).evidence["against"][0] for _ in range(times)]
    ratios = sorted(row["speedup"] for row in rows)
    print(f"ratio to itself: lowest {ratios[0]:.3f}, median {statistics.median(ratios):.3f}, highest {ratios[-1]:.3f}")
    print(f"intervals that leave out 1: {sum(not row['low'] <= 1 <= row['high'] for row in rows)} of {times}")


if __name__ == "__main__":
    main()
