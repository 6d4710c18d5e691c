"""`designer=tune` and `designer=random`: values by TPE and by chance."""

import logging
from contextlib import suppress
from statistics import median

import pytest
from landscapes import GEMM, PLAIN, PROBLEM, SOFTMAX, best, gemm, run, seeds, softmax

from ksflow.errors import StageError
from ksflow.protocols import Designer
from ksflow.records import Plan, Population, Verdict
from ksflow.source.tunables import counting, tunables, values
from ksflow.stages.designer.random import RandomDesigner
from ksflow.stages.designer.rules import Rules
from ksflow.stages.designer.tune import Tpe


def plan(designer: Designer, population: Population, base: str = "") -> Plan:
    chosen = population.ranked[0].id
    return designer(PROBLEM, population, population.choose(base or chosen, chosen, ""), ())


@pytest.mark.parametrize("designer", [Tpe(seed=3), RandomDesigner(seed=3)])
def test_five_different_untried_experiments_three_of_them_picked(designer: Designer) -> None:
    population = run(gemm, seeds(gemm, PLAIN, GEMM), designer, 15)
    made = plan(designer, population)
    assert len({tuple(sorted(e.changes.items())) for e in made.experiments}) == 5
    assert len(made.picked) == 3
    texts = [trial.kernel.main for trial in population.trials if trial.kernel]
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize("designer", [Tpe(seed=3), RandomDesigner(seed=3)])
def test_the_same_population_gives_the_same_plan(designer: Designer) -> None:
    population = run(gemm, seeds(gemm, GEMM), designer, 12)
    assert plan(designer, population) == plan(designer, population)


def test_tpe_beats_chance_on_a_softmax() -> None:
    start = seeds(softmax, SOFTMAX)
    tpe = median(best(run(softmax, start, Tpe(seed=seed), 30)) for seed in range(5))
    chance = median(best(run(softmax, start, RandomDesigner(seed=seed), 30)) for seed in range(5))
    assert tpe < chance


def test_a_small_space_is_used_up_then_refused() -> None:
    text = "int UNROLL = 1;  // tune: 1 2 4\n"
    constant = run(lambda _: softmax(FIXED), seeds(lambda _: softmax(FIXED), text), Tpe(), 2)
    for designer in (Tpe(), RandomDesigner()):
        with pytest.raises(StageError, match="every configuration"):
            plan(designer, constant)


FIXED = {"SIMD": "0", "POLY": "0", "DEGREE": "7", "FUSE": "0", "VEC": "4", "UNROLL": "1", "STREAM": "0"}


@pytest.mark.parametrize("designer", [Tpe(), RandomDesigner()])
def test_a_base_without_tunables_is_refused(designer: Designer) -> None:
    with pytest.raises(StageError, match="declares no tunables"):
        plan(designer, seeds(gemm, PLAIN, GEMM), "00000")


def test_a_long_run_is_remembered_in_part() -> None:
    population = run(gemm, seeds(gemm, GEMM), RandomDesigner(), 60)
    assert len(plan(Tpe(memory=20), population).experiments) == 5


def test_optuna_is_quiet(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        plan(Tpe(), seeds(gemm, GEMM))
    assert not caplog.records


FORMS = """
int FORM = plain;  // tune: plain matrix | form: of the loops
int X = 1;         // tune: 1 2
int MT = 1;        // tune: 1 2 3 4 | tile: tiles of the matrix unit | if FORM == matrix
"""


@pytest.mark.parametrize("designer", [Tpe(seed=3), RandomDesigner(seed=3), Rules()])
def test_what_the_form_does_not_read_is_not_varied(designer: Designer) -> None:
    def landscape(c: dict[str, str]) -> tuple[Verdict, float]:
        return Verdict.ACCEPT, 1000.0 / int(c["X"]) - (100.0 * int(c["MT"]) if c["FORM"] == "matrix" else 0)

    population = seeds(landscape, FORMS)
    with suppress(StageError):  # until nothing is left, or promises
        for _ in range(20):
            population = run(landscape, population, designer, 1)
    configs = [values(trial.kernel.main) for trial in population.trials if trial.kernel]
    counted = [tuple(counting(tunables(FORMS), config).items()) for config in configs]
    assert len(set(counted)) == len(counted) <= 2 + 8
    assert any(config["FORM"] == "matrix" for config in configs)
    if not isinstance(designer, Rules):
        assert len(counted) == 2 + 8
