"""Trackers: each trial is told once, whatever a tracker does the run ends as without it, and no key gets there."""

import csv
import json
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from conftest import until
from test_cli import DRY, ksflow
from test_session import SEEDS, Run

from ksflow.errors import ConfigError, need_package
from ksflow.home import shipped_path
from ksflow.lineage import Lineage
from ksflow.loop.schedule import RunOutcome
from ksflow.loop.search import search
from ksflow.protocols import TrackedRun, TrackedTrial, Tracker
from ksflow.report import Tracking
from ksflow.stages.tracker.mlflow import Mlflow
from ksflow.stages.tracker.tensorboard import TensorBoard
from ksflow.stages.tracker.wandb import Wandb

SECRET = "sk-a-secret-of-the-environment"
OWN = """import json


class Mine:
    def __init__(self, file="told.jsonl"):
        self.file = file

    def _write(self, **row):
        with open(self.file, "a") as file:
            file.write(json.dumps(row) + "\\n")

    def start(self, run):
        self._write(identity=run.identity, group=run.group, parameters=dict(run.parameters))
        rows = [json.loads(line) for line in open(self.file)]
        return {row["step"] for row in rows if "step" in row}

    def log(self, trial):
        self._write(step=trial.step, verdict=trial.verdict, **trial.metrics)

    def finish(self, summary, files):
        self._write(summary=dict(summary), files=[str(file) for file in files])
"""


class Kept:
    """Keeps what it is told; `breaks` at one of its calls does what it is given."""

    def __init__(self, breaks: str = "", how: Callable[[], object] = lambda: None) -> None:
        self.rows: list[TrackedTrial] = []
        self.before: set[int] = set()
        self._breaks, self._how = breaks, how

    def _break(self, at: str) -> None:
        if at == self._breaks:
            self._how()

    def start(self, run: TrackedRun) -> set[int]:
        self._break("start")
        return self.before

    def log(self, trial: TrackedTrial) -> None:
        self._break("log")
        self.rows.append(trial)

    def finish(self, summary: Mapping[str, str], files: Sequence[Path]) -> None:
        self._break("finish")


def tracked(lineage: Lineage, tracker: Tracker, folder: Path, patience_s: float = 60.0) -> tuple[RunOutcome, list[str]]:
    """A run with a tracker, and what it warned of, but for its waiting."""
    said: list[str] = []
    run = TrackedRun("toy", "main", "0123456789abcdef", "", {"designer": "rules"})
    tracking = Tracking(tracker, lambda: run, said.append, patience_s)
    outcome = search(Run(lineage).made(tracking, evaluations=6), SEEDS)
    (folder / "best.py").write_text("print('the winner')\n")
    tracking.finish(outcome.population, {"score_us": "1"}, [folder / "best.py"], folder / "trials.csv")
    return outcome, [line for line in said if not line.startswith("waiting")]


def test_every_trial_is_told_once_with_its_figures(lineage: Lineage, tmp_path: Path) -> None:
    tracker = Kept()
    outcome, said = tracked(lineage, tracker, tmp_path)
    assert not said
    told = {row.step: row.metrics for row in tracker.rows}
    assert sorted(told) == [int(trial.id) for trial in outcome.population.trials]
    assert len(tracker.rows) == len(told)
    for trial in outcome.population.trials:
        assert told[int(trial.id)]["accepted"] == 1.0
    assert min(row["best_us"] for row in told.values()) == outcome.best.score_us
    with (tmp_path / "trials.csv").open() as file:
        assert [int(row["trial"]) for row in csv.DictReader(file)] == sorted(told)
    again = Kept()
    again.before = set(told)
    longer, _ = tracked(lineage, again, tmp_path)
    assert {row.step for row in again.rows} == {int(t.id) for t in longer.population.trials} - set(told)


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


@pytest.mark.parametrize(
    ("at", "error", "why"),
    [
        ("start", OSError("https://me:hunter2@host/ is shut"), "OSError: https://[secret]@host/ is shut"),
        ("log", Unspeakable(), "Unspeakable: its message cannot be shown"),
        ("finish", SystemExit(), "SystemExit: no message"),
    ],
)
def test_one_that_raises_is_switched_off_and_the_run_ends_as_without_it(
    lineage: Lineage, tmp_path: Path, at: str, error: BaseException, why: str
) -> None:
    def fail() -> None:
        raise error

    outcome, said = tracked(lineage, Kept(at, fail), tmp_path)
    assert outcome.judged == 6
    (line,) = said
    assert line.startswith(f"the tracker Kept is off for the rest of this run: {why}")


@pytest.mark.slow
@pytest.mark.parametrize("at", ["start", "log", "finish"])
def test_one_that_hangs_holds_nobody_up(lineage: Lineage, tmp_path: Path, at: str) -> None:
    forever = threading.Event()
    outcome, said = tracked(lineage, Kept(at, forever.wait), tmp_path, patience_s=0.2)
    forever.set()
    assert outcome.judged == 6
    assert said == ["the tracker Kept did not end in time; it is told the rest when the run goes on"]


def test_a_missing_package_is_one_line_with_the_remedy() -> None:
    with pytest.raises(ConfigError, match=r"^tracker=x needs the y-z package: pip install 'ksflow\[x\]'$"):
        need_package("tracker=x", "y-z", "no_such_package", "x")


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder with a tracker of one's own."""
    (tmp_path / "mine.py").write_text(OWN)
    (tmp_path / "conf" / "tracker").mkdir(parents=True)
    (tmp_path / "conf" / "tracker" / "mine.yaml").write_text("_target_: mine.Mine\n")
    return tmp_path


@pytest.mark.slow
def test_one_of_ones_own_is_told_of_the_configuration_without_keys_and_goes_on(own: Path) -> None:
    shutil.copy(shipped_path("seeds", "softmax", "01_naive.cpp"), own / f"{SECRET}.cpp")
    words = ["--config-dir=conf", *DRY, "tracker=mine", f"seed_kernels={SECRET}.cpp"]
    for most in (3, 2):
        done = ksflow(own, *words, f"loop.evaluations={most}", MY_API_KEY=SECRET)
        assert done.returncode == 0, done.stderr
    assert SECRET not in (own / "told.jsonl").read_text()
    rows = [json.loads(line) for line in (own / "told.jsonl").read_text().splitlines()]
    steps = [row["step"] for row in rows if "step" in row]
    assert len(steps) >= 9
    assert sorted(steps) == list(range(1, len(steps) + 1))
    runs = [row for row in rows if "identity" in row]
    assert len(runs) == 2
    assert runs[0]["identity"] == runs[1]["identity"]
    assert (runs[0]["parameters"]["designer"], runs[1]["parameters"]["loop.evaluations"]) == ("rules", "2")
    ended = rows[-1]
    assert {Path(file).name for file in ended["files"]} >= {"summary.json", "report.md", "trials.csv", "best.py"}
    assert all((own / file).is_file() for file in ended["files"])
    assert "winner" in ended["summary"]["headline"]


def twice(lineage: Lineage, make: Callable[[], Tracker], folder: Path) -> list[int]:
    """A run that went on once, each time with a tracker of its own; the numbers of its trials."""
    for _ in range(2):
        outcome, said = tracked(lineage, make(), folder)
        assert not said
    return sorted(int(trial.id) for trial in outcome.population.trials)


@pytest.mark.slow
def test_tensorboard_has_every_trial_once_however_often_a_run_goes_on(lineage: Lineage, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    steps = twice(lineage, lambda: TensorBoard(str(tmp_path / "tb")), tmp_path)
    events = EventAccumulator(str(tmp_path / "tb/toy/main"), size_guidance={"scalars": 0}).Reload()
    assert sorted(event.step for event in events.Scalars("accepted")) == steps
    assert {"best_us", "minutes", "usd"} <= set(events.Tags()["scalars"])
    assert "files/best.py/text_summary" in events.Tags()["tensors"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_mlflow_has_one_run_with_every_trial_once(
    lineage: Lineage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow")
    from mlflow.tracking import MlflowClient

    monkeypatch.chdir(tmp_path)
    steps = twice(lineage, Mlflow, tmp_path)
    client = MlflowClient(f"sqlite:///{tmp_path}/runs/mlflow/mlflow.db")
    found = client.get_experiment_by_name("toy")
    assert found
    (run,) = client.search_runs([found.experiment_id])
    assert (run.info.status, run.data.params["designer"]) == ("FINISHED", "rules")
    assert sorted(one.step for one in client.get_metric_history(run.info.run_id, "accepted")) == steps
    assert {"best.py", "trials.csv"} == {one.path for one in client.list_artifacts(run.info.run_id)}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_wandb_writes_to_disk_and_tells_no_trial_twice(lineage: Lineage, tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    steps = twice(lineage, lambda: Wandb(folder=str(tmp_path)), tmp_path)
    assert len(list((tmp_path / "wandb").glob("offline-run-*/run-*.wandb"))) == 2
    (told,) = (tmp_path / "wandb").glob("ksflow-*.txt")
    assert sorted(map(int, told.read_text().split())) == steps
    assert {"best.py", "trials.csv"} <= {file.name for file in (tmp_path / "wandb").glob("offline-run-*/files/*")}


@pytest.mark.slow
def test_the_members_of_a_sweep_are_runs_of_one_group(own: Path) -> None:
    done = ksflow(own, "--config-dir=conf", "-m", *DRY, "tracker=mine", "loop.evaluations=1", "designer=rules,random")
    assert done.returncode == 0, done.stderr
    rows = until(lambda: [json.loads(line) for line in (own / "told.jsonl").read_text().splitlines()])
    runs = [row for row in rows if "identity" in row]
    assert len({row["identity"] for row in runs}) == 2
    assert {row["group"] for row in runs} == {folder.name for folder in (own / "runs/sweeps").iterdir()}
