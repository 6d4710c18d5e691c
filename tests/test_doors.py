"""The doors to a run (command line, protocol, Python) count and record the same."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from test_cli import ksflow
from test_mcp import Ask, Refused, git, judged, ready, record, served

from ksflow import Study
from ksflow.lineage import Lineage
from ksflow.records import Kernel, Origin, Plan, Trial, schema

BUDGET = 5
GIVEN = ("recipe=dry_run", f"loop.evaluations={BUDGET}", "loop.rounds_in_flight=1", "loop.repeats=judge")
ROUNDS = "refs/ksflow/fp8_gemm/dry/rounds"


class Step(NamedTuple):
    """A round of the command line's run, to be repeated."""

    base: str
    reference: str
    plan: Plan
    kernels: dict[str, Kernel]
    """By their trials' ids, in the order in which they were judged."""


class Counted(NamedTuple):
    """What a door says at the end."""

    judged: int
    rounds: int
    reason: str


def steps(folder: Path) -> Iterator[Step]:
    """What the run in `folder` has done, round by round."""
    commits = [line.partition(" ") for line in git(folder, "log", "--reverse", "--format=%H %s", ROUNDS).splitlines()]
    for at, (commit, _, subject) in enumerate(commits):
        if subject.startswith("plan "):
            plan = schema.load("plan", git(folder, "show", f"{commit}:plan.json").encode(), Plan)
            base, reference = re.findall(r"\d{5}", commits[at - 1][2])
            names = sorted(re.findall(r"\d{5}", subject), key=lambda name: judged_as(folder, name))
            yield Step(base, reference, plan, {name: written(folder, name) for name in names})


def judged_as(folder: Path, name: str) -> int:
    """The number of the step that committed a trial's verdict."""
    form = "--format=%s|%(trailers:key=Step,valueonly,separator=%x20)"
    lines = git(folder, "log", "--reverse", form, f"fp8_gemm/dry/{name}").splitlines()
    _, verdict, *_ = [line for line in lines if line.startswith(f"{name} ")]
    return int(verdict.rpartition(".")[2])


def written(folder: Path, name: str) -> Kernel:
    """The kernel of a trial as git has it."""
    row = json.loads(git(folder, "show", f"fp8_gemm/dry/{name}:trial.json"))["trial"]["kernel"]
    files = {file: git(folder, "show", f"fp8_gemm/dry/{name}:{file}") for file in row["files"]}
    return Kernel(row["language"], files, "as before")


def trials(folder: Path) -> list[Trial]:
    """Those that are no seeds."""
    with closing(Lineage(folder / "runs" / "lineage.git", "fp8_gemm", "dry", create=False)) as lineage:
        return [trial for trial in lineage.all_trials() if trial.origin is not Origin.SEED]


def record_of(folder: Path, door: Callable[..., Counted]) -> dict[str, Any]:
    """The run's record; for the protocol, whose clients name neither tunables nor avenues, without these."""
    found = record(folder)
    if door is by_protocol:
        plans = [row["trial"]["experiment"] for name, row in found.items() if name.startswith("refs/")]
        for experiment in filter(None, [*plans, *found["plan"]["experiments"]]):
            assert experiment.pop("changes") is not None
            assert experiment.pop("avenue") >= 0
    return found


def by_command_line(folder: Path, wanted: list[Step]) -> Counted:
    said = (folder / "said.txt").read_text()
    counted = re.search(r"^(\d+) experiments in .* stopped: ([^;\n]*)", said, re.MULTILINE)
    assert counted, said
    return Counted(int(counted[1]), len(list(steps(folder))), counted[2])


def by_protocol(folder: Path, wanted: list[Step]) -> Counted:
    async def work(ask: Ask) -> Counted:
        await ready(ask)
        for step in wanted:
            experiments = [
                {
                    "description": one.description,
                    "rubric": one.rubric,
                    "lowest_gain_percent": one.gain_percent[0],
                    "highest_gain_percent": one.gain_percent[1],
                    "innovation": one.innovation,
                }
                for one in step.plan.experiments
            ]
            given = {"avenues": step.plan.avenues, "experiments": experiments, "rationale": "as before"}
            answer = await ask("plan", base=step.base, reference=step.reference, **given)
            assert {json.loads(line)["id"] for line in answer.splitlines()[1:]} == set(step.kernels)
            for name, kernel in step.kernels.items():
                files = dict(kernel.files)
                await judged(ask, await ask("submit", trial=name, language=kernel.language, files=files))
        with pytest.raises(Refused) as refused:
            await ask("plan", base=step.base, reference=step.reference, **given)
        await judged(ask, await ask("finish"))
        left = re.search(r"evaluations: (\d+) left", await ask("lineage_population"))
        assert left
        reason = re.sub(r"^Error executing tool plan: |: the run goes on.*", "", str(refused.value))
        return Counted(BUDGET - int(left[1]), len(list(steps(folder))), reason)

    counted: Counted = served(folder, work, *GIVEN)
    return counted


def by_python(folder: Path, wanted: list[Step]) -> Counted:
    with Study("fp8_gemm", *GIVEN, budget=BUDGET) as study:
        for step in wanted:
            assert not study.reason
            plan = step.plan
            trials = study.plan(plan.experiments, step.base, step.reference, "as before", plan.avenues)
            assert {trial.id for trial in trials} == set(step.kernels)
            for name, kernel in step.kernels.items():
                assert study.result(study.submit(kernel, name)).evaluation
        tally = study.run.tally
        counted = Counted(tally.judged, tally.rounds, study.reason)
        best = study.best
        assert study.result(study.finish()) == study.best
        assert best.id == study.best.id
    return counted


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of the command line."""
    folder = tmp_path_factory.mktemp("line")
    done = ksflow(folder, *GIVEN, "llm=dummy")
    assert done.returncode == 0, done.stderr
    (folder / "said.txt").write_text(done.stderr)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("door", [by_command_line, by_protocol, by_python])
def test_every_door_counts_and_records_the_same(
    line: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    door: Callable[[Path, list[Step]], Counted],
) -> None:
    monkeypatch.chdir(tmp_path)
    wanted = list(steps(line))
    folder = line if door is by_command_line else tmp_path
    counted = door(folder, wanted)
    assert counted == (BUDGET, len(wanted), f"evaluations={BUDGET} used up")
    assert [trial.id for trial in trials(folder)] == [trial.id for trial in trials(line)]
    assert sum(not trial.repeats for trial in trials(folder)) == BUDGET
    assert record_of(folder, door) == record_of(line, door)
    assert capfd.readouterr() == ("", "") or door is not by_python
