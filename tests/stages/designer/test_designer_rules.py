"""`designer=rules` on simulated landscapes: it gains, it never repeats itself, and it is general."""

from dataclasses import replace
from random import Random
from statistics import median

import pytest
from conftest import paired
from landscapes import GEMM, PLAIN, PROBLEM, SOFTMAX, Landscape, best, gemm, run, seeds, softmax

from ksflow.errors import StageError
from ksflow.home import shipped_path
from ksflow.kernels.source.tunables import Tunable, tunables, values
from ksflow.records import Evaluation, Kernel, Plan, Population, Verdict, geomean
from ksflow.search.moves import catalogue
from ksflow.stages.designer.random import RandomDesigner
from ksflow.stages.designer.rules import RulesDesigner
from ksflow.stages.designer.tune import Tpe

EVALUATIONS = 42


@pytest.fixture(scope="module")
def searched() -> Population:
    """One search on the matrix multiply, looked at from several sides."""
    return run(gemm, seeds(gemm, PLAIN, GEMM), RulesDesigner(), EVALUATIONS)


def plan(population: Population, base: str = "") -> Plan:
    chosen = population.choose(base or population.ranked[0].id, population.ranked[-1].id, "")
    return RulesDesigner()(PROBLEM, population, chosen, ())


@pytest.mark.slow
def test_it_reaches_the_best_matrix_multiply_from_the_definition() -> None:
    """In the mean of four machines, on each of which other kernels are a little lucky."""

    def machine(number: int) -> Landscape:
        def judge(config: dict[str, str]) -> tuple[Verdict, float]:
            verdict, time = gemm(config)
            return verdict, time * Random(f"{number}{sorted(config.items())}").gauss(1, 0.02)

        return judge

    found = (run(machine(n), seeds(machine(n), PLAIN, GEMM), RulesDesigner(seed=n), EVALUATIONS) for n in range(4))
    assert geomean(map(best, found)) < 1.15 * 133


def test_the_same_catalogue_gains_on_a_softmax_that_declares_few_kinds() -> None:
    assert best(run(softmax, seeds(softmax, SOFTMAX), RulesDesigner(), 24)) < 1.05 * 187


@pytest.mark.slow
def test_it_beats_tpe_and_chance(searched: Population) -> None:
    start = seeds(gemm, PLAIN, GEMM)
    tpe = median(best(run(gemm, start, Tpe(seed=seed), EVALUATIONS)) for seed in range(3))
    chance = median(best(run(gemm, start, RandomDesigner(seed=seed), EVALUATIONS)) for seed in range(5))
    assert best(searched) < tpe < chance


def test_no_kernel_is_proposed_twice(searched: Population) -> None:
    texts = [trial.kernel.main for trial in searched.trials if trial.kernel]
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize("done", [2, 5, 11, 29])
def test_it_goes_on_from_any_round_as_if_never_interrupted(searched: Population, done: int) -> None:
    assert run(gemm, paired(searched.trials[:done]), RulesDesigner(), 3).trials == searched.trials[: done + 3]


def test_it_goes_on_from_the_middle_of_a_round(searched: Population) -> None:
    texts = [t.kernel.main for t in run(gemm, paired(searched.trials[:12]), RulesDesigner(), 6).trials if t.kernel]
    assert len(set(texts)) == 18


def test_a_plan_has_ten_avenues_five_experiments_and_picks_three(searched: Population) -> None:
    made = plan(searched)
    assert len(made.avenues) == 10
    assert len(made.experiments) == 5
    assert len(made.picked) == 3
    assert len({tuple(sorted(e.changes.items())) for e in made.experiments}) == 5


def test_experiments_say_what_changes_in_the_kernels_own_words() -> None:
    first = plan(seeds(gemm, GEMM)).experiments[0]
    docs = {tunable.name: tunable.doc for tunable in tunables(GEMM)}
    for name, value in first.changes.items():
        assert f"{name} {values(GEMM)[name]} -> {value} ({docs[name]})" in first.description
        assert f"{name}={value}" in first.rubric
    assert first.gain_percent[0] < first.gain_percent[1]


def test_a_base_without_tunables_is_refused_with_a_way_out() -> None:
    population = seeds(gemm, PLAIN, GEMM)
    with pytest.raises(StageError, match=r"declares no tunables.*selector=fastest"):
        plan(population, "00000")
    given = Kernel("python", {"baseline.py": "custom_kernel = sum\n"})
    with pytest.raises(StageError, match=r"no kernel to start from: write .*`problem show`.*seed_kernels=.*llm=NAME"):
        plan(paired([baseline := replace(population.trials[0], kernel=given)]), "00000")
    wrong = replace(population.trials[1], evaluation=Evaluation(Verdict.INCORRECT, "off by 3"))
    with pytest.raises(StageError, match=r"your start kernel 00001 was rejected: reject-incorrect: off by 3$"):
        plan(Population((baseline, wrong)), "00000")


def test_an_exhausted_space_says_so() -> None:
    text = "int DOT = fp32;  // tune: fp32 bf16\n"
    population = run(lambda _: gemm({**BASE}), seeds(lambda _: gemm({**BASE}), text), RulesDesigner(), 1)
    with pytest.raises(StageError, match="every configuration"):
        plan(population)


def test_it_stops_when_nothing_promises_and_says_so() -> None:
    """Long before all is tried, with the best found."""

    def judge(c: dict[str, str]) -> tuple[Verdict, float]:
        apart = abs(int(c["UNROLL"]).bit_length() - 2) + abs(int(c["MR"]).bit_length() - 3)
        return Verdict.ACCEPT, 1000 / int(c["VL"]) * (1 + apart / 3)

    rows = (
        "VL = 16;  // tune: 16 32 64 128 | vector",
        "UNROLL = 1;  // tune: 1 2 4 8 | unroll",
        "MR = 1;  // tune: 1 2 4 8",
    )
    population = seeds(judge, "".join(f"int {row}\n" for row in rows))
    said = ""
    while not said and len(population.trials) < 64:
        try:
            population = run(judge, population, RulesDesigner(), 3)
        except StageError as error:
            said = error.reason
    assert said.startswith("nothing promises a gain: of ")
    assert len(population.trials) < 32
    assert values(population.ranked[0].kernel.main) == {"VL": "128", "UNROLL": "2", "MR": "4"}


BASE = {"FORM": "naive", "DECODE": "table", "DOT": "fp32", "SCALE": "block", "VL": "16", "MR": "1", "NV": "1"}


def test_experiments_that_were_never_written_are_not_proposed_again() -> None:
    population = seeds(gemm, GEMM)
    first = run(gemm, population, RulesDesigner(), 3)
    lost = [replace(t, kernel=None, evaluation=None, failure="writer: died") for t in first.trials[1:]]
    again = run(gemm, paired((*population.trials, *lost)), RulesDesigner(), 3)
    tried = [tuple(sorted(t.experiment.changes.items())) for t in again.trials if t.experiment]
    assert len(set(tried)) == len(tried) == 6


def test_kinds_are_guessed_from_gpu_names() -> None:
    names = {"BLOCK_M": "block", "num_warps": "tile", "NUM_STAGES": "prefetch", "VEC": "vector", "HAVE_IT": "other"}
    for name, kind in names.items():
        assert catalogue().kind(Tunable(name, "1", ("1", "2"))).name == kind


def test_a_form_is_tried_though_it_reads_many_tunables_that_the_base_does_not() -> None:
    """What the shipped seed states for them, where its plain form reads none, is no risk of its own."""
    text = (shipped_path("seeds") / "fp8_gemm/cpu/03_tiles.cpp").read_text()

    def landscape(config: dict[str, str]) -> tuple[Verdict, float]:
        if config["FORM"] == "amx":
            return Verdict.COMPILE, 0
        return Verdict.ACCEPT, 60_000.0 if config["FORM"] == "naive" else 800.0 / int(config["NV"])

    found = run(landscape, seeds(landscape, text), RulesDesigner(), 20)
    assert len(found.trials) == 21
    assert best(found) < 800
