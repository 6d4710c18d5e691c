"""`LocalEvaluator`: compile here, judge in a child process, kernels in boxes below it. Imports no torch, no numpy."""

import hashlib
import os
import threading
from collections.abc import Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

from ksflow import home
from ksflow.errors import ConfigError
from ksflow.records import Case, Evaluation, Kernel, Problem, Target, Timing, Trial, Verdict
from ksflow.stages.evaluator import compiler, seats
from ksflow.stages.evaluator.box.levels import LEVELS, probe
from ksflow.stages.evaluator.client import Judge, environment
from ksflow.stages.evaluator.compiler import Built, compile_kernel
from ksflow.stages.evaluator.judge import VERSION
from ksflow.stages.evaluator.wire import Closed
from ksflow.work import floor_us

_GRACE_S = 120.0
_LANGUAGES = ("python", "cpp")
_SEATS = 2
"""Cores for the judge and its boxes."""
_CONTROLS = ("claims", "always")


class LocalEvaluator:
    """Judges kernels on this machine's CPU.

    isolation_floor: refuse to run kernels in boxes weaker than this. attempts: how often a judge that died is tried.
    control: time the incumbent against itself with `claims` of being faster only, or `always`. overlap: compile while
    another kernel is timed; None does so where there are more cores than the judge and its boxes sit on.
    """

    def __init__(
        self,
        target: Target,
        isolation_floor: str = "rlimits",
        attempts: int = 2,
        control: str = "claims",
        overlap: bool | None = None,
    ) -> None:
        if control not in _CONTROLS:
            raise ConfigError(f"evaluator.control={control}; valid: {', '.join(_CONTROLS)}")
        if isolation_floor not in LEVELS:
            raise ConfigError(f"evaluator.isolation_floor={isolation_floor}; valid: {', '.join(LEVELS)}")
        self.level = probe().level
        if LEVELS.index(isolation_floor) > LEVELS.index(self.level):
            raise ConfigError(
                f"evaluator.isolation_floor={isolation_floor}, but boxes reach only {self.level} here; lower it"
            )
        if target.kind != "cpu":
            raise ConfigError(
                f"target={target.name} is a {target.kind}, and evaluator=local judges on this machine's CPU; "
                "use target=auto"
            )
        self.target = target
        self.attempts = attempts
        self.control = control
        self.overlap = len(os.sched_getaffinity(0)) > _SEATS if overlap is None else overlap
        self._lock = threading.Lock()
        self._left: frozenset[int] = frozenset()
        found = compiler.find()
        self.judge = f"local-{VERSION}"
        self.fingerprint = f"{target.fingerprint}-{found.name if found else 'nocompiler'}"

    def __call__(self, problem: Problem, kernel: Kernel, against: tuple[Trial, ...]) -> Evaluation:
        """Never raises for a bad kernel. Raises ConfigError when the machine lacks what the kernel needs."""
        if kernel.language not in problem.languages or kernel.language not in _LANGUAGES:
            return self._verdict(Verdict.MALFORMED, f"language {kernel.language} cannot be judged here")
        with self._lock:
            description = _describe(problem, self.target)
            self._wake()
            self._judge.post({"op": "prepare", "problem": description})
            built = self._build(problem, kernel)
            if built.reason:
                verdict = Verdict.TIMEOUT if built.timed_out else Verdict.COMPILE
                return self._verdict(verdict, built.reason, {"log": built.log})
            others, skipped = self._others(problem, against)
            answer = self._ask(
                problem,
                {
                    "op": "evaluate",
                    "problem": description,
                    "kernel": {**_source(kernel), "artefact": built.artefact},
                    "against": others,
                    "control": self.control,
                },
            )
        evidence = dict(answer["evidence"])
        self._keep_off(evidence.get("cores", {}))
        if built.artefact:
            evidence["artefact"] = hashlib.sha256(Path(built.artefact).read_bytes()).hexdigest()[:16]
        if skipped:
            evidence["skipped"] = {**evidence.get("skipped", {}), **skipped}
        return self._evaluation(problem, answer, evidence)

    @cached_property
    def _judge(self) -> Judge:
        return Judge(self.target.environment)

    def start(self) -> None:
        """Have the judge load what it needs, which takes a second or two, before it is asked."""
        self._wake()

    def prepare(self, problem: Problem, kernel: Kernel) -> None:
        """Compile ahead, where that disturbs nobody: what was made is found again when the kernel is judged."""
        if self.overlap and kernel.language in problem.languages and kernel.language in _LANGUAGES:
            self._build(problem, kernel)

    def admit(self, problem: Problem) -> tuple[tuple[str, bool, str], ...]:
        """Whether the problem can be judged: (name, ok, detail) for the reference, lazy answers and every seed."""
        with self._lock:
            self._wake()
            answer = self._ask(problem, {"op": "probe", "problem": _describe(problem, self.target)})
        rows = [(str(name), bool(ok), str(detail)) for name, ok, detail in answer.get("rows", ())]
        if not rows:
            rows = [("reference", False, answer["reason"])]
        for seed in problem.seeds:
            result = self(problem, seed.kernel, ())
            took = f"{result.score_us:.1f} us" if result.score_us else f"{result.verdict}: {result.reason}"
            rows.append((f"seed {seed.name}", result.accepted, took))
        return tuple(rows)

    def close(self) -> None:
        """End the judge. Not needed: it ends with this process."""
        if "_judge" in self.__dict__:
            self._judge.close()

    # -- inside ----------------------------------------------------------------------------------

    def _keep_off(self, cores: dict[str, Any]) -> None:
        """Whatever else this process does from now on, it does it on other cores than the judge, if there are any."""
        sat = frozenset((*cores.get("judge", ()), *filter(None, [cores.get("box")])))
        if sat != self._left:
            seats.keep_off(sat, (self._judge.pid, compiler.workshop_pid()))
            self._left = sat

    def _wake(self) -> None:
        if not self._judge.alive:
            self._judge.restart()

    def _ask(self, problem: Problem, request: dict[str, Any]) -> dict[str, Any]:
        """The judge's answer. One that died or hangs is replaced; when that does not help, nobody is blamed."""
        limits = problem.limits
        timeout = limits.check_s * 2 + limits.time_s * 4 + _GRACE_S
        reason = ""
        evidence: dict[str, Any] = {}
        for _ in range(self.attempts):
            try:
                self._wake()
                answer = self._judge.ask(request, timeout)
            except Closed as error:
                cause, _, words = str(error).partition("\n")
                reason, evidence = f"the judge died: {cause}", {"log": words}
                continue
            _keep(answer.get("secret"))
            if answer.get("verdict") != Verdict.HARNESS:
                return answer
            reason, evidence = answer["reason"], answer["evidence"]
            self._judge.restart()  # whatever is broken in it, a new one has it whole
        evidence = {**evidence, "attempts": self.attempts}
        return {"verdict": "harness-error", "reason": reason, "timings": [], "evidence": evidence}

    def _build(self, problem: Problem, kernel: Kernel) -> Built:
        if kernel.language == "python":
            return Built()
        return compile_kernel(problem, kernel, self.target, environment({}))

    def _others(self, problem: Problem, against: Sequence[Trial]) -> tuple[list[dict[str, Any]], dict[str, str]]:
        others, skipped = [], {}
        for trial in against:
            if trial.kernel is None:
                skipped[trial.id] = "has no kernel"
                continue
            built = self._build(problem, trial.kernel)
            if built.reason:
                skipped[trial.id] = built.reason
                continue
            others.append({**_source(trial.kernel), "artefact": built.artefact, "id": trial.id})
        return others, skipped

    def _evaluation(self, problem: Problem, answer: dict[str, Any], evidence: dict[str, Any]) -> Evaluation:
        verdict = Verdict(answer["verdict"])
        if verdict is not Verdict.ACCEPT:
            return self._verdict(verdict, answer["reason"], evidence)
        timings = tuple(
            Timing(row["case"], row["us"], tuple(row["samples_us"]), row["cpu_us"]) for row in answer["timings"]
        )
        score = problem.aggregate(timing.us for timing in timings)
        return self._verdict(verdict, "", evidence, timings, round(score, 3))

    def _verdict(
        self,
        verdict: Verdict,
        reason: str,
        evidence: dict[str, Any] | None = None,
        timings: tuple[Timing, ...] = (),
        score_us: float | None = None,
    ) -> Evaluation:
        line = " ".join(reason.split())[:500]
        found = evidence or {}
        return Evaluation(verdict, line, score_us, timings, found, self.level, self.fingerprint, judge=self.judge)


def _keep(secret: dict[str, str] | None) -> None:
    """Keep what contents were drawn from (SHA-256 of `salt:case:number`, 31 bits): for this user's eyes only."""
    if secret is None:
        return
    file = home.cache("contents", secret["contents"])
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT, 0o600), "w") as out:
            out.write(secret["salt"])


def _source(kernel: Kernel) -> dict[str, Any]:
    return {"language": kernel.language, "files": dict(kernel.files)}


def _describe(problem: Problem, target: Target) -> dict[str, Any]:
    """What the judge needs to know of a problem."""
    return {
        "root": problem.root,
        "digest": problem.digest,
        "args": [asdict(arg) for arg in problem.args],
        "dims": list(problem.dims),
        "tests": [_case(case) for case in problem.tests],
        "benchmarks": [{**_case(case), "floor": floor_us(problem, case, target)} for case in problem.benchmarks],
        "check": asdict(problem.check),
        "limits": asdict(problem.limits),
    }


def _case(case: Case) -> dict[str, Any]:
    return {"name": case.name, "params": dict(case.params), "seed": case.seed}
