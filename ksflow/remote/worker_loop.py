"""One worker: looks for jobs in the folder, claims one, has `JobJudge` judge it, writes the result, goes on."""

import contextlib
import itertools
import math
import os
import secrets
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ksflow.errors import ConfigError, KsflowError, printable
from ksflow.hardware.target import fits, single_gpu_environment, visible_gpus
from ksflow.judge.evaluator import LocalJudge, require_isolation
from ksflow.records import Evaluation, Verdict
from ksflow.remote import job_locks, worker_payload
from ksflow.remote.job_judge import JobJudge, words
from ksflow.remote.job_store import NAME, InvalidFile, Job, JobStore, read, write
from ksflow.sandbox.levels import LOWEST_FLOOR, probe

RESTART = 75
"""A worker's exit status when it wants to be started again, with newer code."""
_SHORTEST_S, _LONGEST_S = 0.05, 1.0
_AHEAD = 3
_AGAIN_S, _MOST_S = 5.0, 300.0
"""A job that could not be judged, for what this machine lacks, is tried again: after so long, then twice that."""
_SHOWN = 1000
"""Refusals, the latest, that those who wait can read."""


@dataclass(frozen=True)
class Options:
    """What a worker was told."""

    target: str = ""
    """Only jobs for targets of this name."""
    once: bool = False
    """End when there is nothing left to do."""
    devices: tuple[str, ...] = ("",)
    """The GPUs to judge on, a process for each; empty for the first."""
    idle_s: float | None = None
    """End after so long without a job."""
    profile: bool = False
    """Read hardware counters of every kernel that is accepted."""
    sanitize: bool = True
    """Have compute-sanitizer look at those that are faster than the incumbent."""
    isolation_floor: str = LOWEST_FLOOR
    """Judge nothing where sandboxes are weaker than this."""


@dataclass(frozen=True)
class _Refusal:
    """Why a job is left alone, and until when (by the monotonic clock)."""

    why: str
    until: float = math.inf
    tries: int = 0


class Worker:
    """What a process does that judges, on one device."""

    def __init__(self, spool: JobStore, options: Options, references: Path, device: str = "") -> None:
        """`references`: a private folder for what problems bring."""
        if device:
            seen = len(visible_gpus())
            if 0 < seen <= int(device):
                raise ConfigError(f"devices={device}: {seen} GPUs can be seen here, counted from 0")
            os.environ.update(single_gpu_environment(int(device)))
        require_isolation(options.isolation_floor, probe().level)
        self.spool, self.options, self._device = spool, options, device
        self._judge = JobJudge(references, partial(LocalJudge, profile=options.profile, sanitize=options.sanitize))
        self.stop = False
        """Set from outside: finish the job at hand, then end."""
        self._abandon = self._judging = False
        self.parent = 0
        """A process whose end is such a sign, too."""
        self._locks = job_locks.JobLocks(spool.claims)
        self._heartbeat = job_locks.Heartbeat()
        self._stamp = worker_payload.stamp(spool.root)
        self._me = job_locks.identity()
        self._sign = spool.workers / f"{self._me['host']}-{self._me['pid']}-{secrets.token_hex(3)}.json"
        self._reasons: set[str] = set()
        self._refused: dict[str, _Refusal] = {}
        self._answers: dict[str, int] = {}

    def abandon(self) -> None:
        """For a signal's handler: give the job at hand free and end. KeyboardInterrupt where there is one.

        Else `run` raises it, soon: between a claim's creation and the code that gives it free, it would stay.
        """
        self.stop = self._abandon = True
        if self._judging:
            raise KeyboardInterrupt

    def run(self) -> int:
        """Until told to stop; the exit code. Raises KeyboardInterrupt when what was begun was to be abandoned."""
        for path in self.spool.workers.glob("*.json"):  # of workers of this machine that died
            if job_locks.is_dead(read(path)):
                path.unlink(missing_ok=True)
        self._publish_sign()
        self._say(f"{words(self._judge.here)} waits for jobs in {self.spool.root}")
        pause, since = _SHORTEST_S, time.monotonic()
        try:
            while not self.stop and self.parent in (0, os.getppid()):
                if self._stamp != worker_payload.stamp(self.spool.root):
                    return RESTART
                if self._judge_next():
                    pause, since = _SHORTEST_S, time.monotonic()
                elif self.options.once or (self.options.idle_s or 1e99) < time.monotonic() - since:
                    break
                else:
                    time.sleep(pause)
                    pause = min(pause * 1.5, _LONGEST_S)
        finally:
            self._heartbeat.close()
            self._judge.close()
            self._sign.unlink(missing_ok=True)
        if self._abandon:
            raise KeyboardInterrupt
        return 0

    def _judge_next(self) -> bool:
        """Judge the oldest job that is free; whether there was one."""
        for name in self._waiting():
            job = self._suitable(name)
            claim = self._locks.take(name) if job else None
            if job is None or claim is None:
                continue
            self._heartbeat.files = (self._sign, claim[-1])
            try:
                self._judging = True
                if self._abandon:
                    return False
                if self._open(name):  # nobody answered it in between
                    return self._answered(name, job)
            finally:
                self._judging = False
                self._heartbeat.files = (self._sign,)
                job_locks.release(claim)
        return False

    def _waiting(self) -> Iterator[str]:
        """Jobs without a result, the oldest first."""
        jobs = []
        for path in self.spool.jobs.glob("*.json"):
            with contextlib.suppress(FileNotFoundError):
                jobs.append((path.stat().st_mtime_ns, path.stem))
        names = (name for _, name in sorted(jobs) if NAME.fullmatch(name))
        return (name for name in names if not self._refuses(name) and self._open(name))

    def _open(self, name: str) -> bool:
        """Whether it is there and not answered. A good answer is read once."""
        result = self.spool.results / f"{name}.json"
        with contextlib.suppress(FileNotFoundError):
            if result.stat().st_mtime_ns == self._answers.get(name):
                return False
        with contextlib.suppress(InvalidFile):
            if self.spool.result(name):
                with contextlib.suppress(FileNotFoundError):
                    self._answers[name] = result.stat().st_mtime_ns
                return False
        return (self.spool.jobs / f"{name}.json").exists()

    def _suitable(self, name: str) -> Job | None:
        """A job that this worker can judge; None for any other, with the reason told once."""
        try:
            job = self.spool.job(name)
        except InvalidFile as error:
            self._refuse(name, f"job {name} is left alone: {error}")
            return None
        if job is None or self.options.target not in ("", job.target.name):
            return None
        if why := self._judge.refusal(job):
            self._refuse(name, why)
        return None if self._refuses(name) else job

    def _answered(self, name: str, job: Job) -> bool:
        try:
            self._judge.judge_for(job.target)
            threading.Thread(target=self._prepare, args=(name,), daemon=True).start()
            evaluation = self._judge(job)
        except ConfigError as error:
            # what this machine lacks may be there later: then all is looked for anew
            why = f"job {name} cannot be judged here: {error}"
            tries = before.tries + 1 if (before := self._refused.get(name)) else 0
            pause = min(_AGAIN_S * 2**tries, _MOST_S)
            self._judge.look_again()
            self._refuse(name, why, _Refusal(f"{why} (tried again every {pause:g} s)", time.monotonic() + pause, tries))
            return False
        took = evaluation.evidence.more["worker"]["judged_s"]
        if not self._open(name):  # taken over while this process was asleep
            return True
        self._answer(name, evaluation)
        if self._refused.pop(name, None):
            self._publish_sign()
        score = f"{evaluation.score_us:.4g} us" if evaluation.score_us else evaluation.reason
        self._say(f"{name} {job.problem.name} ({job.kernel.language}): {evaluation.verdict}, {score}, in {took:.1f} s")
        return True

    def _prepare(self, name: str) -> None:
        """Compile what waits next, while this one is timed. What is wrong with it shows when its turn comes."""
        with contextlib.suppress(KsflowError, InvalidFile, OSError):
            for other in itertools.islice((other for other in self._waiting() if other != name), _AHEAD):
                job = self.spool.job(other)
                if job is not None and fits(job.target, self._judge.here):
                    self._judge.prepare(job)

    def _answer(self, name: str, evaluation: Evaluation) -> None:
        try:
            self.spool.answer(name, evaluation)
        except ValueError as error:
            harness = Evaluation(Verdict.HARNESS, f"the verdict cannot be written: {error}", judge=evaluation.judge)
            self.spool.answer(name, harness.with_evidence(more={"worker": evaluation.evidence.more["worker"]}))

    def _refuses(self, name: str) -> bool:
        refusal = self._refused.get(name)
        return refusal is not None and time.monotonic() < refusal.until

    def _refuse(self, name: str, why: str, refusal: _Refusal | None = None) -> None:
        """Leave a job alone, for ever unless `refusal` says otherwise, and tell: here, and those who wait for it."""
        self._refused[name] = refusal or _Refusal(why)
        if why not in self._reasons:
            self._reasons.add(why)
            self._say(why)
        self._publish_sign()

    def _publish_sign(self) -> None:
        asked = [name for name in self._refused if (self.spool.jobs / f"{name}.json").exists()]
        refuses = {name: self._refused[name].why for name in asked[-_SHOWN:]}
        write(self._sign, {**self._me, "is": words(self._judge.here), "refuses": refuses})
        self._heartbeat.files = (self._sign,)

    def _say(self, text: str) -> None:
        say(f"on device {self._device}: {text}" if self._device else text)


def say(text: str) -> None:
    """A line, whole even where several processes write, and from a signal's handler; lost where nobody can read it."""
    with contextlib.suppress(OSError):
        os.write(2, f"ksflow worker: {' '.join(printable(text).split())}\n".encode("utf-8", "replace"))
