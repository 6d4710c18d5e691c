"""Which members of a sweep are finished: when one that was stopped is typed again, they are not run again.

For each member a file below runs/sweeps/unfinished-*: empty while it is left to do, its summary once it has ended. The
folder goes when none is left, so that the same words then go on with every member. Jobs of any launcher write there.
"""

import json
import os
import shutil
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode

from ksflow import home
from ksflow.records import Json, digest

ARGUMENTS = "KSFLOW_ARGUMENTS"
"""The environment variable with the words of the command line: jobs of a sweep may run in other processes."""


class SweepMember:
    """The job that this is, of a sweep over given values."""

    def __init__(self) -> None:
        config = HydraConfig.get()
        self._file = _folder() / f"{digest(*sorted(config.overrides.task), digits=12)}.json"
        self._summary = Path(config.runtime.output_dir, "summary.json")

    def read_summary(self) -> Json | None:
        """Its summary, if it has ended before; it is then in the job's folder, too, for the table."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.touch()
        if not (text := self._file.read_text(encoding="utf-8")):
            return None
        home.write(self._summary, text)
        return dict(json.loads(text))

    def finish(self) -> None:
        """It has ended."""
        home.write(self._file, self._summary.read_text(encoding="utf-8"), durable=True)

    def number_finished(self) -> int:
        """How many of the sweep's members have ended."""
        return sum(file.stat().st_size > 0 for file in self._file.parent.glob("*.json"))


def member() -> SweepMember | None:
    """The member that this job is; None outside a sweep, and where a sweeper chooses values from what came before."""
    config = HydraConfig.get()
    basic = config.mode is RunMode.MULTIRUN and config.runtime.choices["hydra/sweeper"] == "basic"
    return SweepMember() if basic else None


def forget_if_finished() -> None:
    """A sweep in which nothing is left is over."""
    files = list(_folder().glob("*.json"))
    if files and all(file.stat().st_size for file in files):
        shutil.rmtree(_folder(), ignore_errors=True)


def _folder() -> Path:
    """Of these words, whichever launcher runs them."""
    words = sorted(word for word in os.environ[ARGUMENTS].split("\n") if not word.startswith("hydra"))
    return Path("runs", "sweeps", f"unfinished-{digest(*words, digits=12)}")
