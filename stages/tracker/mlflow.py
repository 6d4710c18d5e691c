"""MLflow: each run a run of an experiment, in a file beside the lineage or on a server."""

import fcntl
import logging
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ksflow.errors import need_package
from ksflow.protocols import TrackedRun, TrackedTrial, Tracker

_LONGEST = 500  # characters of a parameter that every version of MLflow takes


class Mlflow(Tracker):
    """Sends a run to MLflow.

    uri: where; a database or a server, `http://...`; without it what `MLFLOW_TRACKING_URI` says, else
    `runs/mlflow/mlflow.db`. experiment: its name; without it the problem's.
    """

    def __init__(self, uri: str | None = None, experiment: str | None = None) -> None:
        need_package("tracker=mlflow", "mlflow-skinny", "mlflow", "mlflow")
        need_package("tracker=mlflow", "sqlalchemy", "sqlalchemy", "mlflow")
        self._uri = uri or os.environ.get("MLFLOW_TRACKING_URI") or ""
        self._experiment = experiment

    def start(self, run: TrackedRun) -> set[int]:
        """Open the run, or the one of that identity, and return the trials that it has. Raises errors of MLflow."""
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow.entities import Param
        from mlflow.tracking import MlflowClient

        logging.getLogger("mlflow").setLevel(logging.WARNING)
        logging.getLogger("alembic").setLevel(logging.WARNING)
        folder = Path("runs", "mlflow").absolute()
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "lock").open("ab") as lock:  # two that make one database at once would both fail
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._client = MlflowClient(tracking_uri=self._uri or f"sqlite:///{folder / 'mlflow.db'}")
            name = self._experiment or run.problem
            existing = self._client.get_experiment_by_name(name)
            artifacts = None if self._uri else (folder / "artifacts" / run.problem).as_uri()
            experiment = existing.experiment_id if existing else self._client.create_experiment(name, artifacts)
        mine = f"tags.`ksflow.id` = '{run.identity}'"
        known = next(iter(self._client.search_runs([experiment], mine, max_results=1)), None)
        tags = {"ksflow.id": run.identity, "ksflow.problem": run.problem, "ksflow.sweep": run.group}
        known = known or self._client.create_run(experiment, run_name=f"{run.problem}/{run.run}", tags=tags)
        self._id = known.info.run_id
        self._client.update_run(self._id, status="RUNNING")
        new = {name: value for name, value in run.parameters.items() if name not in known.data.params}  # never changed
        params = [Param(name, value[:_LONGEST]) for name, value in new.items()]
        for at in range(0, len(params), 100):
            self._client.log_batch(self._id, params=params[at : at + 100])
        return {metric.step for metric in self._client.get_metric_history(self._id, "accepted")}

    def log(self, trial: TrackedTrial) -> None:
        """Send a trial's metrics at its number."""
        from mlflow.entities import Metric

        now = round(time.time() * 1000)
        metrics = [Metric(name, value, now, trial.step) for name, value in trial.metrics.items()]
        self._client.log_batch(self._id, metrics=metrics)

    def finish(self, summary: Mapping[str, str], files: Sequence[Path]) -> None:
        """Send the summary as tags and the files as artefacts, and end the run."""
        for name, value in summary.items():
            self._client.set_tag(self._id, f"ksflow.{name}", value)
        for file in files:
            self._client.log_artifact(self._id, str(file))
        self._client.set_terminated(self._id)
