"""The selectors that need no model."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from conftest import paired

from ksflow.errors import StageError
from ksflow.protocols import Selector
from ksflow.records import Evaluation, Evidence, Kernel, Origin, Population, Problem, Selection, Timing, Trial, Verdict
from ksflow.stages.designer.random import RandomDesigner
from ksflow.stages.selector.fastest import Fastest
from ksflow.stages.selector.islands import Islands
from ksflow.stages.selector.map_elites import MapElites
from ksflow.stages.selector.tournament import Tournament

PROBLEM = Problem("toy", "", "", "", "", "", ("cpp",), (), (), (), (), ())
SELECTORS = [Fastest(), Tournament(seed=1), Tournament(size=1, seed=1), Islands(seed=1), MapElites(seed=1)]
WIDE = "int {} = {};  // tune: " + " ".join(str(n) for n in range(20)) + "\n"


def population(*kernels: tuple[str, float | None]) -> Population:
    """Trials in order; no time means that the kernel was wrong."""
    return paired(tuple(trial(index, *kernel) for index, kernel in enumerate(kernels)))


def trial(index: int, text: str, us: float | None) -> Trial:
    evaluation = Evaluation(Verdict.ACCEPT, "", us, (Timing("c", us),)) if us else Evaluation(Verdict.INCORRECT, "off")
    return Trial(f"{index:05d}", Origin.SEED, kernel=Kernel("cpp", {"k.cpp": text}), evaluation=evaluation)


def small(value: int) -> str:
    return f"int S = {value};  // tune: 1 2 3\n"


def wide(value: int) -> str:
    return WIDE.format("W", value)


def test_fastest_takes_the_best_that_declares_tunables() -> None:
    chosen = Fastest()(PROBLEM, population(("int x;", 1), (small(1), 9), (small(2), 5)))
    assert (chosen.base.id, chosen.reference.id) == ("00002", "00000")
    assert "5.0 us" in chosen.rationale


def test_a_slow_seed_with_much_to_explore_gets_its_turn() -> None:
    assert Fastest()(PROBLEM, population((small(1), 5), (wide(0), 50))).base.id == "00001"


def test_the_turn_ends_when_exploring_does_not_help() -> None:
    tried = [(wide(value), 50.0 + value) for value in range(15)]
    assert Fastest()(PROBLEM, population((small(1), 5), *tried)).base.id == "00000"


def test_failures_make_it_turn_elsewhere_too() -> None:
    failed = [(wide(value), None) for value in range(1, 19)]
    assert Fastest()(PROBLEM, population((small(1), 5), (wide(0), 50), *failed)).base.id == "00000"


def test_an_exhausted_family_is_left_alone() -> None:
    used_up = [(small(value), 4.0 + value) for value in (1, 2, 3)]
    assert Fastest()(PROBLEM, population(*used_up, (wide(0), 5000))).base.id == "00003"


def test_a_family_is_left_alone_when_designers_have_nothing_to_try_in_it() -> None:
    """What `require` rules out and what has no effect is no selection: to go on with it would end the search."""
    ruled = [(f"{small(value)}// require: S <= 2\n", 4.0 + value) for value in (1, 2)]
    assert Fastest()(PROBLEM, population(*ruled, (wide(0), 5000))).base.id == "00002"
    same = "int S = {};  // tune: 1 2\nint IDLE = {};  // tune: 1 2 3\n"
    tried = [(same.format(s, idle), 4.0 + s) for s, idle in ((1, 1), (1, 2), (1, 3), (2, 1))]
    known = population(*tried, (wide(0), 5000))
    made = [
        replace(t, evaluation=replace(t.evaluation, evidence=Evidence(artefact=f"S{t.score_us}"))) for t in known.trials
    ]  # type: ignore[type-var]
    idle = paired(tuple(made))
    with pytest.raises(StageError, match="every configuration"):
        RandomDesigner()(PROBLEM, idle, idle.choose("00000", "00000", ""), ())
    assert Fastest()(PROBLEM, idle).base.id == "00004"


def test_what_has_an_effect_beside_other_values_is_not_without_one() -> None:
    """SPREAD changes nothing where S is 1, which is seen first, and something where S is 2."""
    text = "int S = {};  // tune: 1 2\nint SPREAD = {};  // tune: 1 2 3\n"
    code = {(1, 1): "a", (1, 2): "a", (1, 3): "a", (2, 1): "b", (2, 2): "c"}
    known = population(*((text.format(*values), 4.0) for values in code))
    made = tuple(
        replace(trial, evaluation=replace(trial.evaluation, evidence=Evidence(artefact=artefact)))  # type: ignore[type-var]
        for trial, artefact in zip(known.trials, code.values(), strict=True)
    )
    tried = paired(made)
    plan = RandomDesigner()(PROBLEM, tried, tried.choose("00000", "00000", ""), ())
    assert [plan.experiments[index].changes for index in plan.picked] == [{"S": "2", "SPREAD": "3"}]


def test_many_texts_of_one_configuration_exhaust_nothing() -> None:
    """A model may write one with the same values again and again."""
    same = [(f"{small(1)}// by hand, {number}\n", 4.0) for number in range(9)]
    assert Fastest()(PROBLEM, population(*same, ("int x;", 1))).base.id == "00000"


def test_without_tunables_the_fastest_is_chosen() -> None:
    selection = Fastest()(PROBLEM, population(("int x;", 7), ("int y;", 3)))
    assert (selection.base.id, selection.reference.id) == ("00001", "00000")


def test_the_reference_differs_in_more_than_one_value() -> None:
    text = "int A = {};  // tune: 1 2 3\nint B = {};  // tune: 1 2 3\n"
    near, far = text.format(1, 2), text.format(2, 2)
    selection = Fastest()(PROBLEM, population((text.format(1, 1), 5), (near, 6), (far, 7)))
    assert (selection.base.id, selection.reference.id) == ("00000", "00002")


@pytest.mark.parametrize("selector", SELECTORS)
def test_one_kernel_is_its_own_reference(selector: Selector) -> None:
    selection = selector(PROBLEM, population((small(1), 5)))
    assert selection.base is selection.reference


@pytest.mark.parametrize("selector", SELECTORS)
def test_only_accepted_kernels_are_chosen_and_always_the_same(selector: Selector) -> None:
    trials = population(*((wide(value), None if value % 2 else 5.0 + value) for value in range(12)), ("int x;", 1))
    selection = selector(PROBLEM, trials)
    assert selection.base.score_us
    assert selection.reference.score_us
    assert selection == selector(PROBLEM, trials)


def test_a_larger_tournament_presses_harder() -> None:
    trials = population(*((wide(value), 5.0 + value) for value in range(12)))
    wins = {
        size: Counter(Tournament(size, seed)(PROBLEM, trials).base.id for seed in range(200))["00000"]
        for size in (1, 6)
    }
    assert wins[1] < 40 < wins[6]


def test_a_tournament_needs_an_entrant() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Tournament(0)


def grow(selector: Islands, rounds: int) -> tuple[Population, list[Selection]]:
    """A search in which each child is a little faster or slower than its base, as its number has it."""
    trials = list(population((wide(0), 50.0), (wide(1), 50.0)).trials)
    selections = []
    for number in range(2, rounds + 2):
        selection = selector(PROBLEM, paired(tuple(trials)))
        selections.append(selection)
        us = (selection.base.score_us or 0.0) * (0.99 if number % 3 else 1.02)
        parents = tuple(dict.fromkeys((selection.base.id, selection.reference.id)))
        trials.append(replace(trial(number, wide(number), us), origin=Origin.EXPERIMENT, parents=parents))
    return paired(tuple(trials)), selections


@pytest.mark.slow
def test_islands_search_apart_and_a_migrant_is_the_only_base_from_elsewhere() -> None:
    _, selections = grow(Islands(3, every=10, seed=4), 80)
    told = [selection.rationale for selection in selections]
    assert {rationale.split(" of ")[0] for rationale in told} == {"island 0", "island 1", "island 2"}
    known, alone = grow(Islands(3, every=1000, seed=4), 80)
    assert not any("migrant" in selection.rationale for selection in alone)
    homes = Islands(3)._homes(list(known.trials), known)
    bred = [selection for selection in alone if homes[selection.base.id] is not None]
    assert len(bred) > 40
    assert all(homes[selection.base.id] == homes[selection.reference.id] for selection in bred)
    moved = [selection for selection in selections if "migrant" in selection.rationale]
    assert 0 < len(moved) < len(selections) / 2


@pytest.mark.slow
def test_a_migrant_is_the_best_of_the_neighbour_when_migration_was_due() -> None:
    known, selections = grow(Islands(2, every=20, size=50, seed=2), 60)
    homes = Islands(2)._homes(list(known.trials), known)
    seen = 0
    for number, selection in enumerate(selections, 2):
        if "migrant" in selection.rationale:
            there = [t for t in known.trials[: number // 20 * 20] if homes[t.id] == homes[selection.base.id]]
            assert selection.base.id == min(there, key=lambda t: (t.score_us, t.id)).id
            seen += 1
    assert seen


def test_one_island_has_no_neighbour() -> None:
    assert not any("migrant" in selection.rationale for selection in grow(Islands(1, every=1), 20)[1])


def form(kind: str, value: int) -> str:
    return f"int F = {kind};  // tune: a b c | form: which loop is outside\nint S = {value};  // tune: 1 2 3 4 5\n"


def test_every_kind_of_kernel_keeps_its_best_and_gets_its_turn() -> None:
    trials = population(
        (form("a", 1), 5), (form("a", 2), 4), (form("b", 1), 90), (form("b", 2), 80), (form("c", 1), None)
    )
    chosen = [MapElites(seed=seed)(PROBLEM, trials) for seed in range(30)]
    assert {(selection.base.id, selection.reference.id) for selection in chosen} == {
        ("00001", "00003"),
        ("00003", "00001"),
    }
    assert "F=a S" in next(selection.rationale for selection in chosen if selection.base.id == "00001")
    coarse = MapElites(["language"])(PROBLEM, trials)
    assert (coarse.base.id, coarse.reference.id) == ("00001", "00001")


def test_what_the_source_shows_tells_kinds_apart() -> None:
    packed = "#include <immintrin.h>\nvoid f() { __m512 x = _mm512_setzero_ps(); }\n"
    trials = population(("int x;", 5), ("int y;", 4), (packed, 9))
    chosen = {MapElites(["features"], seed)(PROBLEM, trials).base.id for seed in range(20)}
    assert chosen == {"00001", "00002"}


@pytest.mark.parametrize("make_selector", [Islands, MapElites, partial(Tournament, 1), Tournament])
def test_what_is_used_up_is_no_base(make_selector: Callable[..., Selector]) -> None:
    used_up = [(small(value), 4.0 + value) for value in (1, 2, 3)]
    trials = population(*used_up, (wide(0), 5000))
    assert {make_selector(seed=seed)(PROBLEM, trials).base.id for seed in range(20)} == {"00003"}


@pytest.mark.parametrize("make", [lambda: Islands(0), lambda: MapElites([]), lambda: MapElites(["speed"])])
def test_what_makes_no_sense_is_refused(make: Callable[[], Selector]) -> None:
    with pytest.raises(ValueError, match="must"):
        make()


def test_a_written_structure_promises_what_the_one_it_was_written_from_left_untried() -> None:
    """A seed with the same tunables has its whole turn; a rewrite of a tuned kernel only where it is faster."""
    tuned = [trial(index, wide(index), 50.0 - index) for index in range(20)]
    other = trial(20, f"int y; {wide(19)}", 60.0)
    seeded = paired((*tuned[:19], other))
    assert Fastest()(PROBLEM, seeded).base.id == "00020"
    written = paired((*tuned[:19], replace(other, origin=Origin.EXPERIMENT, parents=("00018",))))
    assert Fastest()(PROBLEM, written).base.id == "00018"
    faster = replace(trial(20, f"int y; {wide(19)}", 20.0), origin=Origin.EXPERIMENT, parents=("00018",))
    assert Fastest()(PROBLEM, paired((*tuned[:19], faster))).base.id == "00020"
