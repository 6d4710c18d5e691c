"""What GPU MODE's service answered -> a verdict with timings. It is data: parsed and bounded.

A streamed answer tells exit codes, output and each case; a polled one each case of the public runs, and no output.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ksflow.records import Json, Problem, Timing, Verdict

_NO_TESTS, _TIMED_OUT = 112, 114
_OURS = (111, 113)  # exit codes of the service's own harness
_NOT_BUILT = re.compile(
    r"SyntaxError|IndentationError|Error building extension|CompilationError|compilation terminated|ninja: build stop"
)
_UNDER_WAY = ("initial", "pending", "running")
_LONGEST = 4000
_MOST_CASES = 1000
_NS_PER_US = 1e3
_US_PER_S = 1e6


@dataclass(frozen=True)
class SubmissionRun:
    """One run of a submission: `test`, `benchmark` or `leaderboard`."""

    passed: bool
    success: bool = True  # the program ended by itself, and did not crash
    result: Mapping[str, Any] = field(default_factory=dict)
    exit_code: int | None = None
    stderr: str = ""
    stdout: str = ""
    build_log: str | None = None  # why the extension was not built; None where it was, or none was
    score_us: float | None = None


@dataclass(frozen=True)
class SubmissionResult:
    """All of a submission's end."""

    runs: Mapping[str, SubmissionRun] = field(default_factory=dict)  # public ones, by mode
    secret_failed: bool = False
    fault: str = ""  # what went wrong around the runs, in the service's words
    cheat: bool = False
    timed_out: bool = False
    evidence: Json = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        """Nothing ran, and nobody says why: as when the connection that it was streamed over was lost."""
        return not (self.runs or self.secret_failed or self.fault or self.cheat or self.timed_out)


def parse_stream_end(event: Json) -> SubmissionResult:
    """Of a stream's last event."""
    results = [result for result in _list(event.get("results")) if isinstance(result, dict)]
    report = "\n".join(str(part) for part in _list(event.get("reports")))
    evidence: Json = {"report": _short(report)} if report.strip() else {}
    if not results:
        return SubmissionResult(fault="the service's answer has no results", evidence=evidence)
    first = results[0]
    if isinstance(first.get("system"), dict):
        evidence["machine"] = {str(key): str(value)[:200] for key, value in first["system"].items() if value}
    runs = {str(mode): _run(run) for mode, run in _dict(first.get("runs")).items() if isinstance(run, dict)}
    fault = "" if first.get("success", True) else str(first.get("error") or "the service says no success")
    return SubmissionResult(runs, fault=fault[:500], evidence=evidence)


def parse_submission(submission: Json) -> SubmissionResult | None:
    """Of a submission that was asked for; None while it is not done."""
    job = _dict(submission.get("job"))
    status = str(job.get("status") or "")
    if status in _UNDER_WAY or not (status or submission.get("done")):
        return None
    runs: dict[str, SubmissionRun] = {}
    secret_failed = False
    for row in _list(submission.get("runs")):
        run = _dict(row)
        if run.get("secret"):
            secret_failed |= not run.get("passed")
            continue
        score = _number(run.get("score"))
        score_us = score * _US_PER_S if score else None
        runs[str(run.get("mode"))] = SubmissionRun(
            bool(run.get("passed")), result=_dict(run.get("result")), score_us=score_us
        )
    fault = str(job.get("error") or "")[:500] if status != "succeeded" else ""
    evidence = {"submission": submission.get("id"), "job": status} if status else {"submission": submission.get("id")}
    return SubmissionResult(runs, secret_failed, fault, status == "hacked", status == "timed_out", evidence)


def judge_runs(answer: SubmissionResult, modes: Iterable[str]) -> tuple[Verdict, str, Json]:
    """What the runs of these modes say, in their order: `accept` where all passed. (verdict, reason, evidence)."""
    if answer.cheat:
        return Verdict.CHEAT, answer.fault or "the service calls it a hack", {}
    for mode in modes:
        run = answer.runs.get(mode)
        if run is None:
            break
        if not run.passed:
            return _failed(mode, run)
    if answer.timed_out:
        return Verdict.TIMEOUT, answer.fault or "the service's time was over", {}
    if answer.secret_failed:
        return Verdict.INCORRECT, answer.fault or "wrong on the service's secret cases", {}
    if missing := [mode for mode in modes if mode not in answer.runs]:
        why = f": {answer.fault}" if answer.fault else ""
        return Verdict.HARNESS, f"the service ran no {missing[0]}{why}", {}
    if answer.fault:
        return Verdict.HARNESS, answer.fault, {}
    return Verdict.ACCEPT, "", {}


def timings(run: SubmissionRun, problem: Problem) -> tuple[Timing, ...] | str:
    """A time for each of the problem's benchmarks, or why there is none. Cases are matched by value, in any order."""
    numbers = range(_count(run.result, "benchmark"))
    rows = [(parse_spec(str(run.result.get(f"benchmark.{number}.spec", ""))), number) for number in numbers]
    times = []
    for case in problem.benchmarks:
        wanted = {key: str(value).strip() for key, value in case.params.items()}
        seeded = {**wanted, "seed": str(case.seed)}  # a case whose format has no seed says none
        number = next((number for spec, number in rows if {"seed": str(case.seed), **spec} == seeded), None)
        if number is None:
            return f"the service did not time {case.name}: it has other cases (problem=popcorn problem.refresh=true)"
        mean = _number(run.result.get(f"benchmark.{number}.mean"))
        if mean is None or mean <= 0:
            return f"the service's time of {case.name} is no positive number"
        best, worst = (_number(run.result.get(f"benchmark.{number}.{name}")) for name in ("best", "worst"))
        seen = [value / _NS_PER_US for value in (best, mean, worst) if value and value > 0]
        times.append(Timing(case.name, round(mean / _NS_PER_US, 6), tuple(seen)))
    return tuple(times)


def parse_spec(spec: str) -> dict[str, str]:
    """`k: 128; m: 64` -> its values as words."""
    pairs = (part.partition(":") for part in spec.split(";") if ":" in part)
    return {key.strip(): value.strip() for key, _, value in pairs}


def _run(result: Json) -> SubmissionRun:
    run, built = _dict(result.get("run")), _dict(result.get("compilation"))
    log = None
    if built and not built.get("success"):
        log = "\n".join(str(built[name]) for name in ("stderr", "stdout") if built.get(name)) or "no words"
    code = run.get("exit_code")
    return SubmissionRun(
        bool(run.get("passed")) and log is None,
        bool(run.get("success")),
        _dict(run.get("result")),
        code if type(code) is int else None,
        str(run.get("stderr") or ""),
        str(run.get("stdout") or ""),
        log,
    )


def _failed(mode: str, run: SubmissionRun) -> tuple[Verdict, str, Json]:
    evidence: Json = {"phase": "check" if mode == "test" else "time"}
    log = run.build_log if run.build_log is not None else run.stderr or run.stdout
    if log.strip():
        evidence["log"] = _short(log)
    complaint = next(_complaints(run.result), "")
    if run.build_log is not None or (not complaint and _NOT_BUILT.search(run.stderr)):
        return Verdict.COMPILE, _last(log), evidence
    if run.exit_code == _TIMED_OUT:
        return Verdict.TIMEOUT, f"{mode}: the service's time was over", evidence
    if run.exit_code in _OURS:
        return Verdict.HARNESS, f"{mode}: the service's harness ended with {run.exit_code}", evidence
    if complaint:
        return Verdict.INCORRECT, f"{mode}: {complaint}", {**evidence, "failed": {"case": complaint[:200]}}
    if run.success and run.exit_code == _NO_TESTS:
        return Verdict.INCORRECT, f"{mode}: a case failed, the service does not say which", evidence
    words = _last(log) if log.strip() else "it ended without an answer, and the service shows no output"
    return Verdict.CRASH, f"{mode}: {words}", evidence


def _complaints(result: Mapping[str, Any]) -> Iterator[str]:
    for kind in ("test", "benchmark"):
        for number in range(_count(result, kind)):
            start = f"{kind}.{number}"
            if result.get(f"{start}.status") == "fail":
                words = result.get(f"{start}.error") or result.get(f"{start}.message") or "failed"
                yield " ".join(f"{result.get(f'{start}.spec', number)}: {words}".split())[:500]


def _count(result: Mapping[str, Any], kind: str) -> int:
    number = _number(result.get(f"{kind}-count"))
    return min(int(number), _MOST_CASES) if number and number > 0 else 0


def _number(value: Any) -> float | None:
    """Of a number, or of the text that the service makes of numbers."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _short(text: str) -> str:
    half = _LONGEST // 2
    return text if len(text) <= _LONGEST else f"{text[:half]}\n[...]\n{text[-half:]}"


def _last(text: str) -> str:
    """The last line that says something."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no words")[:300]


def _dict(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
