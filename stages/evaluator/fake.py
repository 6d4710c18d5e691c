"""`FakeEvaluator`: a stand-in that compiles and runs nothing, for dry runs and tests. Its times mean nothing.

They come from a landscape: recorded configurations in a file, or a made-up one (`ksflow.kernels.source.landscape`).
"""

from dataclasses import replace

from ksflow.kernels.source.landscape import Landscape
from ksflow.protocols import Evaluator
from ksflow.records import (
    Claim,
    Comparison,
    Evaluation,
    Evidence,
    Kernel,
    Problem,
    Ratio,
    Timing,
    Trial,
    Verdict,
    geomean,
    round_significant,
)


class FakeEvaluator(Evaluator):
    """Answers at once, from the file `landscape` or from a made-up landscape that `seed` picks."""

    judge = "fake-1"
    fingerprint = ""

    def __init__(self, landscape: str | None = None, seed: int = 0) -> None:
        """landscape: a file of recorded configurations, instead of a made-up one. seed: which made-up one."""
        self._landscape = Landscape(landscape, seed)
        self.fingerprint = self._landscape.name

    def __call__(self, problem: Problem, kernel: Kernel, versus: tuple[Trial, ...]) -> Evaluation:
        """A pure function of the kernel's text, the problem's cases and seeds, and the seed."""
        answer = self._landscape(problem, kernel)
        evidence = Evidence(weights=problem.weights, more={"fake": True})
        if answer.verdict is not Verdict.ACCEPT:
            return Evaluation(
                answer.verdict, answer.reason, None, (), evidence, "none", self.fingerprint, judge=self.judge
            )
        rows, weights = [], [case.weight for case in problem.benchmarks]
        for trial in versus:
            other = self._landscape(problem, trial.kernel) if trial.kernel else None
            if other and other.us:
                speedup = geomean((b / a for a, b in zip(answer.us, other.us, strict=True)), weights)
                low, high = round_significant(speedup * 0.99), round_significant(speedup * 1.01)
                rows.append(Comparison(id=trial.id, speedup=round_significant(speedup), low=low, high=high))
        claim = None
        if rows:
            row, control = rows[0], Ratio(speedup=1.0, low=0.99, high=1.01)
            faster = row.low > control.high
            claim = Claim(id=row.id, speedup=row.speedup, low=row.low, high=row.high, faster=faster, control=control)
        evidence = replace(evidence, against=tuple(rows), claim=claim)
        timings = tuple(
            Timing(case.name, us, (us,), us) for case, us in zip(problem.benchmarks, answer.us, strict=True)
        )
        score = problem.aggregate(answer.us)
        return Evaluation(answer.verdict, "", score, timings, evidence, "none", self.fingerprint, judge=self.judge)
