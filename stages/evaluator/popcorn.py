"""`PopcornEvaluator`: verdicts from GPU MODE's service, on its GPUs, by its own harness and clock.

Tests and benchmarks are streamed, since only then errors come with their output; ranked submissions are polled, and are
found again after a crash. NOT covered: what the judge here checks beside (lazy answers, secret contents, ratios side by
side): the service times one kernel at a time, so kernels are ranked by their scores alone.
"""

import time
from functools import cached_property
from pathlib import Path

from ksflow import home
from ksflow.errors import ConfigError, one_of, reaching
from ksflow.evaluation.remote import popcorn_results as results
from ksflow.evaluation.remote.popcorn_client import Busy, Lost, Refused, Service, cli_id
from ksflow.evaluation.remote.popcorn_results import SubmissionResult
from ksflow.evaluation.remote.popcorn_submission import SubmissionWork, Submitter, turn, unfit
from ksflow.protocols import Evaluator
from ksflow.records import Evaluation, Evidence, Json, Kernel, Problem, Timing, Trial, Verdict, parse

_MODES = {"test": ("test",), "benchmark": ("test", "benchmark"), "leaderboard": ("leaderboard",)}
"""What is submitted, in this order."""
_RUNS = {"test": ("test",), "benchmark": ("benchmark",), "leaderboard": ("test", "benchmark", "leaderboard")}
"""What each submission runs."""


class PopcornEvaluator(Evaluator):
    """Has kernels judged by the service at `service`, as the user whom POPCORN_CLI_ID or ~/.popcorn.yaml names.

    service: the address. gpu: one that the leaderboard offers. leaderboard: the problem's own where it came from one.
    mode: `test` (right or wrong), `benchmark`, or `leaderboard`, which ranks them in public. folder: where submissions
    under way are noted, in the cache unless it is given, so that all of a user's processes take turns. poll_s: seconds
    between two looks at a ranked submission. timeout_s: seconds for one submission with all its waits. min_interval_s:
    seconds between two submissions. pause_s: seconds before the first retry.
    """

    judge = "popcorn"
    fingerprint = ""

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
        self.mode = one_of("evaluator.mode", mode, _MODES)
        if not gpu:
            raise ConfigError("evaluator=popcorn needs evaluator.gpu=NAME, one that the leaderboard offers")
        if not service.startswith(("https://", "http://127.0.0.1", "http://localhost")):
            raise ConfigError(f"evaluator.service={service} is not https; the cli id would be readable on the way")
        if min(poll_s, timeout_s, pause_s) <= 0 or min_interval_s < 0:
            raise ConfigError("evaluator.poll_s, timeout_s and pause_s must be positive, min_interval_s not negative")
        self.url, self.gpu, self.leaderboard = service, gpu, leaderboard
        self.poll_s, self.timeout_s, self.pause_s = poll_s, timeout_s, pause_s
        path = Path(folder).expanduser().absolute() if folder else home.cache("popcorn", "submissions")
        self.log, self.min_interval_s = path, min_interval_s
        self.fingerprint = "-".join(["popcorn", gpu, mode, *([leaderboard] if leaderboard else [])])

    def __call__(self, problem: Problem, kernel: Kernel, versus: tuple[Trial, ...]) -> Evaluation:
        """Never raises for a bad kernel. Raises ConfigError where the service refuses the set-up."""
        board = self._board(problem)
        evidence: Json = {"service": self.url, "leaderboard": board, "gpu": self.gpu, "mode": self.mode}
        if why := unfit(kernel):
            return self._verdict(Verdict.MALFORMED, why, evidence)
        answer = SubmissionResult()
        try:
            with reaching(f"{self.log} cannot be used", "set evaluator.folder"), turn(self.log):
                for mode in _MODES[self.mode]:
                    work = SubmissionWork(board, self.gpu, mode, kernel.main, time.monotonic() + self.timeout_s)
                    answer = self._submit(work, kernel.digest)
                    evidence |= answer.evidence
                    verdict, reason, extra = results.judge_runs(answer, _RUNS[mode])
                    if verdict is not Verdict.ACCEPT:
                        return self._verdict(verdict, reason, {**evidence, **extra})
        except Refused as refused:
            return self._verdict(Verdict.CHEAT if refused.cheat else Verdict.MALFORMED, str(refused), evidence)
        except (Busy, Lost) as error:
            why = f"the service gave no answer within {self.timeout_s:g} s: {error}"
            return self._verdict(Verdict.HARNESS, why, evidence)
        return self._passed(problem, answer, evidence)

    def start(self) -> None:
        """See that there is somebody to submit as. Raises ConfigError."""
        assert self._submit

    @cached_property
    def _submit(self) -> Submitter:
        return Submitter(Service(self.url, cli_id()), self.log, self.min_interval_s, self.poll_s, self.pause_s)

    def _board(self, problem: Problem) -> str:
        board = self.leaderboard or str(problem.origin.get("leaderboard") or "")
        if not board or "/" in board:
            raise ConfigError(f"{problem.name} names no leaderboard of the service; give evaluator.leaderboard=NAME")
        return board

    def _passed(self, problem: Problem, answer: SubmissionResult, evidence: Json) -> Evaluation:
        if self.mode == "test":
            reason = "right on the service's tests; evaluator.mode=benchmark has it timed"
            return self._verdict(Verdict.UNTIMED, reason, evidence)
        timed: tuple[Timing, ...] | str = results.timings(answer.runs["benchmark"], problem)
        if isinstance(timed, str):
            return self._verdict(Verdict.HARNESS, timed, evidence)
        score = problem.aggregate(timing.us for timing in timed)
        if self.mode == "leaderboard":
            ranked = answer.runs["leaderboard"].score_us
            if ranked is None:
                return self._verdict(Verdict.HARNESS, "the service ranked it without a score", evidence)
            evidence["benchmarks_us"], score = round(score, 3), ranked
        return self._verdict(Verdict.ACCEPT, "", evidence, round(score, 3), timed)

    def _verdict(
        self, verdict: Verdict, reason: str, content: Json, score: float | None = None, timed: tuple[Timing, ...] = ()
    ) -> Evaluation:
        evidence = parse(Evidence, content)
        return Evaluation(verdict, reason, score, timed, evidence, "remote", self.fingerprint, judge=self.judge)
