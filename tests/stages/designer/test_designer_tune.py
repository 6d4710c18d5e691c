"""`designer=tune` and `designer=random`: values by TPE and by chance."""

import logging
from contextlib import suppress
from dataclasses import replace
from statistics import median

import pytest
from landscapes import GEMM, PLAIN, PROBLEM, SOFTMAX, best, gemm, run, seeds, softmax

from ksflow.errors import StageError
from ksflow.kernels.source.tunables import effective_values, tunables, values
from ksflow.protocols import Designer
from ksflow.records import Evidence, Material, Plan, Population, Verdict
from ksflow.search.space import space
from ksflow.stages.designer.random import RandomDesigner
from ksflow.stages.designer.rules import RulesDesigner
from ksflow.stages.designer.tune import Tpe
from ksflow.stages.digester.rules import RulesDigester as Digester
from ksflow.stages.selector.fastest import Fastest


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


@pytest.mark.slow
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


@pytest.mark.parametrize(("cores", "values"), [(1, set()), (4, {"1", "2"})])
@pytest.mark.parametrize("designer", [Tpe(), RandomDesigner(), RulesDesigner()])
def test_threads_are_varied_with_several_cores(designer: Designer, cores: int, values: set[str]) -> None:
    text = "int A = 1;  // tune: 1 2 4\nint T = NUM_THREADS;  // tune: NUM_THREADS 1 2 4 8 | threads: of a team\n"
    (seed,) = seeds(lambda config: (Verdict.ACCEPT, 900.0 / int(config["A"])), text).trials
    assert seed.evaluation
    evidence = Evidence(cores={"judge": [0], "box": [*range(1, cores + 1)]})
    population = Population((replace(seed, evaluation=replace(seed.evaluation, evidence=evidence)),))
    made = plan(designer, population)
    assert {experiment.changes["T"] for experiment in made.experiments if "T" in experiment.changes} == values


def test_optuna_is_quiet(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        plan(Tpe(), seeds(gemm, GEMM))
    assert not caplog.records


TWINS = ("int f(); // a\nint A = 1;  // tune: 1 2 4\n", "int g(); // b\nint A = 1;  // tune: 1 2 4\n")


@pytest.mark.parametrize("designer", [Tpe(), RandomDesigner(), RulesDesigner()])
def test_what_was_tried_in_one_structure_is_open_in_another_with_the_same_tunables(designer: Designer) -> None:
    def judge(config: dict[str, str]) -> tuple[Verdict, float]:
        return Verdict.ACCEPT, 900.0 / int(config["A"])

    start = seeds(judge, *TWINS)
    one = run(judge, start, designer, 2, lambda problem, known: known.choose("00000", "00000", ""))
    (base,) = (trial for trial in one.trials if trial.id == "00001")
    assert {experiment.changes["A"] for experiment in plan(designer, one, "00001").experiments} == {"2", "4"}
    assert not space("", one, one.trials[0]).has_untried
    assert [point.id for point in space("", one, base).points] == ["00001"]
    both = run(judge, one, designer, 2, Fastest())
    assert {t.kernel.main.partition("(")[0] for t in both.trials[4:] if t.kernel} == {"int g"}


def test_what_fails_in_one_structure_is_tried_in_another() -> None:
    """The values that an inherited note says never worked did so in the structure that it names."""

    def judge(config: dict[str, str]) -> tuple[Verdict, float]:
        return (Verdict.ACCEPT, 9.0) if config["A"] == "1" else (Verdict.INCORRECT, 0)

    text = "int {}(); int B = {};  // tune: 1 2 3\nint A = {};  // tune: 1 2\n"
    there = seeds(judge, text.format("f", 1, 1), *(text.format("f", b, 2) for b in (1, 2, 3)))
    notes = Digester()(PROBLEM, Material((), there))
    same, other = (seeds(judge, text.format(name, 1, 1)) for name in "fg")
    barred, open_ = (
        space("", known, known.trials[0], notes).failures.bars({"A": "2", "B": "1"}) for known in (same, other)
    )
    assert (barred, open_) == (True, False)


FORMS = """
int FORM = plain;  // tune: plain matrix | form: of the loops
int X = 1;         // tune: 1 2
int MT = 1;        // tune: 1 2 3 4 | tile: tiles of the matrix unit | if FORM == matrix
"""


@pytest.mark.parametrize("designer", [Tpe(seed=3), RandomDesigner(seed=3), RulesDesigner()])
def test_what_the_form_does_not_read_is_not_varied(designer: Designer) -> None:
    def landscape(c: dict[str, str]) -> tuple[Verdict, float]:
        return Verdict.ACCEPT, 1000.0 / int(c["X"]) - (100.0 * int(c["MT"]) if c["FORM"] == "matrix" else 0)

    population = seeds(landscape, FORMS)
    with suppress(StageError):  # until nothing is left, or promises
        for _ in range(20):
            population = run(landscape, population, designer, 1)
    configs = [values(trial.kernel.main) for trial in population.trials if trial.kernel]
    counted = [tuple(effective_values(tunables(FORMS), config).items()) for config in configs]
    assert len(set(counted)) == len(counted) <= 2 + 8
    assert any(config["FORM"] == "matrix" for config in configs)
    if not isinstance(designer, RulesDesigner):
        assert len(counted) == 2 + 8
