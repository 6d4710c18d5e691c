"""`CommandEvaluator`: builds, tests and times a file of a repository by the repository's own commands.

Covered: each command runs in a tool's box (no network, no keys, limits on time, memory and file sizes) on a copy of the
repository in which nothing else is written; exit codes are the verdict. NOT covered: whether the time is true. The
benchmark times itself, in the same process as the candidate, and so does the test that says it is right. Nor is a lead
compared a second time, as `evaluator=local` does: a claim says by which clock it was made.
"""

import re
import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from ksflow.errors import ConfigError
from ksflow.evaluation.compilers.commands import CommandRunner
from ksflow.evaluation.sandbox.levels import probe
from ksflow.protocols import Evaluator
from ksflow.records import (
    SELF_TIMED,
    Claim,
    Comparison,
    Evaluation,
    Evidence,
    Json,
    Kernel,
    Problem,
    Ratio,
    Target,
    Timing,
    Trial,
    Verdict,
    round_significant,
)

_VERSION = 1
_UNITS = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}
_RATE = 1e6
_LOG = 4000
_CLOCK: Json = {"time": "self-reported by the benchmark"}
_MANY = 9
_STEADY = 1.25
"""Times further apart than this say nothing."""


class CommandEvaluator(Evaluator):
    """Judges by a repository's commands.

    repeats: how often the benchmark runs; the median counts. readable: further folders that the commands may read, such
    as a compiler's outside of /usr.
    """

    judge = f"command-{_VERSION}"
    fingerprint = ""

    def __init__(self, target: Target, repeats: int = 9, readable: Sequence[str] = ()) -> None:
        if repeats < 1:
            raise ConfigError(f"evaluator.repeats={repeats}; the benchmark must run at least once")
        self.repeats = repeats
        self.fingerprint = target.fingerprint
        self._run = CommandRunner(target, readable)
        self.level = probe().level

    def __call__(self, problem: Problem, kernel: Kernel, versus: tuple[Trial, ...]) -> Evaluation:
        """Never raises for a bad kernel. Raises ConfigError for a problem that has no commands."""
        order = problem.origin
        if order.get("format") != "command":
            raise ConfigError(f"evaluator=command judges problem=command; for {problem.name} use evaluator=local")
        with ExitStack() as copies:
            folder = copies.enter_context(self._run.copy(problem, kernel))
            for step, limit, verdict in (
                ("build", problem.limits.compile_s, Verdict.COMPILE),
                ("test", problem.limits.check_s, Verdict.INCORRECT),
            ):
                ran = self._run(problem, folder, order[step], limit)
                if not ran.ok:
                    outcome = Verdict.TIMEOUT if ran.timed_out else verdict
                    evidence = Evidence(log=ran.log[-_LOG:], more=_CLOCK)
                    return self._verdict(outcome, f"{step}: {_reason(ran.log)}", evidence)
            folders = {"": folder}
            for trial in versus:  # one that does not build is left out
                if trial.kernel is not None:
                    other = copies.enter_context(self._run.copy(problem, trial.kernel))
                    if self._run(problem, other, order["build"], problem.limits.compile_s).ok:
                        folders[trial.id] = other
            return self._timed(problem, folders)

    def admit(self, problem: Problem) -> tuple[tuple[str, bool, str], ...]:
        """Whether the file as it is passes, and an empty one does not: (name, ok, detail)."""
        seed = problem.seeds[0]
        whole = self(problem, seed.kernel, ())
        took = f"{whole.score_us:.4g} us" if whole.score_us else f"{whole.verdict}: {whole.reason}"
        empty = self(problem, Kernel(seed.kernel.language, dict.fromkeys(seed.kernel.files, "")), ())
        detail = "build and test take an empty file: they do not look at it" if empty.accepted else empty.reason
        return (f"seed {seed.name}", whole.accepted, took), ("rejects an empty file", not empty.accepted, detail)

    def _timed(self, problem: Problem, folders: dict[str, Path]) -> Evaluation:
        """In turns, so that whatever the machine does meanwhile meets all of them."""
        samples: dict[str, list[float]] = {name: [] for name in folders}
        for _ in range(self.repeats):
            for name, folder in folders.items():
                ran = self._run(problem, folder, problem.origin["bench"], problem.limits.time_s)
                figure = _figure(problem, ran.log) if ran.ok else None
                if figure is None and not name:
                    why = _reason(ran.log) if not ran.ok else f"prints nothing like {problem.origin['metric']}"
                    verdict = Verdict.TIMEOUT if ran.timed_out else Verdict.CRASH
                    return self._verdict(verdict, f"bench: {why}", Evidence(log=ran.log[-_LOG:], more=_CLOCK))
                if figure is not None:
                    samples[name].append(figure)
        mine = samples.pop("")
        score = statistics.median(mine)
        rows = tuple(_row(name, mine, theirs) for name, theirs in samples.items() if len(theirs) == len(mine))
        claim = _claim(rows[0], mine) if rows else None
        said = f"{score:.6g} us, lower is better"
        if problem.origin["better"] == "higher":
            said = f"a rate of {_RATE / score:.6g}, higher is better; the score is 1,000,000 over it"
        record = Evidence(against=rows, claim=claim, more={**_CLOCK, "said": said})
        return self._verdict(Verdict.ACCEPT, "", record, (Timing("bench", score, tuple(mine)),))

    def _verdict(
        self, verdict: Verdict, reason: str, evidence: Evidence, timings: tuple[Timing, ...] = ()
    ) -> Evaluation:
        score = round(timings[0].us, 6) if timings else None
        return Evaluation(verdict, reason, score, timings, evidence, self.level, self.fingerprint, judge=self.judge)


def _figure(problem: Problem, log: str) -> float | None:
    """The number that the benchmark printed, in µs; of a rate its inverse."""
    numbers = re.findall(problem.origin["metric"], log)
    try:
        value = float(numbers[-1]) if numbers else 0.0
    except ValueError:
        return None
    if not 0 < value < float("inf"):
        return None
    return _RATE / value if problem.origin["better"] == "higher" else value * _UNITS[problem.origin["unit"]]


def _row(name: str, mine: Sequence[float], theirs: Sequence[float]) -> Comparison:
    """How much faster than another: the median of the turns' ratios, with its interval."""
    ratios = [other / own for own, other in zip(mine, theirs, strict=True)]
    low, high = _interval(ratios)
    speedup, low, high = map(round_significant, (statistics.median(ratios), low, high))
    return Comparison(id=name, speedup=speedup, low=low, high=high, clocks=(SELF_TIMED,))


def _interval(values: Sequence[float]) -> tuple[float, float]:
    """Of the median: without the outermost values where nine or more leave 96 % confidence."""
    cut = 1 if len(values) >= _MANY else 0
    inner = sorted(values)[cut : len(values) - cut]
    return inner[0], inner[-1]


def _claim(row: Comparison, mine: Sequence[float]) -> Claim:
    """About the incumbent, with the kernel's own turns as the control."""
    low, high = (value / statistics.median(mine) for value in _interval(mine))
    control = Ratio(speedup=1.0, low=round_significant(low), high=round_significant(high))
    ranked = control.high / control.low <= _STEADY
    return Claim(
        id=row.id,
        speedup=row.speedup,
        low=row.low,
        high=row.high,
        clocks=row.clocks,
        faster=row.low > 1 and row.speedup > control.high,
        control=control,
        ranked=ranked,
        why="" if ranked else f"its own times are up to {control.high / control.low:.2f} times apart",
    )


def _reason(log: str) -> str:
    """The line that says what is wrong, else the last one."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return next(
        (line for line in lines if re.search(r"\berror\b|Error|FAIL", line)), lines[-1] if lines else "no words"
    )
