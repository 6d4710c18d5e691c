"""TensorBoard: event files, a folder for each run."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from ksflow.errors import need_package
from ksflow.protocols import TrackedRun, TrackedTrial, Tracker

_TEXTS = (".md", ".csv", ".json", ".cpp", ".cu", ".hip", ".py")
_LONGEST = 100_000  # characters of a text


class TensorBoard(Tracker):
    """Writes for TensorBoard. folder: the `--logdir`; runs are below it, in `problem/run`, or `sweep/problem/run`."""

    def __init__(self, folder: str = "runs/tensorboard") -> None:
        need_package("tracker=tensorboard", "tensorboard", "tensorboard", "tensorboard")
        self._folder = Path(folder)

    def start(self, run: TrackedRun) -> set[int]:
        """Open the folder of the run, and return the trials in it. Raises OSError if it cannot be written."""
        from torch.utils.tensorboard import SummaryWriter

        mark = f"{run.identity}.ksflow"
        run_folder = next((file.parent for file in self._folder.glob(f"**/{mark}")), None)
        run_folder = run_folder or _free(self._folder / run.group / run.problem / run.run, run.identity)
        steps = _steps(run_folder)
        run_folder.mkdir(parents=True, exist_ok=True)
        (run_folder / mark).touch()
        self._writer = SummaryWriter(str(run_folder))
        rows = "\n".join(f"| {key} | {value} |" for key, value in run.parameters.items())
        self._writer.add_text("configuration", f"| key | value |\n|---|---|\n{rows}", max(steps, default=0))
        self._writer.flush()
        return steps

    def log(self, trial: TrackedTrial) -> None:
        """Write a trial at its number: a scalar for each metric, and the verdict as text."""
        for name, value in trial.metrics.items():
            self._writer.add_scalar(name, value, trial.step)
        self._writer.add_text("verdict", trial.verdict, trial.step)
        self._writer.flush()

    def finish(self, summary: Mapping[str, str], files: Sequence[Path]) -> None:
        """Write the summary and the files as texts, and close the event file."""
        rows = "\n".join(f"| {key} | {value} |" for key, value in summary.items())
        self._writer.add_text("summary", f"| figure | value |\n|---|---|\n{rows}")
        for file in files:
            if file.suffix in _TEXTS:
                self._writer.add_text(f"files/{file.name}", f"```\n{file.read_text(encoding='utf-8')[:_LONGEST]}\n```")
        self._writer.close()


def _free(run_folder: Path, identity: str) -> Path:
    """Return the folder, or one beside it if another run has it, of a lineage that is gone."""
    return run_folder.with_name(f"{run_folder.name}-{identity[:6]}") if any(run_folder.glob("*.ksflow")) else run_folder


def _steps(run_folder: Path) -> set[int]:
    """Return the trials in a folder's event files."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    if not run_folder.is_dir():
        return set()
    events = EventAccumulator(str(run_folder), size_guidance={"scalars": 0, "tensors": 1}).Reload()
    return {event.step for event in events.Scalars("accepted")} if "accepted" in events.Tags()["scalars"] else set()
