"""Weights & Biases: each run a run of a project, on disk until somebody syncs it."""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from ksflow.errors import need_package
from ksflow.protocols import TrackedRun, TrackedTrial, Tracker


class Wandb(Tracker):
    """Sends a run to Weights & Biases.

    project: its name; without it the problem's. mode: `offline` writes below `folder`, which `wandb sync` sends;
    `online` sends as it goes, with the key that `wandb login` or `WANDB_API_KEY` gave. folder: of its files.
    """

    def __init__(self, project: str | None = None, mode: str = "offline", folder: str = "runs") -> None:
        need_package("tracker=wandb", "wandb", "wandb", "wandb")
        self._project, self._mode, self._folder = project, mode, Path(folder)

    def start(self, run: TrackedRun) -> set[int]:
        """Open the run, or the one of that identity, and return the trials that it has. Raises errors of wandb."""
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        folder = (self._folder / "wandb").absolute()
        folder.mkdir(parents=True, exist_ok=True)
        self._file = folder / f"ksflow-{run.identity}.txt"  # a run on disk cannot be asked what it has
        steps = [int(line) for line in self._file.read_text(encoding="utf-8").split()] if self._file.exists() else []
        quiet = wandb.Settings(
            silent=True, console="off", disable_git=True, disable_code=True, x_disable_stats=True, x_disable_meta=True
        )
        self._run = wandb.init(
            project=self._project or run.problem,
            name=f"{run.problem}/{run.run}",
            id=run.identity,
            group=run.group or None,
            config=dict(run.parameters),
            dir=str(folder.parent),
            mode=self._mode,
            resume="allow",
            settings=quiet,
        )
        self._run.define_metric("trial")
        self._run.define_metric("*", step_metric="trial")
        self._count = len(steps)
        return set(steps)

    def log(self, trial: TrackedTrial) -> None:
        """Send a trial's metrics and verdict at its number."""
        self._run.log({"trial": trial.step, "verdict": trial.verdict, **trial.metrics}, step=self._count)
        self._count += 1
        with self._file.open("a", encoding="utf-8") as file:
            file.write(f"{trial.step}\n")

    def finish(self, summary: Mapping[str, str], files: Sequence[Path]) -> None:
        """Send the summary and copies of the files, and end the run."""
        for name, value in summary.items():
            self._run.summary[name] = value
        for file in files:
            copied = Path(shutil.copy(file, self._run.dir))
            self._run.save(str(copied), base_path=str(copied.parent), policy="end")
        self._run.finish()
