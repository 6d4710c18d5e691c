"""`PopcornEvaluator`: verdicts from GPU MODE's service, on its GPUs, by its own harness and clock.

Tests and benchmarks are streamed, since only then errors come with their output; ranked submissions are polled, and are
found again after a crash. NOT covered: what the judge here checks beside (lazy answers, secret contents, ratios side by
side): the service times one kernel at a time, so kernels are ranked by their scores alone.
"""

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import structlog

from ksflow import home
from ksflow.errors import ConfigError
from ksflow.records import Evaluation, Json, Kernel, Problem, Timing, Trial, Verdict
from ksflow.remote import popcorn_results as results
from ksflow.remote.popcorn_client import Busy, Lost, Refused, Service, cli_id
from ksflow.remote.popcorn_lint import fault
from ksflow.remote.popcorn_requests import Submission, SubmissionLog
from ksflow.remote.popcorn_results import Answer

T = TypeVar("T")
_MODES = {"test": ("test",), "benchmark": ("test", "benchmark"), "leaderboard": ("leaderboard",)}
"""What is submitted, in this order."""
_RUNS = {"test": ("test",), "benchmark": ("benchmark",), "leaderboard": ("test", "benchmark", "leaderboard")}
"""What each submission runs."""
_ALONE = "the service times one kernel at a time: no ratio, kernels are ranked by their scores"
_LONGEST_PAUSE_S = 300.0
_TRIES = 6
"""Of one question, while the service says neither yes nor when."""
_STEPS = 12
"""Of one submission: made, lost, looked for, polled."""


@dataclass(frozen=True)
class _Work:
    """What is submitted, and until when its end is waited for."""

    board: str
    gpu: str
    mode: str
    text: str
    deadline: float

    @property
    def path(self) -> str:
        return f"{self.board}/{self.gpu}/{self.mode}"


class PopcornEvaluator:
    """Has kernels judged by the service at `service`, as the user whom POPCORN_CLI_ID or ~/.popcorn.yaml names.

    leaderboard: the problem's own where it came from one. mode: `test` (right or wrong), `benchmark`, or `leaderboard`,
    which ranks them in public. folder: where submissions under way are noted, in the cache
    unless it is given, so that all of a user's processes take turns. Seconds: poll_s between two looks at a
    ranked submission, timeout_s for one submission with all its waits, min_interval_s between two submissions, pause_s
    before the first retry.
    """

    judge = "popcorn"

    def __init__(  # noqa: PLR0913 - how to behave towards somebody else's service
        self,
        service: str,
        gpu: str | None = None,
        leaderboard: str | None = None,
        mode: str = "benchmark",
        folder: str | None = None,
        poll_s: float = 5.0,
        timeout_s: float = 3600.0,
        min_interval_s: float = 10.0,
        pause_s: float = 5.0,
    ) -> None:
        if mode not in _MODES:
            raise ConfigError(f"evaluator.mode={mode}; valid: {', '.join(_MODES)}")
        if not gpu:
            raise ConfigError("evaluator=popcorn needs evaluator.gpu=NAME, one that the leaderboard offers")
        if not service.startswith(("https://", "http://127.0.0.1", "http://localhost")):
            raise ConfigError(f"evaluator.service={service} is not https; the cli id would be readable on the way")
        if min(poll_s, timeout_s, pause_s) <= 0 or min_interval_s < 0:
            raise ConfigError("evaluator.poll_s, timeout_s and pause_s must be positive, min_interval_s not negative")
        self.url, self.gpu, self.leaderboard, self.mode = service, gpu, leaderboard, mode
        self.poll_s, self.timeout_s, self.pause_s = poll_s, timeout_s, pause_s
        place = Path(folder).expanduser().absolute() if folder else home.cache("popcorn", "submissions")
        self.log = SubmissionLog(place, min_interval_s)
        self.fingerprint = "-".join(["popcorn", gpu, mode, *([leaderboard] if leaderboard else [])])

    def __call__(self, problem: Problem, kernel: Kernel, against: tuple[Trial, ...]) -> Evaluation:
        """Never raises for a bad kernel. Raises ConfigError where the service refuses the set-up."""
        board = self._board(problem)
        evidence: Json = {"service": self.url, "leaderboard": board, "gpu": self.gpu, "mode": self.mode}
        if against:
            evidence["skipped"] = {trial.id: _ALONE for trial in against}
        if why := fault(kernel, board):
            return self._failed(Verdict.MALFORMED, why, evidence)
        answer = Answer()
        try:
            with self.log.turn():
                for mode in _MODES[self.mode]:
                    work = _Work(board, self.gpu, mode, kernel.main, time.monotonic() + self.timeout_s)
                    answer = self._submitted(work, self.log.submission(self.url, work.path, kernel.digest))
                    evidence |= answer.evidence
                    verdict, reason, more = results.judged(answer, _RUNS[mode])
                    if verdict is not Verdict.ACCEPT:
                        return self._failed(verdict, reason, {**evidence, **more})
        except Refused as refused:
            return self._failed(Verdict.CHEAT if refused.cheat else Verdict.MALFORMED, str(refused), evidence)
        except (Busy, Lost) as error:
            why = f"the service gave no answer within {self.timeout_s:g} s: {error}"
            return self._failed(Verdict.HARNESS, why, evidence)
        except OSError as error:
            raise ConfigError(f"{self.log.folder} cannot be used: {error}; set evaluator.folder") from error
        return self._passed(problem, answer, evidence)

    def start(self) -> None:
        """See that there is somebody to submit as. ConfigError."""
        assert self._service

    # -- inside ----------------------------------------------------------------------------------

    @cached_property
    def _service(self) -> Service:
        return Service(self.url, cli_id())

    def _board(self, problem: Problem) -> str:
        board = self.leaderboard or str(problem.origin.get("leaderboard") or "")
        if not board or "/" in board:
            raise ConfigError(f"{problem.name} names no leaderboard of the service; give evaluator.leaderboard=NAME")
        return board

    def _submitted(self, work: _Work, submission: Submission) -> Answer:
        """The end of a submission: of one that was under way when the program ended, else of a new one."""
        answer = None
        try:
            for _ in range(_STEPS):
                if answer is not None:
                    break
                if submission.id is not None:
                    answer = self._polled(submission.id, work)
                    submission = submission if answer else self.log.renew(submission)
                elif submission.known:
                    submission = self._found(submission, work)
                else:
                    submission, answer = self._posted(submission, work)
        except (Refused, ConfigError):
            self.log.done(submission)
            raise
        if answer is None:
            raise Lost("submissions are lost again and again")
        self.log.done(submission)
        return answer

    def _found(self, submission: Submission, work: _Work) -> Submission:
        """With its number, where the service has it; else it is not known to anybody yet."""
        number = self._patiently(lambda: self._service.find(work.board, submission.name), work)
        return replace(submission, known=False) if number is None else self.log.numbered(submission, number)

    def _posted(self, submission: Submission, work: _Work) -> tuple[Submission, Answer | None]:
        """Submit. No answer where it has to be polled, or looked for after a lost connection."""

        def post() -> Answer | int:
            self.log.pace()
            if work.mode == "leaderboard":
                return self._service.post(work.path, submission.name, work.text)
            return self._streamed(submission.name, work)

        try:
            got = self._patiently(post, work, lost=False)
        except Lost as error:
            self._wait(self.pause_s, error, work)
            return replace(submission, known=True), None
        return (submission, got) if isinstance(got, Answer) else (self.log.numbered(submission, got), None)

    def _streamed(self, name: str, work: _Work) -> Answer:
        with closing(self._service.streamed(work.path, name, work.text)) as events:
            for event in events:
                if event["event"] == "result":
                    return results.streamed(event)
                if time.monotonic() > work.deadline:
                    raise Lost("the job still runs")
        raise Lost("the service ended its answer without a result")

    def _polled(self, number: int, work: _Work) -> Answer | None:
        """The end of a submission, once it is there. None where the service has lost it or ran nothing of it."""
        while True:
            found = self._patiently(lambda: self._service.submission(number), work)
            if found is None:
                return None
            answer = results.polled(found)
            if answer is not None:
                return None if answer.empty else answer
            self._wait(self.poll_s, Busy(f"submission {number} still runs"), work, tell=False)

    def _patiently(self, ask: Callable[[], T], work: _Work, lost: bool = True) -> T:
        """What the service says, asked again while it is busy; after a lost connection where that submits nothing."""
        pause, left = self.pause_s, _TRIES
        while True:
            left -= 1
            try:
                return ask()
            except Busy as busy:
                if busy.after_s is None and not left:
                    raise
                self._wait(max(pause, busy.after_s or 0.0), busy, work)
            except Lost as error:
                if not (lost and left):
                    raise
                self._wait(pause, error, work)
            pause = min(pause * 2, _LONGEST_PAUSE_S)

    def _wait(self, seconds: float, why: Busy | Lost, work: _Work, tell: bool = True) -> None:
        """Raises `why` where there is no time left for it."""
        if time.monotonic() + seconds > work.deadline:
            raise why
        if tell:
            structlog.get_logger("ksflow.popcorn").warning("waiting for the service", seconds=seconds, why=str(why))
        time.sleep(seconds)

    def _passed(self, problem: Problem, answer: Answer, evidence: Json) -> Evaluation:
        if self.mode == "test":
            reason = "right on the service's tests; evaluator.mode=benchmark has it timed"
            return self._made(Evaluation(Verdict.UNTIMED, reason, evidence=evidence))
        timed: tuple[Timing, ...] | str = results.timings(answer.runs["benchmark"], problem)
        if isinstance(timed, str):
            return self._failed(Verdict.HARNESS, timed, evidence)
        score = problem.aggregate(timing.us for timing in timed)
        if self.mode == "leaderboard":
            ranked = answer.runs["leaderboard"].score_us
            if ranked is None:
                return self._failed(Verdict.HARNESS, "the service ranked it without a score", evidence)
            evidence["benchmarks_us"], score = round(score, 3), ranked
        return self._made(Evaluation(Verdict.ACCEPT, "", round(score, 3), timed, evidence))

    def _failed(self, verdict: Verdict, reason: str, evidence: Json) -> Evaluation:
        line = " ".join(reason.split())[:500]
        return self._made(Evaluation(verdict, line, evidence=evidence))

    def _made(self, evaluation: Evaluation) -> Evaluation:
        return replace(evaluation, isolation="remote", target=self.fingerprint, judge=self.judge)
