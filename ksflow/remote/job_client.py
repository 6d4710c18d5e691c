"""The asking side of the job store: waits for a worker's verdict, and believes what can be one.

A result is data from another machine: it is checked before it is believed, and can make this machine do nothing but
record it. Not covered: forgery, see `job_store`.
"""

import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import structlog

from ksflow.errors import ConfigError
from ksflow.records import Evaluation, Problem, Target
from ksflow.remote import job_store, worker_payload
from ksflow.remote.job_store import InvalidFile, JobStore

_SHORTEST_S, _LONGEST_S = 0.02, 2.0
_LOOK_S = 1.0
_QUIET_S = 15.0
"""A worker that is there answers soon; then nobody needs to be told of one."""


class JobClient:
    """Waits for results in a job store. patience_minutes: without any sign of a worker; None waits on."""

    def __init__(self, store: JobStore, target: Target, judge: str, patience_minutes: float | None) -> None:
        self.store, self.target, self.judge, self.patience_minutes = store, target, judge, patience_minutes
        self._lock = threading.Lock()
        self._ready = False
        self._tell = partial(tell, set(), "ksflow.spool")

    def make_folder(self) -> None:
        """Have the folder, with the code that workers run. ConfigError."""
        with self._lock:
            if self._ready:
                return
            try:
                self.store.make()
                self.store.tidy()
                worker_payload.refresh(self.store.root)
            except OSError as error:
                raise ConfigError(f"cannot write {self.store.root}: {error}; set evaluator.folder") from error
            self._ready = True

    def wait(self, name: str, problem: Problem) -> Evaluation:
        """The result of a job, once it is there. ConfigError: patience at its end."""
        pause, watch = _SHORTEST_S, _WorkerWatch(self.store, name)
        while (evaluation := self._result(name, problem)) is None:
            watch.look()
            if watch.alone_s > _QUIET_S:
                self._tell("waiting for a worker", job=name, run=self._remedy(watch))
            if self.patience_minutes is not None and watch.alone_s > self.patience_minutes * 60:
                raise ConfigError(f"no sign of a worker for {self.patience_minutes:g} minutes: {self._remedy(watch)}")
            time.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_S)
        return evaluation

    def take(self, name: str) -> None:
        """The result is used: the next who asks the same is asking anew."""
        self.store.take(name)

    def _result(self, name: str, problem: Problem) -> Evaluation | None:
        """What came back; None until it is there whole. What is damaged is removed, so that it is judged again."""
        try:
            evaluation = self.store.result(name)
            return checked(evaluation, problem, self.judge, self.target.fingerprint) if evaluation else None
        except InvalidFile as error:
            path = self.store.results / f"{name}.json"
            self._tell("a result is removed, its job is judged again", result=str(path), why=str(error))
            path.unlink(missing_ok=True)
            return None

    def _remedy(self, watch: "_WorkerWatch") -> str:
        """What to run where, and what workers said that refuse the job."""
        target = self.target
        words = "any machine" if target.kind == "cpu" else f"a machine with {target.chip} ({target.march})"
        command = f"cd {self.store.root / worker_payload.FOLDER} && python -m ksflow worker .."
        refused = "".join(f"; a worker says: {why}" for why in sorted(watch.refusals))
        return f"on {words}, run: {command}{refused}"


class _WorkerWatch:
    """Looks out for workers that may judge a job. `alone_s`: since when there was no sign of one."""

    def __init__(self, store: JobStore, name: str) -> None:
        self._store, self._name = store, name
        self._seen: dict[str, int] | None = None
        self._looked = 0.0
        self._sign = time.monotonic()
        self.refusals: set[str] = set()

    @property
    def alone_s(self) -> float:
        return time.monotonic() - self._sign

    def look(self) -> None:
        """Now, unless that was just now. A sign is a file of a willing worker that is new or touched."""
        now = time.monotonic()
        if now - self._looked < _LOOK_S:
            return
        self._looked = now
        beats = {path.name: path for path in self._store.workers.glob("*.json")}
        seen = {name: beat for name, path in beats.items() if (beat := self._willing(path))}
        if self._seen is not None and any(self._seen.get(name) != beat for name, beat in seen.items()):
            self._sign = now
        self._seen = seen

    def _willing(self, path: Path) -> int:
        """When it last gave a sign; 0 where it refuses the job, or is gone."""
        refuses = (job_store.read(path) or {}).get("refuses", {})
        why = refuses.get(self._name) if isinstance(refuses, dict) else None
        if why:
            self.refusals.add(str(why)[:300])
            return 0
        try:
            return path.stat().st_mtime_ns
        except FileNotFoundError:
            return 0


def tell(told: set[str], logger: str, event: str, **words: str) -> None:
    """Warn, once for each thing that can be told."""
    text = f"{event} {words.get('why', '')} {words.get('run', '')}"
    if text not in told:
        told.add(text)
        structlog.get_logger(logger).warning(event, **words)


def checked(evaluation: Evaluation, problem: Problem, judge: str, fingerprint: str) -> Evaluation:
    """A verdict on this problem, under the target's fingerprint. InvalidFile where it cannot be one."""
    cases = [case.name for case in problem.benchmarks]
    if evaluation.judge != judge or (evaluation.accepted and [timing.case for timing in evaluation.timings] != cases):
        raise InvalidFile("not the verdict of this judge on this problem")
    score = problem.aggregate(timing.us for timing in evaluation.timings) if evaluation.accepted else None
    if score is not None and abs(score - (evaluation.score_us or 0.0)) > 1e-3 + 1e-6 * score:
        raise InvalidFile("its score is not that of its times")
    if {"against", "claim"} & evaluation.evidence.more.keys():
        raise InvalidFile("its evidence has ratios that are none")
    return replace(evaluation, target=fingerprint)
