"""The answering side of a job, however it came: its reference on disk, a judge of its target, the verdict.

It runs the references of the problems in the jobs, as `evaluator=local` does: work only for those you trust.
"""

import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ksflow import home
from ksflow.errors import StageError, stage_boundary
from ksflow.evaluation.compilers import cpp, hip, nvcc
from ksflow.evaluation.judge import VERSION
from ksflow.evaluation.judge.evaluator import LocalJudge
from ksflow.evaluation.remote.job_store import JudgeJob
from ksflow.kernels.hardware.target import default_target, detect, fits
from ksflow.protocols import Evaluator
from ksflow.records import Evaluation, Target, Verdict, digest


class JobJudge:
    """Judges jobs on this machine. references: a private folder for what problems bring. make: a target's judge."""

    def __init__(self, references: Path, make: Callable[[Target], Evaluator] = LocalJudge) -> None:
        self.here = default_target()
        self._references, self._make = references, make
        self._judge: Evaluator | None = None
        self._wanted: Target | None = None

    def refusal(self, job: JudgeJob) -> str:
        """Why this machine can give no verdict on a job; empty where nothing speaks against it."""
        if job.judge != f"local-{VERSION}":
            return f"jobs want the judge {job.judge}, this is local-{VERSION}: start the newer one"
        if not fits(job.target, self.here):
            return f"jobs want a {describe_machine(job.target)}; this is a {describe_machine(self.here)}"
        return ""

    def judge_for(self, wanted: Target) -> Evaluator:
        """A judge of that target, kept while jobs want the same. ConfigError."""
        if self._judge is None or self._wanted != wanted:
            self.close()
            target = wanted
            if wanted.kind == "cpu":  # what this CPU is capable of, held to what the target allows
                march = None if wanted.march == "native" else wanted.march
                target = detect(wanted.name, march, wanted.environment, wanted.cores)
            self._judge, self._wanted = self._make(target), wanted
        return self._judge

    def __call__(self, job: JudgeJob) -> Evaluation:
        """The verdict, with who gave it and how long it took. ConfigError where this machine lacks what it needs."""
        started = time.monotonic()
        folder = self._references / digest(job.problem.reference)
        folder.mkdir(exist_ok=True)
        if not (reference := folder / "reference.py").exists():
            home.write(reference, job.problem.reference)
        try:
            judge = self.judge_for(job.target)
            with stage_boundary("evaluator"):
                evaluation = judge(replace(job.problem, root=str(folder)), job.kernel, job.trials)
        except StageError as error:
            evaluation = Evaluation(Verdict.HARNESS, error.reason.splitlines()[0][:500], judge=job.judge)
        took = round(time.monotonic() - started, 3)
        here = {"host": socket.gethostname(), "machine": evaluation.target, "chip": self.here.chip, "judged_s": took}
        return evaluation.with_evidence(more={**evaluation.evidence.more, "worker": here})

    def prepare(self, job: JudgeJob) -> None:
        """Compile ahead, with the judge that there is. KsflowError: what is wrong shows when the job's turn comes."""
        if judge := self._judge:
            judge.prepare(job.problem, job.kernel)

    def look_again(self) -> None:
        """What this machine lacked may be there now: end the judge, and forget which compilers there are."""
        self.close()
        for find in (cpp.find, nvcc.find, hip.find):
            find.cache_clear()

    def close(self) -> None:
        """End the judge."""
        if self._judge:
            self._judge.close()
        self._judge = None


def describe_machine(target: Target) -> str:
    """A machine, for people."""
    return f"{target.kind} {target.chip} ({target.march})"
