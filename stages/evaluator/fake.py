"""`FakeEvaluator`: a stand-in that compiles and runs nothing, for dry runs and tests. Its times mean nothing.

With a landscape (a JSON list of `{"values": {...}, "verdict": "...", "us": {case: us}}`) the nearest recorded
configuration answers; without one, a made-up but sensible function of the tunables' positions does: smooth, coupled,
with one optimum, and with corners that do not compile or are wrong. Same text, same seed: same answer.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

from ksflow.errors import ConfigError
from ksflow.records import Evaluation, Json, Kernel, Problem, Timing, Trial, Verdict, geomean
from ksflow.source.tunables import Tunable, tunables, values

_SLOWEST_US = 4000.0
_COUPLING = 0.5
_STEEPNESS = 4.0


@dataclass(frozen=True)
class Recorded:
    """One configuration that was measured once."""

    values: Mapping[str, str]
    verdict: Verdict = Verdict.ACCEPT
    us: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """What the landscape says of a kernel."""

    verdict: Verdict
    us: tuple[float, ...] = ()
    reason: str = ""


class FakeEvaluator:
    """Answers at once, from a file or from a made-up landscape that `seed` picks."""

    judge = "fake-1"

    def __init__(self, landscape: str | None = None, seed: int = 0) -> None:
        self.seed = seed
        self.recorded = _read(Path(landscape)) if landscape else ()
        made_up = f"fake-{seed}" if seed else "fake"
        self.fingerprint = f"fake-{_digest(Path(landscape))}" if landscape else made_up

    def __call__(self, problem: Problem, kernel: Kernel, against: tuple[Trial, ...]) -> Evaluation:
        """A pure function of the kernel's text, the problem's cases and seeds, and the seed."""
        answer = self._answer(problem, kernel)
        evidence: Json = {"fake": True}
        if answer.verdict is not Verdict.ACCEPT:
            return self._evaluation(answer.verdict, answer.reason, evidence=evidence)
        rows = []
        for trial in against:
            other = self._answer(problem, trial.kernel) if trial.kernel else None
            if other and other.us:
                speedup = geomean(b / a for a, b in zip(answer.us, other.us, strict=True))
                rows.append(_row(trial.id, speedup))
        timings = tuple(
            Timing(case.name, us, (us,), us) for case, us in zip(problem.benchmarks, answer.us, strict=True)
        )
        score = problem.aggregate(answer.us)
        evidence |= {"against": rows, **({"claim": _claim(rows[0])} if rows else {})}
        return self._evaluation(answer.verdict, "", score, timings, evidence)

    def _evaluation(
        self,
        verdict: Verdict,
        reason: str,
        score_us: float | None = None,
        timings: tuple[Timing, ...] = (),
        evidence: Json | None = None,
    ) -> Evaluation:
        found = evidence or {}
        return Evaluation(verdict, reason, score_us, timings, found, "none", self.fingerprint, judge=self.judge)

    def _answer(self, problem: Problem, kernel: Kernel) -> Answer:
        cases = tuple(case.name for case in problem.benchmarks)
        declared = tunables(kernel.main)
        if not declared:
            return Answer(Verdict.ACCEPT, self._stable(kernel, cases))
        if self.recorded:
            return _nearest(self.recorded, values(kernel.main), cases)
        return self._synthetic(declared, cases, [values(seed.kernel.main) for seed in problem.seeds])

    def _stable(self, kernel: Kernel, cases: tuple[str, ...]) -> tuple[float, ...]:
        scale = _SLOWEST_US * (0.25 + self._draw(kernel.digest) / 2)
        return tuple(round(scale * (0.5 + self._draw(case)), 3) for case in cases)

    def _synthetic(
        self, declared: tuple[Tunable, ...], cases: tuple[str, ...], seeds: Sequence[Mapping[str, str]]
    ) -> Answer:
        """A pair of values that a seed begins with is right, or nothing could begin from it."""
        chosen = {tunable.name: tunable for tunable in declared if len(tunable.options) > 1}
        for one, other in combinations(sorted(chosen), 2):
            verdict = self._corner(chosen[one], chosen[other])
            begun = any(all(seed.get(name) == chosen[name].value for name in (one, other)) for seed in seeds)
            if verdict is not Verdict.ACCEPT and not begun:
                pair = f"{one}={chosen[one].value} with {other}={chosen[other].value}"
                return Answer(verdict, (), f"made up: {pair}")
        cost = sum(self._distance(tunable) ** 2 for tunable in chosen.values())
        for one, other in combinations(sorted(chosen), 2):
            weight = _COUPLING * (self._draw(one, other) - 0.5)
            cost += weight * self._distance(chosen[one]) * self._distance(chosen[other])
        best = _SLOWEST_US / (1 + len(declared))
        us = (best * math.exp(_STEEPNESS * cost / max(len(chosen), 1)) * (0.5 + self._draw(case)) for case in cases)
        return Answer(Verdict.ACCEPT, tuple(round(value, 3) for value in us))

    def _distance(self, tunable: Tunable) -> float:
        """From the best option, in options, times how much this tunable matters."""
        best = int(self._draw("best", tunable.name) * len(tunable.options))
        away = (_position(tunable) - best) / len(tunable.options)
        return away * (0.3 + 0.9 * self._draw("matters", tunable.name))

    def _corner(self, one: Tunable, other: Tunable) -> Verdict:
        """Two large choices together are sometimes too much."""
        left = {_position(tunable) - len(tunable.options) for tunable in (one, other)}
        draw = self._draw("corner", one.name, other.name)
        if left == {-1} and draw < 0.3:
            return Verdict.COMPILE
        return Verdict.INCORRECT if left == {-1, -2} and draw > 0.8 else Verdict.ACCEPT

    def _draw(self, *words: str) -> float:
        """Uniform in [0, 1), the same for the same words."""
        text = "\0".join([str(self.seed), *words])
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big") / 2**48


def _position(tunable: Tunable) -> int:
    return tunable.options.index(tunable.value)


def _row(name: str, speedup: float) -> Json:
    return {
        "id": name,
        "speedup": round(speedup, 4),
        "low": round(speedup * 0.99, 4),
        "high": round(speedup * 1.01, 4),
    }


def _claim(row: Json) -> Json:
    """About the incumbent, with a control that is always on."""
    control = {"speedup": 1.0, "low": 0.99, "high": 1.01}
    return {**row, "faster": row["low"] > control["high"], "control": control, "ranked": True, "why": ""}


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:8]


def _nearest(recorded: tuple[Recorded, ...], wanted: Mapping[str, str], cases: tuple[str, ...]) -> Answer:
    """The recorded configuration with the fewest differing values; of equals the one that shares more names."""

    def distance(one: Recorded) -> tuple[int, int]:
        shared = wanted.keys() & one.values.keys()
        return sum(wanted[name] != one.values[name] for name in shared), -len(shared)

    found = min(recorded, key=distance)
    if found.verdict is not Verdict.ACCEPT:
        return Answer(found.verdict, (), "recorded")
    usual = geomean(found.us.values())
    return Answer(found.verdict, tuple(found.us.get(case, usual) for case in cases))


def _read(path: Path) -> tuple[Recorded, ...]:
    try:
        rows = json.loads(path.read_text())
        found = tuple(
            Recorded(
                {name: str(value) for name, value in row["values"].items()},
                Verdict(row.get("verdict", "accept")),
                {case: float(us) for case, us in row.get("us", {}).items()},
            )
            for row in rows
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"evaluator.landscape={path} cannot be read: {error}") from error
    if not found or any((one.verdict is Verdict.ACCEPT) != bool(one.us) for one in found):
        raise ConfigError(f"evaluator.landscape={path}: times belong to every accepted row, and only there")
    return found
