"""Tracking of a run: MLflow, Weights & Biases, TensorBoard, or a tracker of your own.

A thread of its own compares the lineage with what the tracker has, and logs the rest. So a slow tracker delays nothing,
one that was killed or started late catches up, and nothing is logged twice. A tracker that raises or hangs is switched
off.
"""

import csv
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from ksflow.errors import describe_error, error_location, keep_traceback
from ksflow.loop.events import Event
from ksflow.loop.queue import ThreadJob
from ksflow.loop.run import Run
from ksflow.protocols import TrackedRun, TrackedTrial, Tracker
from ksflow.records import Population, Trial, Verdict
from ksflow.redaction import redact

_AT_THE_END_S = 60.0
_SOON_S = 1.0
_WHY = 200


class Tracking:
    """Logs a run to a tracker. `describe` returns the run once its session is open; `warn` is called with errors.

    patience_s: how long the end of a run waits for the tracker.
    """

    def __init__(
        self,
        tracker: Tracker,
        describe: Callable[[], TrackedRun],
        warn: Callable[[str], None],
        patience_s: float = _AT_THE_END_S,
    ) -> None:
        self._tracker, self._describe, self._warn, self._patience_s = tracker, describe, warn, patience_s
        self._name = type(tracker).__name__
        self._changed = threading.Condition()
        self._newest: Population | None = None
        self._baselines: tuple[Trial, ...] = ()
        self._end: tuple[Mapping[str, str], Sequence[Path], Path] | None = None
        self._job: ThreadJob | None = None

    def __call__(self, event: Event, run: Run) -> None:
        """Note an event of the run, and return at once."""
        population, baselines = run.population, run.baselines
        with self._changed:
            self._newest, self._baselines = population, baselines
            self._changed.notify()
            if self._job is None:
                self._job = ThreadJob(self._tell, self._over)

    def finish(self, population: Population, summary: Mapping[str, str], files: Sequence[Path], table: Path) -> None:
        """Log the end of the run. Waits a bounded time for the tracker; Ctrl-C ends the wait.

        table: path for the trials as CSV, a further file for the tracker.
        """
        job = self._job
        if job is None or job.error:
            return
        with self._changed:
            self._newest, self._end = population, (summary, files, table)
            self._changed.notify()
        try:
            if self._wait(job, min(_SOON_S, self._patience_s)):
                return
            left = f"{self._patience_s:.0f} s at most; Ctrl-C goes without it"
            self._warn(f"waiting for the tracker {self._name} to take everything in ({left})")
            if not self._wait(job, self._patience_s):
                self._warn(f"the tracker {self._name} did not end in time; it is told the rest when the run goes on")
        except KeyboardInterrupt:
            self._warn(f"the tracker {self._name} was left alone; it is told the rest when the run goes on")

    def _wait(self, job: ThreadJob, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while not job.over and time.monotonic() < until:
            time.sleep(0.02)
        return job.over

    def _tell(self) -> None:
        logged = set(self._tracker.start(self._describe()))
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._newest is not None)
                population, self._newest, end = self._newest, None, self._end
            assert population is not None
            for row in _rows(population, self._baselines, logged):
                self._tracker.log(row)
                logged.add(row.step)
            if end:
                summary, files, table = end
                _write(table, list(_rows(population, self._baselines, set())))
                self._tracker.finish(summary, [*files, table])
                return

    def _over(self, job: ThreadJob) -> None:
        if job.error:
            keep_traceback(job.error, "tracker")
            why = textwrap.shorten(redact(describe_error(job.error)), _WHY, placeholder=" ...")
            self._warn(f"the tracker {self._name} is off for the rest of this run: {why}{error_location(job.error)}")


def _rows(population: Population, baselines: tuple[Trial, ...], but: set[int]) -> Iterator[TrackedTrial]:
    for trial, best in zip(population.trials, population.best_so_far, strict=True):
        evaluation = trial.evaluation
        harness = evaluation is not None and evaluation.verdict is Verdict.HARNESS
        if trial.id.isdecimal() and int(trial.id) not in but and not harness:
            row = next(iter(trial.evaluation.evidence.against), None) if trial.evaluation else None
            over = population.scale.ratio(trial.id, row.id) if row else None
            ratios = [population.speedup(trial, baseline) for baseline in baselines if baseline is not trial]
            known = {
                "accepted": float(trial.score_us is not None),
                "score_us": population.time_us(trial),
                "best_us": population.time_us(best) if best else None,
                "speedup_over_incumbent": over.ratio if over else None,
                "speedup_over_baseline": min((ratio.ratio for ratio in ratios if ratio), default=None),
                "usd": trial.cost.usd,
                "tokens": float(trial.cost.tokens),
                "minutes": trial.wall_s / 60,
            }
            yield TrackedTrial(
                int(trial.id), trial.verdict, {name: value for name, value in known.items() if value is not None}
            )


def _write(path: Path, rows: Sequence[TrackedTrial]) -> None:
    names = sorted({name for row in rows for name in row.metrics})
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["trial", "verdict", *names])
        table.writerows([row.step, row.verdict, *(row.metrics.get(name, "") for name in names)] for row in rows)
