"""Parts of ksflow against each other on a landscape: what searches with many random seeds reach, with intervals.

    python benchmarks/ablations.py [words of a command line] -- VARIANT VARIANT...
    python benchmarks/ablations.py record LINEAGE PROBLEM RUN > landscape.json

A variant is words, too: `'selector=islands selector.islands=2'`; `''` is what there is without any. Each is run for
`--seeds` random seeds (20) and `--evaluations` experiments (60) with the configuration's own selector, designer, writer
and evaluator, but in memory: no lineage, no digester, rounds one after the other. A search is worth its best score over
the best that any search found in the same landscape; variants are told as geometric means over seeds, pairs of them
seed by seed. Intervals are percentile bootstraps: 95 % for a variant, 95 % for all pairs of a table together.
`record` prints what a judge said of every configuration in a run, for `evaluator.landscape=`.
"""

import argparse
import itertools
import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from ksflow.config import compose
from ksflow.errors import StageError
from ksflow.lineage import Lineage
from ksflow.problem.loader import kernel_file
from ksflow.records import Origin, Population, Seed, Trial, plain
from ksflow.source.tunables import tunables, values

_RESAMPLES = 20_000
Worth = Mapping[str, Sequence[Sequence[float]]]
"""Variant -> for each random seed the logarithms of its best score over the landscape's best, as experiments go by."""


def main(words: list[str]) -> int:
    """Print the tables, or the landscape; 0."""
    if words[0] == "record":
        print(landscape(*words[1:]))
        return 0
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--evaluations", type=int, default=60)
    given, common = parser.parse_known_args(words[: words.index("--")])
    found: dict[str, list[tuple[str, list[float]]]] = {}
    for variant in words[words.index("--") + 1 :]:
        for seed in range(given.seeds):
            line = ["recipe=dry_run", f"random_seed={seed}", *common, *variant.split()]
            found.setdefault(variant or "as it is", []).append(search(line, given.evaluations))
        print(f"{variant or 'as it is'}: done", file=sys.stderr, flush=True)
    best: dict[str, float] = {}
    for name, curve in itertools.chain.from_iterable(found.values()):
        best[name] = min(best.get(name, math.inf), curve[-1])
    worth = {variant: [[us - best[name] for us in curve] for name, curve in runs] for variant, runs in found.items()}
    print("\n".join([*of_each(worth), "", *of_pairs(worth)]))
    return 0


def search(words: list[str], evaluations: int) -> tuple[str, list[float]]:
    """The landscape's name, and the logarithm of the best score after each experiment.

    A search that has nothing left to try stays where it is.
    """
    cfg = compose.compose(words)
    problem, evaluate = compose.build(cfg.problem), compose.build(cfg.evaluator)
    select, design, write = (compose.build(cfg[part]) for part in ("selector", "designer", "writer"))
    own = [cfg.seed_kernels] if cfg.seed_kernels else []
    population = Population(())
    for seed in (*problem.seeds, *(Seed(file, kernel_file(file)) for file in own)):
        name, judged = f"{len(population.trials):05d}", evaluate(problem, seed.kernel, ())
        population = population.plus(Trial(name, Origin.SEED, kernel=seed.kernel, name=seed.name, evaluation=judged))
    curve: list[float] = []
    while len(curve) < evaluations:
        try:
            choice = select(problem, population)
            plan = design(problem, population, choice, ())
        except StageError:
            break
        for index in plan.picked[: evaluations - len(curve)]:
            kernel = write(problem, choice, plan.experiments[index], ())
            parents = tuple(dict.fromkeys((choice.base.id, choice.reference.id)))
            name, judged = f"{len(population.trials):05d}", evaluate(problem, kernel, ())
            made = Trial(name, Origin.EXPERIMENT, parents, plan.experiments[index], kernel, "", judged, by=plan.by)
            population = population.plus(made)
            curve.append(math.log(min(trial.score_us for trial in population.trials if trial.score_us)))
    return evaluate.fingerprint, [*curve, *curve[-1:] * (evaluations - len(curve))]


def landscape(place: str, problem: str, run: str) -> str:
    """What a judge said of each configuration in a run, a line each."""
    lineage = Lineage(Path(place), problem, run, create=False)
    lineage.expect_as_recorded()
    rows = set()
    for trial in lineage.all_trials():
        if trial.kernel and trial.evaluation and tunables(trial.kernel.main):
            us = {timing.case: round(timing.us, 3) for timing in trial.evaluation.timings}
            row = {"values": plain(values(trial.kernel.main)), "verdict": trial.evaluation.verdict.value, "us": us}
            rows.add(json.dumps(row))
    lineage.close()
    return "[\n" + ",\n".join(sorted(rows)) + "\n]"


def of_each(worth: Worth) -> list[str]:
    """A row for each variant, the best first: after a third, two thirds and all of the experiments."""
    many = len(next(iter(worth.values()))[0])
    after = [many // 3, 2 * many // 3, many]
    rows = []
    for variant, runs in worth.items():
        columns = np.array(runs)[:, [number - 1 for number in after]].T
        share = np.mean(columns[-1] < math.log(1.01))
        cells = " | ".join(_cell(column, 0.95) for column in columns)
        rows.append((columns[-1].mean(), f"| `{variant}` | {cells} | {share:.0%} |"))
    heads = " | ".join(f"after {number}" for number in after)
    return [f"| | {heads} | within 1 % |", "|---|---:|---:|---:|---:|", *(row for _, row in sorted(rows))]


def of_pairs(worth: Worth) -> list[str]:
    """A row for each pair: the first's score over the second's at the end, below 1 where the first is better."""
    pairs = list(itertools.combinations(worth, 2))
    rows = ["| first | second | first / second | better |", "|---|---|---:|---|"]
    for one, other in pairs:
        logs = np.array([a[-1] - b[-1] for a, b in zip(worth[one], worth[other], strict=True)])
        low, high = _interval(logs, 1 - 0.05 / len(pairs))
        better = f"`{one}`" if high < 0 else f"`{other}`" if low > 0 else "cannot be told"
        rows.append(f"| `{one}` | `{other}` | {_cell(logs, 1 - 0.05 / len(pairs))} | {better} |")
    return rows


def _interval(logs: np.ndarray, share: float) -> Iterable[float]:
    means = np.random.default_rng(0).choice(logs, (_RESAMPLES, len(logs))).mean(axis=1)
    return (float(edge) for edge in np.quantile(means, [(1 - share) / 2, (1 + share) / 2]))


def _cell(logs: np.ndarray, share: float) -> str:
    low, high = _interval(logs, share)
    return f"{math.exp(logs.mean()):.3f} [{math.exp(low):.3f}, {math.exp(high):.3f}]"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
