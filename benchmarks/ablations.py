"""Parts of ksflow against each other on a landscape: what searches with many random seeds reach, with intervals.

    python benchmarks/ablations.py [words of a command line] -- VARIANT VARIANT...
    python benchmarks/ablations.py record [--ratios] LINEAGE PROBLEM RUN... > landscape.json

A variant is words, too: `'selector=islands selector.islands=2'`; `''` is what there is without any. Each is run for
`--seeds` random seeds (20) and `--evaluations` experiments (60) with the configuration's own selector, designer, writer
and evaluator, but in memory: no lineage, no digester, rounds one after the other. A search is worth its best score over
the best that any search found in the same landscape; variants are told as geometric means over seeds, pairs of them
seed by seed. Intervals are percentile bootstraps: 95 % for a variant, 95 % for all pairs of a table together.
`record` prints what a judge said of every configuration in a run, for `evaluator.landscape=`, or the medians of several
runs. With `--ratios` times are corrected by what the judge found side by side, so that it does not count when a kernel
was judged on a machine whose speed changes.

With `--written LINEAGE PROBLEM RUN` the kernels of that run's experiments may come in as they were written, each after
its base, else in an order drawn by chance. A variant's `written=0.5` gives them that share of the rounds, `written=1`
all of them (0); the other rounds are the variant's designer's.
"""

import argparse
import itertools
import json
import math
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from random import Random

import numpy as np

from ksflow.config import compose
from ksflow.errors import StageError
from ksflow.kernels.problem.kernel_file import kernel_file
from ksflow.kernels.source.tunables import tunables, values
from ksflow.lineage import Lineage
from ksflow.protocols import NO_CONTEXT
from ksflow.records import (
    Experiment,
    Kernel,
    Note,
    Origin,
    Plan,
    Population,
    Problem,
    Seed,
    Selection,
    Trial,
    as_json,
    geomean,
)
from ksflow.stages.designer.mix import MixDesigner as Designers
from ksflow.stages.writer.mix import MixWriter as Writers

_RESAMPLES = 20_000
_RUN = 3  # experiments of a round
Worth = Mapping[str, Sequence[Sequence[float]]]
"""Variant -> for each random seed the logarithms of its best score over the landscape's best, as experiments go by."""


def main(words: list[str]) -> int:
    """Print the tables, or the landscape; 0."""
    if words[0] == "record":
        print(landscape(*(word for word in words[1:] if word != "--ratios"), ratios="--ratios" in words))
        return 0
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--evaluations", type=int, default=60)
    parser.add_argument("--written", nargs=3, metavar=("LINEAGE", "PROBLEM", "RUN"))
    given, common = parser.parse_known_args(words[: words.index("--")])
    written = trials(*given.written) if given.written else ()
    found: dict[str, list[tuple[str, list[float]]]] = {}
    for variant in words[words.index("--") + 1 :]:
        for seed in range(given.seeds):
            line = ["recipe=dry_run", f"random_seed={seed}", *common, *variant.split()]
            found.setdefault(variant or "as it is", []).append(search(line, given.evaluations, written))
        print(f"{variant or 'as it is'}: done", file=sys.stderr, flush=True)
    best: dict[str, float] = {}
    for name, curve in itertools.chain.from_iterable(found.values()):
        best[name] = min(best.get(name, math.inf), curve[-1])
    worth = {variant: [[us - best[name] for us in curve] for name, curve in runs] for variant, runs in found.items()}
    print("\n".join([*of_each(worth), "", *of_pairs(worth)]))
    return 0


class Written:
    """Designer of the kernels of a recorded run, and their writer.

    Each comes as it was written, once its base is there; of those that can come, chance draws a round's.
    """

    def __init__(self, recorded: Sequence[Trial], seed: int) -> None:
        made = [trial for trial in recorded if trial.origin is Origin.EXPERIMENT and trial.kernel and trial.experiment]
        self.trials, self.seed = {trial.experiment.description: trial for trial in made if trial.experiment}, seed

    def __call__(self, problem: Problem, population: Population, selection: Selection, notes: tuple[Note, ...]) -> Plan:
        known = {trial.kernel.digest for trial in population.trials if trial.kernel}
        left = {trial.id: trial for trial in self.trials.values() if trial.kernel and trial.kernel.digest not in known}
        ready = [trial for trial in left.values() if trial.parents[0] not in left]
        if not ready:
            raise StageError("written", "every kernel came in")
        drawn = Random(NO_CONTEXT.seed(self.seed, population)).sample(ready, min(_RUN, len(ready)))
        experiments = tuple(trial.experiment for trial in drawn if trial.experiment)
        return Plan(("recorded",), experiments, tuple(range(len(experiments))), "written")

    def write(
        self,
        problem: Problem,
        selection: Selection,
        experiment: Experiment,
        notes: tuple[Note, ...],
        failed: Trial | None = None,
    ) -> Kernel:
        """The kernel of that experiment."""
        kernel = self.trials[experiment.description].kernel
        assert kernel is not None
        return kernel


def search(words: list[str], evaluations: int, recorded: Sequence[Trial] = ()) -> tuple[str, list[float]]:
    """The landscape's name, and the logarithm of the best score after each experiment.

    A search that has nothing left to try stays where it is.
    """
    shares = [float(word.partition("=")[2]) for word in words if word.startswith("written=")]
    cfg = compose.compose([word for word in words if not word.startswith("written=")])
    problem, evaluate = compose.build(cfg.problem), compose.build(cfg.evaluator)
    select, design, write = (compose.build(cfg[part]) for part in ("selector", "designer", "writer"))
    if shares:
        written, weights = Written(recorded, cfg.random_seed), {"written": shares[-1], "designed": 1 - shares[-1]}
        design = Designers({"written": written, "designed": design}, weights, cfg.random_seed)
        write = Writers(tune=write, llm=written.write)
    own = [cfg.seed_kernels] if cfg.seed_kernels else []
    population = Population(())
    for seed in (*problem.seeds, *(Seed(file, kernel_file(file)) for file in own)):
        name, judged = f"{len(population.trials):05d}", evaluate(problem, seed.kernel, ())
        population = population.with_trial(
            Trial(name, Origin.SEED, kernel=seed.kernel, name=seed.name, evaluation=judged)
        )
    curve: list[float] = []
    while len(curve) < evaluations:
        try:
            selection = select(problem, population)
            plan = design(problem, population, selection, ())
        except StageError:
            break
        for index in plan.picked[: evaluations - len(curve)]:
            kernel = write(problem, selection, plan.experiments[index], ())
            parents = tuple(dict.fromkeys((selection.base.id, selection.reference.id)))
            name, judged = f"{len(population.trials):05d}", evaluate(problem, kernel, ())
            made = Trial(name, Origin.EXPERIMENT, parents, plan.experiments[index], kernel, "", judged, by=plan.by)
            population = population.with_trial(made)
            scores = (trial.score_us for trial in population.trials if trial.score_us and _counts(trial))
            curve.append(math.log(min(scores, default=math.inf)))
    return evaluate.fingerprint, [*curve, *curve[-1:] * (evaluations - len(curve))]


def _counts(trial: Trial) -> bool:
    """Not the baselines in Python, nor what comes of them: without tunables, no landscape knows their times."""
    return trial.kernel is not None and trial.kernel.language != "python"


def trials(place: str, problem: str, run: str) -> tuple[Trial, ...]:
    """A recorded run's."""
    lineage = Lineage(Path(place), problem, run, create=False)
    lineage.expect_as_recorded()
    found = tuple(lineage.all_trials())
    lineage.close()
    return found


def landscape(place: str, problem: str, *runs: str, ratios: bool = False) -> str:
    """What a judge said of each configuration, a line each: of several runs the medians; of times, or of ratios."""
    said: dict[str, list[tuple[str, dict[str, float]]]] = {}
    for recorded in (trials(place, problem, run) for run in runs):
        factors = corrections(recorded) if ratios else {}
        for trial in recorded:
            judged = trial.evaluation
            if trial.kernel and judged and not judged.evidence.repeat and tunables(trial.kernel.main):
                factor = factors[trial.id] if ratios and judged.accepted else 1.0
                us = {timing.case: timing.us * factor for timing in judged.timings}
                said.setdefault(json.dumps(as_json(values(trial.kernel.main))), []).append((judged.verdict.value, us))
    rows = []
    for name, found in said.items():
        verdict = Counter(word for word, _ in found).most_common(1)[0][0]
        times = [us for word, us in found if word == verdict]
        middle = {case: round(float(np.median([us[case] for us in times])), 3) for case in times[0]}
        rows.append(json.dumps({"values": json.loads(name), "verdict": verdict, "us": middle}))
    return "[\n" + ",\n".join(sorted(rows)) + "\n]"


def corrections(recorded: Sequence[Trial]) -> dict[str, float]:
    """Trial -> what its times are to be multiplied with, so that scores have the ratios that the judge found.

    A trial was timed side by side with the incumbent, and that one with the incumbent before it. The scores' geometric
    mean stays.
    """
    accepted = {trial.id: trial.evaluation for trial in recorded if trial.evaluation and trial.evaluation.score_us}
    speedups: dict[str, float] = {}
    for id, judged in [*accepted.items()] * len(accepted):  # those judged at once may have numbers in another order
        claim = judged.evidence.claim
        if not speedups:
            speedups[id] = 1.0
        elif claim and claim.id in speedups:
            speedups[id] = speedups[claim.id] * claim.speedup
    factors = {id: 1 / (accepted[id].score_us or math.nan) / speedup for id, speedup in speedups.items()}
    level = geomean(factors.values())
    return {id: factor / level for id, factor in factors.items()}


def of_each(worth: Worth) -> list[str]:
    """A row for each variant, the best first: after a quarter, half and all of the experiments."""
    after = _after(worth)
    rows = []
    for variant, runs in worth.items():
        columns = np.array(runs)[:, [number - 1 for number in after]].T
        share = np.mean(columns[-1] < math.log(1.01))
        cells = " | ".join(_cell(column, 0.95) for column in columns)
        rows.append((columns[-1].mean(), f"| `{variant}` | {cells} | {share:.0%} |"))
    heads = " | ".join(f"after {number}" for number in after)
    return [f"| | {heads} | within 1 % |", "|---|---:|---:|---:|---:|", *(row for _, row in sorted(rows))]


def of_pairs(worth: Worth) -> list[str]:
    """A row for each pair: the first's score over the second's, below 1 where the first is better; bold if told."""
    after, pairs = _after(worth), list(itertools.combinations(worth, 2))
    heads = " | ".join(f"after {number}" for number in after)
    rows = [f"| first | second | {heads} |", "|---|---|---:|---:|---:|"]
    for one, other in pairs:
        cells = []
        for number in after:
            logs = np.array([a[number - 1] - b[number - 1] for a, b in zip(worth[one], worth[other], strict=True)])
            low, high = _interval(logs, 1 - 0.05 / len(pairs))
            cell = _cell(logs, 1 - 0.05 / len(pairs))
            cells.append(f"**{cell}**" if high < 0 or low > 0 else cell)
        rows.append(f"| `{one}` | `{other}` | {' | '.join(cells)} |")
    return rows


def _after(worth: Worth) -> list[int]:
    many = len(next(iter(worth.values()))[0])
    return [many // 4, many // 2, many]


def _interval(logs: np.ndarray, share: float) -> Iterable[float]:
    means = np.random.default_rng(0).choice(logs, (_RESAMPLES, len(logs))).mean(axis=1)
    return (float(edge) for edge in np.quantile(means, [(1 - share) / 2, (1 + share) / 2]))


def _cell(logs: np.ndarray, share: float) -> str:
    low, high = _interval(logs, share)
    return f"{math.exp(logs.mean()):.3f} [{math.exp(low):.3f}, {math.exp(high):.3f}]"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
