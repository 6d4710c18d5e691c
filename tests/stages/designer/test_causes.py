"""What failed is not tried again: causes of any number of values, told apart by who differs; lessons of other runs."""

import pytest
from landscapes import GEMM, PLAIN, PROBLEM, gemm, run, seeds

from ksflow.kernels.source.causes import Failures, Item, Point
from ksflow.kernels.source.tunables import values
from ksflow.protocols import Designer
from ksflow.records import Experiment, Material, Note, Plan, Population, Problem, Selection, Verdict, portfolio
from ksflow.search.space import space
from ksflow.stages.designer.rules import RulesDesigner
from ksflow.stages.designer.tune import Tpe
from ksflow.stages.digester.rules import RulesDigester as Digester

BASE = dict.fromkeys("ABCDEF", "0")


def tried(accepted: list[str], failed: dict[str, str]) -> Failures:
    """Kernels by the tunables that are 1 in them, and what was said of those that failed."""
    points = [Point(on or "base", {**BASE, **dict.fromkeys(on, "1")}, 5.0, False) for on in accepted]
    said = [Point(on, {**BASE, **dict.fromkeys(on, "1")}, None, True, reason=why) for on, why in failed.items()]
    return Failures([*points, *said])


def on(names: str) -> dict[str, str]:
    return {**BASE, **dict.fromkeys(names, "1")}


@pytest.mark.parametrize("cause", ["A", "AB", "ABC", "ABCD"])
def test_a_cause_of_any_number_of_values_is_found_and_left_alone(cause: str) -> None:
    """Every kernel with one value less was accepted; the fifth or sixth value made no difference."""
    accepted = ["", "E", "F", *(cause.replace(name, "") for name in cause)]
    found = tried(accepted, dict.fromkeys([cause, f"{cause}E", f"{cause}F"], "off by 0.3"))
    assert found.bars(on(f"{cause}EF"))
    assert not any(found.bars(on(f"{cause.replace(name, '')}EF")) for name in cause)
    assert [one.values for one in found.causes()] == [frozenset((name, "1") for name in cause)]


def test_a_single_difference_from_an_accepted_kernel_convicts() -> None:
    found = tried(["", "BCD"], {"ABCD": "crashed"})
    assert found.risk(on("ABC")) > found.risk(on("BCDEF"))
    assert not found.bars(on("ABC"))  # one failure alone closes nothing


def test_values_that_are_new_to_each_other_are_a_risk_where_pairs_have_failed() -> None:
    accepted, failed = ["", "A", "B", "C", "D"], {"AB": "AB clash", "CD": "CD clash"}
    assert tried(accepted, failed).risk(on("ADEF")) > tried(accepted, failed).risk(on("AD")) > 0
    assert tried(accepted, {}).risk(on("ADEF")) == 0


def test_the_same_wrong_answer_is_the_same_cause() -> None:
    found = tried([""], {"AB": "c[3] is 7.25, not 7.5", "AC": "c[3] is 7.25, not 7.5", "BC": "c[9] is 1.5, not 1.0"})
    assert found.risk(on("A")) > found.risk(on("B")) == found.risk(on("C"))


def test_the_cause_of_one_wrong_answer_is_in_all_that_have_it() -> None:
    """Of four kernels three had B, C and D, too, with which another answer was wrong in the same words."""
    same = dict.fromkeys(["ABCD", "ABCDE", "ABCDF", "AE"], "c[3] is 7.25, not 7.5")
    found = tried(["", "E", "F"], {**same, "BCD": "c[9] is 1.5, not 1.0"})
    assert found.bars(on("AF"))
    assert not found.bars(on("BF"))


def test_no_two_experiments_of_a_round_would_fail_of_the_same_suspect() -> None:
    def design(problem: Problem, population: Population, selection: Selection, notes: tuple[Note, ...]) -> Plan:
        plan = RulesDesigner()(problem, population, selection, notes)
        around = space("", population, selection.base)
        found = [
            around.failures.suspect_values({**around.base, **experiment.changes}) for experiment in plan.experiments
        ]
        suspects.append([values for values in found if values])
        return plan

    suspects: list[list[frozenset[Item]]] = []
    run(gemm, seeds(gemm, PLAIN, GEMM), design, 40)
    assert any(suspects)
    assert all(len(set(found)) == len(found) for found in suspects)


def test_where_only_a_suspect_is_left_a_round_has_fewer_experiments() -> None:
    def judge(config: dict[str, str]) -> tuple[Verdict, float]:
        return (Verdict.INCORRECT, 0) if config["SCALE"] == "operand" else (Verdict.ACCEPT, 9.0)

    def text(scale: str, rows: int) -> str:
        return f"int SCALE = {scale};  // tune: block operand\nint MR = {rows};  // tune: 1 2 4\n"

    here = seeds(judge, text("block", 1), text("block", 2), text("operand", 2))
    plan = RulesDesigner()(PROBLEM, here, here.choose("00000", "00000", ""), ())
    assert sorted("SCALE" in experiment.changes for experiment in plan.experiments) == [False, True]


def test_other_words_are_another_cause() -> None:
    found = tried(["", "C"], {"A": "off by 0.3", "B": "does not compile", "AC": "off by 0.1"})
    assert [sorted(name for name, _ in cause.values) for cause in found.causes()] == [["A"], ["B"]]


def triple(config: dict[str, str]) -> tuple[Verdict, float]:
    """Three values that are right two by two."""
    wrong = config["FORM"] in ("outer", "matrix") and config["SCALE"] == "operand" and config["DOT"] == "bf16"
    return (Verdict.INCORRECT, 0) if wrong else gemm({**config, "SCALE": "block"})


@pytest.mark.parametrize("designer", [RulesDesigner(), Tpe(seed=1)])
def test_no_designer_goes_on_trying_what_failed(designer: Designer) -> None:
    """Two causes here have the same words: both SCALE and NV are wrong with bf16."""
    searched = run(triple, seeds(triple, PLAIN, GEMM), designer, 60)
    configs = [(t, values(t.kernel.main)) for t in searched.trials if t.kernel and values(t.kernel.main)]
    alike = [
        t for t, c in configs if c["SCALE"] == "operand" and c["DOT"] == "bf16" and c["FORM"] in ("outer", "matrix")
    ]
    assert len(alike) <= 4


def test_lessons_of_another_run_are_read() -> None:
    """What never worked there is not tried here."""

    def judge(config: dict[str, str]) -> tuple[Verdict, float]:
        return (Verdict.INCORRECT, 0) if config["SCALE"] == "operand" else (Verdict.ACCEPT, 9.0)

    def text(scale: str, rows: int) -> str:
        return f"int SCALE = {scale};  // tune: block operand\nint MR = {rows};  // tune: 1 2 4\n"

    there = seeds(judge, text("block", 1), *(text("operand", rows) for rows in (1, 2, 4)))
    notes = Digester()(PROBLEM, Material((), there))
    here = seeds(judge, text("block", 1))
    untaught, taught = (RulesDesigner()(PROBLEM, here, here.choose("00000", "00000", ""), told) for told in ((), notes))
    assert any("SCALE" in experiment.changes for experiment in untaught.experiments)
    assert [experiment.changes for experiment in taught.experiments] == [{"MR": "4"}, {"MR": "2"}]


def test_risk_counts_when_three_are_picked() -> None:
    foreseen = ((-41.0, 300.0, 90.0), (5.0, 20.0, 30.0), (0.0, 10.0, 10.0), (1.0, 15.0, 20.0))
    four = tuple(Experiment("", "", (low, high), innovation) for low, high, innovation in foreseen)
    assert portfolio(four) == (0, 1, 3)
    assert portfolio(four, [1.0, 0.0, 0.0, 0.0]) == (1, 3, 2)
