"""`target.cores` and a problem's `cores`: one number, the cores that are chosen for it, and what a claim says of it."""

import secrets
from dataclasses import replace
from pathlib import Path

import pytest

from ksflow.config import compose
from ksflow.errors import ConfigError
from ksflow.evaluation.judge.requests import CorePinning
from ksflow.evaluation.processes import core_choice, core_pinning, quota
from ksflow.evaluation.processes.core_choice import Core, choose
from ksflow.home import shipped_path
from ksflow.kernels.hardware.target import detect
from ksflow.kernels.problem.loader import load
from ksflow.kernels.source.contract import thread_defines
from ksflow.records import Evidence, Kernel, parse

PLAIN = [Core(number, number, 0) for number in range(8)]
SIBLINGS = [Core(number, number % 4, 0) for number in range(8)]
"""Four physical cores: 0 and 4 are one core."""
NODES = [Core(number, number, number // 4) for number in range(8)]
MASKED = [core for core in SIBLINGS if core.number in (1, 2, 5, 6)]


@pytest.mark.parametrize(
    ("cores", "count", "judge", "box", "how"),
    [
        (PLAIN, 7, 0, (1, 2, 3, 4, 5, 6, 7), "one hardware thread of each core, NUMA node 0"),
        (PLAIN, 2, 0, (6, 7), "one hardware thread"),
        (SIBLINGS, 3, 0, (1, 2, 3), "one hardware thread"),
        (SIBLINGS, 5, 0, (2, 3, 5, 6, 7), "several hardware threads of a core"),
        (SIBLINGS, 7, 0, (1, 2, 3, 4, 5, 6, 7), "the judge shares a physical core"),
        (NODES, 3, 0, (1, 2, 3), "NUMA node 0"),
        (NODES, 4, 4, (0, 1, 2, 3), "NUMA node 0, the judge in node 1"),
        (NODES, 6, 0, (2, 3, 4, 5, 6, 7), "NUMA nodes 0, 1"),
        (MASKED, 1, 1, (2,), "one hardware thread"),
        (MASKED, 2, 1, (2, 6), "several hardware threads"),
        (MASKED, 3, 1, (2, 5, 6), "the judge shares a physical core"),
    ],
)
def test_the_choice_of_cores(cores: list[Core], count: int, judge: int, box: tuple[int, ...], how: str) -> None:
    choice = choose(cores, count)
    assert choice is not None
    assert (choice.judge, choice.box) == (judge, box)
    assert how in choice.how


def test_more_cores_than_there_are_is_an_error_that_names_what_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose(PLAIN, 8) is None
    assert [core_choice.most(*case) for case in ((8, None), (8, 4.5), (1, None), (8, 0.5))] == [7, 3, 1, 1]
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(quota, "cores", lambda: 4.5)
    with pytest.raises(ConfigError, match=r"target.cores=4 .* a quota of 4.5 cores.*; use target.cores=3$"):
        core_choice.require(4)
    core_choice.require(3)
    monkeypatch.setattr(quota, "cores", lambda: None)
    with pytest.raises(ConfigError, match=r"target.cores=8 .* the 8 cores .*; use target.cores=7$"):
        core_choice.require(8)
    assert "target.cores up to 7; with 7: kernels on 1, 2, 3, 4, 5, 6, 7, the judge on 0" in core_choice.describe(
        PLAIN, None
    )
    assert "with 3: kernels on 1, 2, 3, the judge on 0" in core_choice.describe(SIBLINGS, None)
    assert core_choice.describe(PLAIN[:1], None) == "one core, which judge and kernel share"


def test_the_topology_is_read_from_sysfs(tmp_path: Path) -> None:
    for number, siblings, node in ((0, "0,4", 0), (4, "0,4", 0), (2, "2-3", 1)):
        (tmp_path / f"cpu{number}" / "topology").mkdir(parents=True)
        (tmp_path / f"cpu{number}" / "topology" / "thread_siblings_list").write_text(f"{siblings}\n")
        (tmp_path / f"cpu{number}" / f"node{node}").mkdir()
    assert core_choice.read([0, 2, 4, 9], tmp_path) == [Core(0, 0, 0), Core(2, 2, 1), Core(4, 0, 0), Core(9, 9, 0)]


def test_the_problem_s_cores_are_the_target_s_unless_these_are_given(tmp_path: Path) -> None:
    folder = tmp_path / "several"
    folder.mkdir()
    for name in ("problem.yaml", "reference.py", "statement.md"):
        (folder / name).write_text((shipped_path("problems", "softmax") / name).read_text())
    (folder / "seeds").symlink_to(shipped_path("seeds", "softmax"))
    plain = load(str(folder)).digest
    with (folder / "problem.yaml").open("a") as file:
        file.write("\ncores: 3\n")
    words = [f"problem={folder}", "target=cpu"]
    assert compose.build(compose.compose(words).target).cores == 3
    assert compose.build(compose.compose([*words, "target.cores=2"]).target).cores == 2
    assert compose.build(compose.compose(["problem=softmax", "target=cpu"]).target).cores == 1
    assert load(str(folder)).digest == plain  # it belongs to the target


def test_another_number_of_cores_is_another_target() -> None:
    one = detect()
    assert replace(one, cores=1).fingerprint == one.fingerprint
    assert len({replace(one, cores=count).fingerprint for count in (1, 2, 8)}) == 3
    mentions = Kernel("cpp", {"k.cpp": "static_assert(NUM_THREADS == 8);"})
    assert thread_defines(mentions, replace(one, cores=8)) == ["-DNUM_THREADS=8"]
    assert thread_defines(Kernel("cpp", {"k.cpp": "int x;"}), replace(one, cores=8)) == []


def test_a_claim_says_how_many_cores_each_had() -> None:
    assert parse(Evidence, {"cores": {"judge": [0], "box": [1, 2]}}).cores_each == ", 2 cores each"
    assert [parse(Evidence, {"cores": {"judge": [0], "box": box}}).cores_each for box in (1, None)] == ["", ""]
    assert Evidence().core_count == 1


def test_other_programs_keep_off_all_cores_of_a_judge_and_its_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    first = secrets.randbelow(1 << 30) * 8 + 1024  # cores that no other test reserves
    every = set(range(first, first + 8))
    monkeypatch.setattr("os.sched_getaffinity", lambda _: every)
    one, two = CorePinning(every, 3), CorePinning(every, 2)
    assert (one.judge, one.sandbox) == ({first}, (first + 5, first + 6, first + 7))
    assert (two.judge, two.sandbox) == ({first + 1}, (first + 3, first + 4))
    assert core_pinning.unreserved_cores() == {first + 2}
    alone = CorePinning(every, 1)
    assert len(alone.sandbox) == 1
    for pinning in (one, two, alone):
        for held in pinning._held:
            held.close()
