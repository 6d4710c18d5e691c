"""Artificial times for kernels that are not run, to try out a search in seconds. They mean nothing.

With recorded configurations (a JSON list of `{"values": {...}, "verdict": "...", "us": {case: us}}`) the nearest one
answers; without, an artificial function of the tunables' positions: smooth, coupled, with one optimum, and with corners
that do not compile or are wrong. Same text and seed, same answer.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

from ksflow.errors import UNREADABLE, ConfigError
from ksflow.kernels.source.tunables import Tunable, effective_values, tunables, values
from ksflow.records import Kernel, Problem, Verdict, digest, geomean

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
class LandscapeResult:
    """The landscape's result for a kernel."""

    verdict: Verdict
    us: tuple[float, ...] = ()
    reason: str = ""


class Landscape:
    """Answers from a file of recorded configurations, or from an artificial landscape selected by `seed`."""

    def __init__(self, file: str | None, seed: int) -> None:
        """Raise ConfigError if the file cannot be read."""
        self.seed = seed
        self.recorded = _read(Path(file)) if file else ()
        content = hashlib.sha256(Path(file).read_bytes()).hexdigest()[:8] if file else ""
        self.name = f"fake-{content}" if file else f"fake-{seed}" if seed else "fake"
        """Identifies the landscape: answers of different ones are not comparable."""

    def __call__(self, problem: Problem, kernel: Kernel) -> LandscapeResult:
        """Return the answer: a pure function of the kernel's text, the problem's cases and seeds, and the seed."""
        cases = tuple(case.name for case in problem.benchmarks)
        declared = tunables(kernel.main)
        if not declared:
            scale = _SLOWEST_US * (0.25 + self._draw(kernel.digest) / 2)
            return LandscapeResult(Verdict.ACCEPT, tuple(round(scale * (0.5 + self._draw(case)), 3) for case in cases))
        if self.recorded:
            wanted = values(kernel.main)

            def distance(row: Recorded) -> tuple[int, int]:
                shared = wanted.keys() & row.values.keys()
                return len(wanted.keys() ^ row.values.keys()), sum(wanted[name] != row.values[name] for name in shared)

            nearest = min(self.recorded, key=distance)
            if nearest.verdict is not Verdict.ACCEPT:
                return LandscapeResult(nearest.verdict, (), "recorded")
            usual = geomean(nearest.us.values())
            return LandscapeResult(nearest.verdict, tuple(nearest.us.get(case, usual) for case in cases))
        return self._synthetic(declared, cases, [values(seed.kernel.main) for seed in problem.seeds])

    def _synthetic(
        self, declared: tuple[Tunable, ...], cases: tuple[str, ...], seeds: Sequence[Mapping[str, str]]
    ) -> LandscapeResult:
        """Return an artificial answer. Pairs of values of a seed are right, so that every seed is."""
        counts = effective_values(declared, {tunable.name: tunable.value for tunable in declared})
        chosen = {tunable.name: tunable for tunable in declared if len(tunable.options) > 1 and tunable.name in counts}
        cost = sum(self._distance(tunable) ** 2 for tunable in chosen.values())
        for first, second in combinations(sorted(chosen), 2):
            pair = chosen[first], chosen[second]
            left = {tunable.options.index(tunable.value) - len(tunable.options) for tunable in pair}
            draw, verdict = self._draw("corner", first, second), Verdict.ACCEPT
            if left == {-1} and draw < 0.3:  # two large choices together are sometimes too much
                verdict = Verdict.COMPILE
            elif left == {-1, -2} and draw > 0.8:
                verdict = Verdict.INCORRECT
            begun = any(all(seed.get(name) == chosen[name].value for name in (first, second)) for seed in seeds)
            if verdict is not Verdict.ACCEPT and not begun:
                values = " with ".join(f"{tunable.name}={tunable.value}" for tunable in pair)
                return LandscapeResult(verdict, (), f"made up: {values}")
            cost += _COUPLING * (self._draw(first, second) - 0.5) * self._distance(pair[0]) * self._distance(pair[1])
        best = _SLOWEST_US / (1 + len(declared))
        us = (best * math.exp(_STEEPNESS * cost / max(len(chosen), 1)) * (0.5 + self._draw(case)) for case in cases)
        return LandscapeResult(Verdict.ACCEPT, tuple(round(value, 3) for value in us))

    def _distance(self, tunable: Tunable) -> float:
        best = int(self._draw("best", tunable.name) * len(tunable.options))
        away = (tunable.options.index(tunable.value) - best) / len(tunable.options)
        return away * (0.3 + 0.9 * self._draw("matters", tunable.name))

    def _draw(self, *words: str) -> float:
        return int(digest(str(self.seed), *words, digits=12), 16) / 2**48


def _read(path: Path) -> tuple[Recorded, ...]:
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        recorded = tuple(
            Recorded(
                {name: str(value) for name, value in row["values"].items()},
                Verdict(row.get("verdict", "accept")),
                {case: float(us) for case, us in row.get("us", {}).items()},
            )
            for row in rows
        )
    except UNREADABLE as error:
        raise ConfigError(f"evaluator.landscape={path} cannot be read: {error}") from error
    if not recorded or any((answer.verdict is Verdict.ACCEPT) != bool(answer.us) for answer in recorded):
        raise ConfigError(f"evaluator.landscape={path}: times belong to every accepted row, and only there")
    return recorded
