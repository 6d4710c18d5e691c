"""The asking side of the job store: posts a job, waits for a worker's verdict, and believes what can be one.

A result is data from another machine: it is checked before it is believed, and can make this machine do nothing but
record it. Not covered: forgery, see `job_store`.
"""

import contextlib
import time
from dataclasses import replace
from functools import partial

import structlog

from ksflow.errors import ConfigError, StageError, reaching
from ksflow.evaluation.remote import worker_payload
from ksflow.evaluation.remote.job_store import InvalidFile, JobStore, JudgeJob, read_json
from ksflow.protocols import call_context
from ksflow.records import Evaluation, Problem, Target

_SHORTEST_S, _LONGEST_S = 0.02, 2.0
_QUIET_S = 15.0  # after which a person is told what to start


class JobClient:
    """Asks through a job store. patience_minutes: without any sign of a worker; None waits on."""

    def __init__(self, store: JobStore, target: Target, patience_minutes: float | None) -> None:
        self.store, self.target, self.patience_minutes = store, target, patience_minutes
        self._ready = False
        self._tell = partial(tell, set(), "ksflow.spool")

    def make_folder(self) -> None:
        """Have the folder, with the code that workers run. ConfigError."""
        if self._ready:
            return
        with reaching(f"cannot write {self.store.root}", "set evaluator.folder"):
            self.store.make()
            worker_payload.refresh(self.store.root)
        self._ready = True

    def ask(self, job: JudgeJob, problem: Problem) -> Evaluation:
        """A worker's verdict. ConfigError: folder not usable, patience at its end. StageError: the job is no JSON, or
        the run is being ended while there is no sign of a worker."""
        self.make_folder()
        try:
            with reaching(f"the folder {self.store.root} cannot be used", "set evaluator.folder"):
                name = self.store.post(job)
                evaluation = self._wait(name, job, problem)
                self.store.take(name)
        except ValueError as error:
            raise StageError("evaluator", f"the job cannot be written: {error}") from error
        return evaluation

    def _wait(self, name: str, job: JudgeJob, problem: Problem) -> Evaluation:
        """The result of a job. A sign of a worker is its file, new or touched, unless it refuses the job."""
        pause, sign, refusals = _SHORTEST_S, time.monotonic(), set[str]()
        before = self._beats(name, refusals)
        while (evaluation := self._result(name, job, problem)) is None:
            beats = self._beats(name, refusals)
            if beats.items() - before.items():
                sign = time.monotonic()
            before, alone_s = beats, time.monotonic() - sign
            if alone_s > _QUIET_S:
                self._tell("waiting for a worker", job=name, run=self._remedy(refusals))
                with call_context().unanswered() as interrupted:
                    if interrupted():
                        raise StageError("evaluator", f"no sign of a worker; the job stays. {self._remedy(refusals)}")
            if self.patience_minutes is not None and alone_s > self.patience_minutes * 60:
                words = f"no sign of a worker for {self.patience_minutes:g} minutes"
                raise ConfigError(f"{words}: {self._remedy(refusals)}")
            time.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_S)
        return evaluation

    def _beats(self, name: str, refusals: set[str]) -> dict[str, int]:
        """When each worker gave its last sign; of one that refuses the job, `refusals` gets the reason instead."""
        beats = {}
        for path in self.store.workers.glob("*.json"):
            refuses = (read_json(path) or {}).get("refuses")
            if isinstance(refuses, dict) and (why := refuses.get(name)):
                refusals.add(str(why)[:300])
                continue
            with contextlib.suppress(FileNotFoundError):
                beats[path.name] = path.stat().st_mtime_ns
        return beats

    def _result(self, name: str, job: JudgeJob, problem: Problem) -> Evaluation | None:
        """What came back; None until it is there whole. What is damaged is removed, so that it is judged again."""
        try:
            evaluation = self.store.result(name)
            return check_verdict(evaluation, problem, job.judge, self.target.fingerprint) if evaluation else None
        except InvalidFile as error:
            path = self.store.results / f"{name}.json"
            self._tell("a result is removed, its job is judged again", result=str(path), why=str(error))
            path.unlink(missing_ok=True)
            return None

    def _remedy(self, refusals: set[str]) -> str:
        """What to run where, and what workers said that refuse the job."""
        target = self.target
        words = "any machine" if target.kind == "cpu" else f"a machine with {target.chip} ({target.march})"
        command = f"cd {self.store.root / worker_payload.FOLDER} && python -m ksflow worker .."
        refused = "".join(f"; a worker says: {why}" for why in sorted(refusals))
        return f"on {words}, run: {command}{refused}"


def tell(told: set[str], logger: str, event: str, **words: str) -> None:
    """Warn, once for each thing that can be told."""
    text = f"{event} {words.get('why', '')} {words.get('run', '')}"
    if text not in told:
        told.add(text)
        structlog.get_logger(logger).warning(event, **words)


def check_verdict(evaluation: Evaluation, problem: Problem, judge: str, fingerprint: str) -> Evaluation:
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
