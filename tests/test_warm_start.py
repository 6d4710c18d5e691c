"""Starting from another run: its winner with both results on record, its notes in the words of the new target."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from conftest import accepted, draft, kernel, over, plant, rejected

from ksflow.config.warm_start import warm_start
from ksflow.errors import ConfigError, LineageError
from ksflow.kernels.problem.loader import load
from ksflow.lineage import Lineage, record
from ksflow.records import Note, Origin, Problem, Status, Target, Trial

CPU = Target("cpu", "cpu", "a chip")
H100 = Target("h100", "gpu", "NVIDIA H100 SXM", march="sm_90a")
HERE = "t"
"""What `conftest.accepted` was judged on."""


@pytest.fixture(scope="module")
def lineage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lineage]:
    """Read by every test here, and changed by none."""
    made = Lineage(tmp_path_factory.mktemp("start") / "lineage.git", "toy", clock=lambda: 1_700_000_000)
    yield made
    made.close()


@pytest.fixture(scope="module")
def opened(lineage: Lineage) -> Callable[..., Lineage]:
    """A finished run: 00001 the seed, 00002 twice as fast, 00003 wrong; and what was learnt."""
    seed = plant(lineage, "int a;\n", 100.0)
    for text, evaluation in (("int b;\n", over("00001", 2.0, 50.0)), ("int c;\n", rejected())):
        (trial,) = lineage.dispatch([draft(seed.id)])
        done = replace(trial, kernel=kernel(text), evaluation=evaluation)
        lineage.write(replace(done, evaluation=None))
        lineage.evaluate(done)
    lineage.learn(
        (
            Note("Unrolling", "00002 beat 00001 by 100 % at 65536 rows.", ("00002", "00001"), (HERE,), Status.MEASURED),
            Note("Dead", "00003 is wrong.", ("00003",), (HERE,), Status.MEASURED, closes=("00003",)),
            Note("Lines", "64 bytes.", ("manual",), ("cpu",)),
            Note("Tiles", "16 rows of a tile register.", ("manual",), ("h100",)),
            Note("Other", "For another problem.", ("00001",), (), Status.MEASURED, ("fp8_gemm",)),
        )
    )
    return partial(Lineage, lineage.store.path)


@pytest.fixture(scope="module")
def softmax() -> Problem:
    return load("softmax", target=CPU)


def test_the_winner_comes_as_a_seed_that_names_its_branch_and_result(opened, lineage, softmax, tmp_path: Path) -> None:
    start = warm_start(opened, "toy/main", softmax, CPU, HERE)
    (seed,) = start.seeds
    commit = lineage.commit_of("00002")[:10]
    assert seed.name == f"toy/main/00002@{commit}, 50 µs on t"
    assert seed.kernel.main == "int b;\n"
    assert start.said == (
        f"inherited as a seed: {seed.name}; it was not made for softmax: where the contracts differ, the judge "
        "rejects it",
        "notes of toy/main that come along: 3 of 5",
    )
    new = Lineage(tmp_path / "other.git", "softmax")
    (planted,) = new.add_seeds([Trial("", Origin.SEED, kernel=seed.kernel, name=seed.name)])
    judged = replace(planted, evaluation=replace(accepted(80.0), target="here"))
    new.evaluate(judged)
    said = new.store.header(new.commit_of(planted.id)).text
    assert said.startswith(f"00001 accept 80 µs: toy/main/00002@{commit}, 50 µs on t\n")
    assert f"Inherited from toy/main/00002@{commit}, 50 µs on t. says what it did" in said
    assert record.describe(judged, "evaluated") in said
    new.close()


def test_a_named_trial_comes_instead_of_the_winner(opened, softmax) -> None:
    assert warm_start(opened, "toy/main/00001", softmax, CPU, HERE).seeds[0].kernel.main == "int a;\n"
    wrong = warm_start(opened, "toy/main/00003", softmax, CPU, HERE).seeds[0]
    assert wrong.name.endswith(", reject-incorrect")


def test_on_the_same_target_notes_stay_and_trials_get_their_whole_names(opened, lineage, softmax) -> None:
    notes = {note.title: note for note in warm_start(opened, "toy/main", softmax, CPU, HERE).notes}
    assert notes.keys() == {"Unrolling", "Dead", "Lines"}
    unrolling = notes["Unrolling"]
    assert unrolling.status is Status.MEASURED
    assert unrolling.text == "toy/main/00002 beat toy/main/00001 by 100 % at 65536 rows."
    assert unrolling.sources == tuple(f"toy/main/{id}@{lineage.commit_of(id)[:10]}" for id in ("00002", "00001"))
    assert notes["Dead"].closes == ()  # they would close other trials here
    assert notes["Lines"] == Note("Lines", "64 bytes.", ("manual",), ("cpu",))


def test_what_was_measured_elsewhere_is_assumed_and_says_where(opened, lineage) -> None:
    problem = load("softmax", target=H100)
    start = warm_start(opened, "toy/main", problem, H100, "h100-1234")
    notes = {note.title: note for note in start.notes}
    assert notes.keys() == {"Unrolling [toy/main]", "Dead [toy/main]", "Tiles"}
    unrolling = notes["Unrolling [toy/main]"]
    assert unrolling.status is Status.ASSUMED
    assert "(measured on t in toy/main, not here)" in unrolling.text
    assert unrolling.sources[0] == f"toy/main/00002@{lineage.commit_of('00002')[:10]}"
    assert unrolling.targets == ()
    assert notes["Tiles"].status is Status.DOCUMENTED
    assert start.seeds == ()
    assert "inherited no kernel: toy/main/00002@" in start.said[0]
    assert "is cpp, and h100 takes" in start.said[0]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("toy/main/00009", "no trial 00009 in toy/main"),
        ("toy/other", "no trial of toy/other in .*; runs: toy/main"),
        ("softmax/main", "is the run itself"),
        ("main", "is the run itself"),
        ("a/b/c/d", "valid: RUN, PROBLEM/RUN, PROBLEM/RUN/ID"),
        ("toy/", "valid: RUN, PROBLEM/RUN, PROBLEM/RUN/ID"),
        ("toy/..", "cannot name a git branch"),
    ],
)
def test_what_cannot_be_inherited_is_said(opened, softmax, name: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        warm_start(opened, name, softmax, CPU, HERE, run="main")


def test_a_lineage_that_is_not_there_is_named(tmp_path: Path, softmax) -> None:
    with pytest.raises(LineageError, match="no lineage at"):
        warm_start(partial(Lineage, tmp_path / "none.git"), "toy/main", softmax, CPU)
