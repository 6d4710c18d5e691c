"""`LocalEvaluator`: compile here, judge in a child process, kernels in boxes below it. Imports no torch, no numpy."""

import hashlib
import threading
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ksflow.errors import ConfigError
from ksflow.records import Case, Evaluation, Kernel, Problem, Target, Timing, Trial, Verdict
from ksflow.stages.evaluator import compiler
from ksflow.stages.evaluator.box.levels import LEVELS, probe
from ksflow.stages.evaluator.client import Judge, environment
from ksflow.stages.evaluator.compiler import Built, compile_kernel
from ksflow.stages.evaluator.wire import Closed

_GRACE_S = 120.0
_LANGUAGES = ("python", "cpp")


class LocalEvaluator:
    """Judges kernels on this machine's CPU.

    isolation_floor: refuse to run kernels in boxes weaker than this. attempts: how often a judge that died is tried.
    """

    def __init__(self, target: Target, isolation_floor: str = "rlimits", attempts: int = 2) -> None:
        if isolation_floor not in LEVELS:
            raise ConfigError(f"evaluator.isolation_floor={isolation_floor}; valid: {', '.join(LEVELS)}")
        self.level = probe().level
        if LEVELS.index(isolation_floor) > LEVELS.index(self.level):
            raise ConfigError(
                f"evaluator.isolation_floor={isolation_floor}, but boxes reach only {self.level} here; lower it"
            )
        self.target = target
        self.attempts = attempts
        self._lock = threading.Lock()
        self._judge = Judge(target.environment)
        found = compiler.find()
        self._fingerprint = f"{target.fingerprint}-{found.name if found else 'nocompiler'}"

    def __call__(self, problem: Problem, kernel: Kernel, against: tuple[Trial, ...]) -> Evaluation:
        """Never raises for a bad kernel. Raises ConfigError when the machine lacks what the kernel needs."""
        if kernel.language not in problem.languages or kernel.language not in _LANGUAGES:
            return self._verdict(Verdict.MALFORMED, f"language {kernel.language} cannot be judged here")
        with self._lock:
            description = _describe(problem)
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
                },
            )
        evidence = dict(answer["evidence"])
        if built.artefact:
            evidence["artefact"] = hashlib.sha256(Path(built.artefact).read_bytes()).hexdigest()[:16]
        if skipped:
            evidence["skipped"] = {**evidence.get("skipped", {}), **skipped}
        return self._evaluation(problem, answer, evidence)

    def admit(self, problem: Problem) -> tuple[tuple[str, bool, str], ...]:
        """Whether the problem can be judged: (name, ok, detail) for the reference, lazy answers and every seed."""
        with self._lock:
            self._wake()
            answer = self._ask(problem, {"op": "probe", "problem": _describe(problem)})
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
        self._judge.close()

    # -- inside ----------------------------------------------------------------------------------

    def _wake(self) -> None:
        if not self._judge.alive:
            self._judge.restart()

    def _ask(self, problem: Problem, request: dict[str, Any]) -> dict[str, Any]:
        """The judge's answer. One that died or hangs is replaced; when that does not help, nobody is blamed."""
        limits = problem.limits
        timeout = limits.check_s * 2 + limits.time_s * 2 + _GRACE_S
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
        return Evaluation(verdict, line, score_us, timings, found, self.level, self._fingerprint)


def _source(kernel: Kernel) -> dict[str, Any]:
    return {"language": kernel.language, "files": dict(kernel.files)}


def _describe(problem: Problem) -> dict[str, Any]:
    """What the judge needs to know of a problem."""
    return {
        "root": problem.root,
        "digest": problem.digest,
        "args": [{"name": arg.name, "role": arg.role} for arg in problem.args],
        "dims": list(problem.dims),
        "tests": [_case(case) for case in problem.tests],
        "benchmarks": [_case(case) for case in problem.benchmarks],
        "check": asdict(problem.check),
        "limits": asdict(problem.limits),
    }


def _case(case: Case) -> dict[str, Any]:
    return {"name": case.name, "params": dict(case.params), "seed": case.seed}
