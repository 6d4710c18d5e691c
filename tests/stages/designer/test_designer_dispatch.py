"""`designer=tune` where cases want different values: dispatching kernels, and `require` lines."""

import math
import time
from dataclasses import replace
from itertools import product
from random import Random

import pytest
from conftest import paired

from ksflow.kernels.source.launches import parse, plan_cases
from ksflow.kernels.source.tunables import DISPATCH, dispatches, values
from ksflow.protocols import Designer
from ksflow.records import (
    Case,
    Evaluation,
    Experiment,
    Kernel,
    Origin,
    Population,
    Problem,
    Timing,
    Trial,
    Verdict,
    geomean,
)
from ksflow.search.dispatch import combine_best, effective
from ksflow.search.space import space
from ksflow.stages.designer.random import RandomDesigner
from ksflow.stages.designer.tune import Tpe
from ksflow.stages.selector.fastest import Fastest
from ksflow.stages.writer.tune import Tune

CASES = tuple(
    Case(f"{m}x{n}x{k}", {"m": m, "n": n, "k": k}, 1)
    for m, n, k in [(64, 512, 7168), (64, 4096, 512), (1024, 512, 7168), (1024, 4096, 512), (6144, 512, 7168)]
)
PROBLEM = Problem("toy", "", "", "", "", "", ("cuda",), (), ("m", "n", "k"), (), CASES, ())
TEXT = """// a kernel
// require: BM * STAGES <= 512
// launch: gemm [cdiv(m, BM)] [256] (m, n, k)
constexpr int BM = 64;     // tune: 32 64 128 256 | tile
constexpr int SPLIT = 1;   // tune: 1 2 4 8 | form
constexpr int STAGES = 2;  // tune: 2 3 4 | prefetch
"""


def split_landscape(case: Case, config: dict[str, str]) -> float:
    """Few rows with much k want SPLIT=8, small tiles go with few rows; the rest is the same for all."""
    m, k = int(case.params["m"]), int(case.params["k"])
    rows, split = (64 if m <= 1024 else 256), (8 if m <= 1024 and k > 512 else 1)
    away = abs(math.log2(int(config["BM"]) / rows)) + 1.5 * abs(math.log2(int(config["SPLIT"]) / split))
    return 100.0 * (1 + 0.15 * away) * (1 + 0.02 * abs(int(config["STAGES"]) - 3))


def flat_landscape(case: Case, config: dict[str, str]) -> float:
    """One configuration is the best on every case."""
    return 100.0 * (1 + 0.2 * abs(math.log2(int(config["BM"]) / 128)) + 0.1 * int(config["SPLIT"]))


def judged(kernel: Kernel, landscape=split_landscape) -> Evaluation:
    """Every case with the values it has in the source; 0.5 % of noise that depends on the source alone."""
    rng = Random(kernel.digest)
    timings = tuple(
        Timing(case.name, landscape(case, effective(kernel.main, case.params)) * rng.gauss(1, 0.005)) for case in CASES
    )
    return Evaluation(Verdict.ACCEPT, "", geomean(t.us for t in timings), timings, target="sim")


def seed(text: str = TEXT, landscape=split_landscape) -> Population:
    kernel = Kernel("cuda", {"kernel.cu": text})
    return paired((Trial("00000", Origin.SEED, kernel=kernel, evaluation=judged(kernel, landscape)),))


def run(population: Population, designer: Designer, count: int, landscape=split_landscape) -> Population:
    while len(population.trials) < count:
        selection = Fastest()(PROBLEM, population)
        plan = designer(PROBLEM, population, selection, ())
        for index in plan.picked:
            kernel = Tune()(PROBLEM, selection, plan.experiments[index], ())
            name = f"{len(population.trials):05d}"
            trial = Trial(name, Origin.EXPERIMENT, (selection.base.id,), plan.experiments[index], kernel)
            population = paired((*population.trials, replace(trial, evaluation=judged(kernel, landscape))))
    return population


def joint(experiments: tuple[Experiment, ...]) -> list[Experiment]:
    return [e for e in experiments if any(name.startswith(DISPATCH) for name in e.changes)]


def plan_of(population: Population, designer: Designer) -> tuple[Experiment, ...]:
    return designer(PROBLEM, population, Fastest()(PROBLEM, population), ()).experiments


def test_cases_that_want_other_values_get_them_in_one_kernel() -> None:
    population = run(seed(), RandomDesigner(), 24)
    best = population.ranked[0]
    found = joint(plan_of(population, Tpe()))
    assert len(found) == 1
    kernel = Tune()(PROBLEM, Fastest()(PROBLEM, population), found[0], ())
    gain = 100 * ((best.score_us or 0) / (judged(kernel).score_us or 1) - 1)
    assert gain > 5
    low, high = found[0].gain_percent
    assert low - 2 < gain < high + 2
    recipe = parse(kernel.main)
    assert recipe
    variants, _ = plan_cases(recipe, {case.name: case.params for case in CASES}, [])
    assert 2 <= len(variants) <= 4


def test_a_dispatching_kernel_is_searched_on_class_by_class() -> None:
    population = run(seed(), Tpe(seed=1), 40)
    alone = run(seed(), Tpe(per_shape=False, seed=1), 40)
    best = population.ranked[0]
    assert best.kernel
    assert dispatches(best.kernel.main)
    assert (best.score_us or 0) < 0.9 * (alone.ranked[0].score_us or 0)
    assert not any(t.kernel and dispatches(t.kernel.main) for t in alone.trials)
    # what an experiment changes in one class, it leaves alone in the others
    for trial in population.trials:
        base = population.by_id[trial.parents[0]].kernel if trial.parents else None
        if (
            base
            and trial.kernel
            and trial.experiment
            and dispatches(base.main).keys() == dispatches(trial.kernel.main).keys()
        ):
            if not dispatches(base.main):
                continue
            changed = [c for c in CASES if effective(base.main, c.params) != effective(trial.kernel.main, c.params)]
            assert 0 < len(changed) < len(CASES)
            assert len({tuple(effective(base.main, c.params).values()) for c in changed}) == 1


def test_nothing_is_combined_where_one_configuration_is_best_everywhere() -> None:
    population = run(seed(landscape=flat_landscape), RandomDesigner(), 24, flat_landscape)
    assert not joint(plan_of(population, Tpe()))


def test_a_kernel_that_launches_itself_cannot_dispatch() -> None:
    population = run(seed(TEXT.replace("launch:", "starts:")), RandomDesigner(), 24)
    assert not joint(plan_of(population, Tpe()))


@pytest.mark.parametrize("designer", [Tpe(experiments=40), RandomDesigner(experiments=40)])
def test_what_a_require_line_forbids_is_not_proposed(designer: Designer) -> None:
    experiments = plan_of(seed(), designer)
    proposed = [values(TEXT) | dict(e.changes) for e in experiments]
    assert len(proposed) > 20
    assert all(int(config["BM"]) * int(config["STAGES"]) <= 512 for config in proposed)


@pytest.mark.slow
def test_a_long_run_is_designed_for_in_seconds() -> None:
    options = " ".join(str(value) for value in range(1, 60))
    text = TEXT + "".join(f"constexpr int X{i} = 1;  // tune: {options}\n" for i in range(6))
    population = run(seed(text), RandomDesigner(experiments=100), 4)
    plans_of_100 = plan_of(population, RandomDesigner(experiments=496))
    selection = Fastest()(PROBLEM, population)
    trials = list(population.trials)
    for experiment in plans_of_100:
        kernel = Tune()(PROBLEM, selection, experiment, ())
        trials.append(
            Trial(f"{len(trials):05d}", Origin.EXPERIMENT, ("00000",), experiment, kernel, "", judged(kernel))
        )
    started = time.process_time()
    assert plan_of(paired(tuple(trials)), Tpe())
    assert time.process_time() - started < 10


def test_many_cases_of_many_sizes_are_combined_in_seconds() -> None:
    rng = Random(1)
    cases = tuple(Case(str(i), {dim: 16 * rng.randrange(1, 9999) for dim in "mnk"}, 1) for i in range(60))
    trials = []
    for tile, split in product((32, 64, 128, 256), (1, 2, 4, 8)):
        text = TEXT.replace("BM = 64", f"BM = {tile}").replace("SPLIT = 1", f"SPLIT = {split}")
        timings = tuple(Timing(case.name, 100 + 100 * rng.random()) for case in cases)
        evaluation = Evaluation(Verdict.ACCEPT, "", geomean(t.us for t in timings), timings, target="sim")
        kernel = Kernel("cuda", {"kernel.cu": text})
        trials.append(Trial(f"{len(trials):05d}", Origin.SEED, kernel=kernel, evaluation=evaluation))
    population = paired(tuple(trials))
    started = time.process_time()
    combine_best(replace(PROBLEM, benchmarks=cases), population, space("tune", population, trials[0]))
    assert time.process_time() - started < 10
