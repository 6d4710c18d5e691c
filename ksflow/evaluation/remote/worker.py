"""`python -m ksflow worker FOLDER`: judges the jobs in a folder, one at a time, on the first GPU that it sees.

Claims one, has `JobJudge` judge it, writes the result, goes on. Needs Python, torch and the folder; no network.
Standard library only: the judge's processes import torch.
"""

import contextlib
import itertools
import math
import os
import secrets
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ksflow.errors import ConfigError, KsflowError, boolean, reaching, strip_controls
from ksflow.evaluation.judge.evaluator import LocalJudge, require_isolation
from ksflow.evaluation.processes import ending
from ksflow.evaluation.remote import worker_payload
from ksflow.evaluation.remote.job_judge import JobJudge, describe_machine
from ksflow.evaluation.remote.job_store import NAME, InvalidFile, JobStore, JudgeJob, folder_path, write
from ksflow.evaluation.sandbox.levels import LOWEST_FLOOR, probe
from ksflow.kernels.hardware.target import fits
from ksflow.records import Evaluation, Verdict

_USAGE = (
    "python -m ksflow worker FOLDER [once=true] [idle_minutes=N] [profile=true] [sanitize=false] "
    "[isolation_floor=LEVEL]"
)
_SHORTEST_S, _LONGEST_S = 0.05, 1.0
_AHEAD = 3
_AGAIN_S, _MOST_S = 5.0, 300.0
"""A job that could not be judged, for what this machine lacks, is tried again: after so long, then twice that."""
_SHOWN = 1000  # the latest refusals, which those who wait can read
_BEAT_S = 10.0
_STALE_S, _FORGOTTEN_S = 120.0, 86400.0
"""Without a sign of life, whose claim and whose file is removed. File systems may show a minute-old state."""


@dataclass(frozen=True)
class Options:
    """What a worker was told; `ksflow worker --help` has it in words."""

    once: bool = False
    idle_s: float = math.inf
    profile: bool = False
    sanitize: bool = True
    isolation_floor: str = LOWEST_FLOOR


@dataclass(frozen=True)
class _Refusal:
    """Why a job is left alone, until when (by the monotonic clock), and for how long."""

    why: str
    until: float
    pause_s: float


def main(arguments: list[str]) -> int:
    """The verb `worker`; the exit code. It ends after the job at hand; asked twice at once (KeyboardInterrupt)."""
    folder, options = _arguments(arguments)
    with reaching(f"the folder {folder} cannot be used", "name another one"):
        spool = JobStore(folder)
        spool.make()
        with tempfile.TemporaryDirectory(prefix="ksflow-worker-") as references:
            worker = Worker(spool, options, Path(references))

            def asked(_: int) -> None:
                if worker.stop:
                    raise KeyboardInterrupt
                worker.stop = True
                say("ends after the job at hand; Ctrl-C again abandons it")

            with ending.handle_signals(asked):
                newer = worker.run()
    if newer:
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    return 0


class Worker:
    """What the process does that judges. `references`: a private folder for what problems bring."""

    def __init__(self, spool: JobStore, options: Options, references: Path) -> None:
        require_isolation(options.isolation_floor, probe().level)
        self.spool, self.options = spool, options
        self.stop = False  # set from outside: finish the job at hand, then end
        self._judge = JobJudge(references, partial(LocalJudge, profile=options.profile, sanitize=options.sanitize))
        self._stamp = worker_payload.stamp(spool.root)
        self._sign = spool.workers / f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}.json"
        self._claim: Path | None = None
        self._over = threading.Event()
        self._told: set[str] = set()
        self._refused: dict[str, _Refusal] = {}
        self._answered: set[str] = set()

    def run(self) -> bool:
        """Until told to stop, or as the options say; whether the folder has newer code, to be started instead."""
        self._publish_sign()
        for path in self.spool.workers.glob("*.json"):  # of workers that were killed
            self._remove_stale(path, _FORGOTTEN_S)
        threading.Thread(target=self._beat, daemon=True).start()
        say(f"{describe_machine(self._judge.here)} waits for jobs in {self.spool.root}")
        pause, since = _SHORTEST_S, time.monotonic()
        try:
            while not self.stop:
                if self._stamp != worker_payload.stamp(self.spool.root):
                    return True
                if self._judge_next():
                    pause, since = _SHORTEST_S, time.monotonic()
                elif self.options.once or time.monotonic() - since > self.options.idle_s:
                    break
                else:
                    time.sleep(pause)
                    pause = min(pause * 1.5, _LONGEST_S)
        finally:
            self._over.set()
            self._sign.unlink(missing_ok=True)
            self._judge.close()
        return False

    def _beat(self) -> None:
        """Keep the files fresh that say that this process lives."""
        while not self._over.wait(_BEAT_S):
            for path in (self._sign, self._claim):
                with contextlib.suppress(OSError):
                    if path:
                        os.utime(path)

    def _judge_next(self) -> bool:
        """Judge the oldest job that is free; whether there was one."""
        for name in self._waiting():
            if (job := self._suitable(name)) is None:
                continue
            try:
                self._claim = self._taken(name)
                if self._claim and self._open(name) and self._judged(name, job):  # nobody answered it in between
                    return True
            finally:
                if self._claim:
                    self._claim.unlink(missing_ok=True)
                self._claim = None
        return False

    def _taken(self, name: str) -> Path | None:
        """This worker's claim on a job, a file that one alone can make; None while another's holds."""
        path = self.spool.claims / name
        self._remove_stale(path, _STALE_S)
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(f"{socket.gethostname()} {os.getpid()}\n")
        except FileExistsError:
            return None
        return path

    def _remove_stale(self, path: Path, after_s: float) -> None:
        """Machines need not agree about the time: this worker's own sign, touched all the while, is the clock."""
        with contextlib.suppress(FileNotFoundError):
            if self._sign.stat().st_mtime - path.stat().st_mtime > after_s:
                path.unlink()

    def _waiting(self) -> Iterator[str]:
        """Jobs without a result, the oldest first."""
        jobs = []
        for path in self.spool.jobs.glob("*.json"):
            with contextlib.suppress(FileNotFoundError):
                jobs.append((path.stat().st_mtime_ns, path.stem))
        for _, name in sorted(jobs):
            refusal = self._refused.get(name)
            left_alone = refusal is not None and time.monotonic() < refusal.until
            if NAME.fullmatch(name) and not left_alone and self._open(name):
                yield name

    def _open(self, name: str) -> bool:
        """Whether it is there and not answered. An answer is read once: where folders are copied, it stays."""
        there = (self.spool.results / f"{name}.json").exists()
        with contextlib.suppress(InvalidFile):
            if there and (name in self._answered or self.spool.result(name)):
                self._answered.add(name)
                return False
        return (self.spool.jobs / f"{name}.json").exists()

    def _suitable(self, name: str) -> JudgeJob | None:
        """A job that this worker can judge; None for any other, with the reason told once."""
        try:
            job = self.spool.job(name)
            why = self._judge.refusal(job) if job else ""
        except InvalidFile as error:
            why = f"job {name} is left alone: {error}"
        if why:
            self._refuse(name, why)
            return None
        return job

    def _judged(self, name: str, job: JudgeJob) -> bool:
        """Judge a job and answer it; False where this machine lacks what it needs."""
        try:
            self._judge.judge_for(job.target)
            threading.Thread(target=self._prepare, args=(name,), daemon=True).start()
            evaluation = self._judge(job)
        except ConfigError as error:  # what is lacking may be there later: then all is looked for anew
            before = self._refused.get(name)
            self._judge.look_again()
            pause_s = min(before.pause_s * 2, _MOST_S) if before else _AGAIN_S
            self._refuse(name, f"job {name} cannot be judged here: {error}", pause_s)
            return False
        if not self._open(name):  # taken over while this process was asleep
            return True
        self._answer(name, evaluation)
        if self._refused.pop(name, None):
            self._publish_sign()
        took = evaluation.evidence.more["worker"]["judged_s"]
        score = f"{evaluation.score_us:.4g} us" if evaluation.score_us else evaluation.reason
        say(f"{name} {job.problem.name} ({job.kernel.language}): {evaluation.verdict}, {score}, in {took:.1f} s")
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

    def _refuse(self, name: str, why: str, pause_s: float = math.inf) -> None:
        """Leave a job alone for so long, and tell: here, and those who wait for it."""
        again = "" if pause_s == math.inf else f" (tried again every {pause_s:g} s)"
        self._refused[name] = _Refusal(why + again, time.monotonic() + pause_s, pause_s)
        if why not in self._told:
            self._told.add(why)
            say(why)
        self._publish_sign()

    def _publish_sign(self) -> None:
        refuses = {name: refusal.why for name, refusal in [*self._refused.items()][-_SHOWN:]}
        write(self._sign, {"is": describe_machine(self._judge.here), "refuses": refuses})


def say(text: str) -> None:
    """A line, whole even where several processes write, and from a signal's handler; lost where nobody can read it."""
    with contextlib.suppress(OSError):
        os.write(2, f"ksflow worker: {' '.join(strip_controls(text).split())}\n".encode("utf-8", "replace"))


def _arguments(arguments: list[str]) -> tuple[Path, Options]:
    if not arguments or "=" in arguments[0].rpartition("/")[2]:
        raise ConfigError(f"which folder? {_USAGE}")
    folder = folder_path(arguments[0]).resolve()
    if not folder.is_dir():
        raise ConfigError(f"no folder {folder}: make it, or name the one of evaluator.folder; {_USAGE}")
    settings = dict(argument.partition("=")[::2] for argument in arguments[1:])
    once, profile, sanitize = (
        boolean(name, settings.pop(name, usual))
        for name, usual in (("once", "false"), ("profile", "false"), ("sanitize", "true"))
    )
    idle, floor = settings.pop("idle_minutes", "inf"), settings.pop("isolation_floor", LOWEST_FLOOR)
    if settings:
        raise ConfigError(f"cannot read {' '.join(arguments[1:])}; {_USAGE}")
    try:
        idle_s = float(idle) * 60
    except ValueError as error:
        raise ConfigError(f"idle_minutes={idle} is not a number; {_USAGE}") from error
    return folder, Options(once, idle_s, profile, sanitize, floor)
