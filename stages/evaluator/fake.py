"""`FakeEvaluator`: a stand-in that compiles and runs nothing, for dry runs and tests. Its times mean nothing.

They come from a landscape: recorded configurations in a file, or a made-up one (`ksflow.source.landscape`).
"""

from ksflow.records import Evaluation, Json, Kernel, Problem, Timing, Trial, Verdict, geomean
from ksflow.source.landscape import Landscape


class FakeEvaluator:
    """Answers at once, from the file `landscape` or from a made-up landscape that `seed` picks."""

    judge = "fake-1"

    def __init__(self, landscape: str | None = None, seed: int = 0) -> None:
        self._landscape = Landscape(landscape, seed)
        self.fingerprint = self._landscape.name

    def __call__(self, problem: Problem, kernel: Kernel, against: tuple[Trial, ...]) -> Evaluation:
        """A pure function of the kernel's text, the problem's cases and seeds, and the seed."""
        answer = self._landscape(problem, kernel)
        evidence: Json = {"fake": True}
        if answer.verdict is not Verdict.ACCEPT:
            return Evaluation(
                answer.verdict, answer.reason, None, (), evidence, "none", self.fingerprint, judge=self.judge
            )
        rows: list[Json] = []
        for trial in against:
            other = self._landscape(problem, trial.kernel) if trial.kernel else None
            if other and other.us:
                speedup = geomean(b / a for a, b in zip(answer.us, other.us, strict=True))
                low, high = round(speedup * 0.99, 4), round(speedup * 1.01, 4)
                rows.append({"id": trial.id, "speedup": round(speedup, 4), "low": low, "high": high})
        evidence["against"] = rows
        if rows:
            control = {"speedup": 1.0, "low": 0.99, "high": 1.01}
            faster = rows[0]["low"] > 1.01
            evidence["claim"] = {**rows[0], "faster": faster, "control": control, "ranked": True, "why": ""}
        timings = tuple(
            Timing(case.name, us, (us,), us) for case, us in zip(problem.benchmarks, answer.us, strict=True)
        )
        score = problem.aggregate(answer.us)
        return Evaluation(answer.verdict, "", score, timings, evidence, "none", self.fingerprint, judge=self.judge)
