"""Which values, and pairs of values, are to blame for kernels that failed.

Failures repeat, so a value (or pair) that was ever accepted is innocent. The suspects of a failure share the blame
in proportion to what they explain elsewhere; those that the compiler or the judge named come first, and where its
words state the values (`FORM = amx needs ...`), these are taken at their word. A kernel is as risky as the worst
failure whose cause it may share: a dead end is avoided, and what may lead around it is not.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping

from ksflow.search.effects import Values, values_and_pairs
from ksflow.source.families import Config, Point

_PAIR = 0.3  # how much less a pair is suspected than its values
_NAMED = 100.0  # how much more a part is suspected whose tunables were named
_DOUBT = 1.0  # failures' worth of doubt that a suspect keeps
_DOUBTFUL = 0.03  # the chance that the cause of one failure does not strike again: nothing is ruled out for ever
_STATED = 0.999  # the chance that a stated cause strikes again
_ASSUMED = 0.5  # the weight of a failure that was only assumed
_ROUNDS = 10
_REMEMBERED = 100  # failures, the newest


class FailureModel:
    """The chance to fail of a configuration, fitted to a family's points."""

    def __init__(self, points: Iterable[Point], unknown: Mapping[str, float]) -> None:
        """`unknown`: for each tunable, the chance that a value nobody tried fails."""
        listed = list(points)
        self._unknown = unknown
        self._innocent = {part for point in listed if point.score_us for part in values_and_pairs(point.values)}
        right = [set(point.values.items()) for point in listed if point.score_us]
        stated = {point.stated for point in listed if point.failed and point.stated}
        self._stated = [part for part in stated if not any(part <= values for values in right)]
        unexplained = [point for point in listed if point.failed and point.stated not in self._stated]
        failures = [self._suspects(point) for point in unexplained[-_REMEMBERED:]]
        self._charges: dict[Values, list[tuple[int, float]]] = defaultdict(list)
        self._failures = 0
        for causes, explained in _share_blame(failures):
            self._charge(causes, 1 - _DOUBTFUL / max(explained, 1.0) ** 2)

    def assume_failed(self, config: Config) -> None:
        """Go on as if `config` might fail: what follows should not fail for the same reason."""
        for causes, _ in _share_blame([self._suspects(Point("", config, None, True))]):
            self._charge(causes, _ASSUMED)

    def risk(self, config: Config) -> float:
        """The chance that `config` fails."""
        if any(part <= config.items() for part in self._stated):
            return _STATED
        untried, shared = 1.0, [0.0] * (self._failures + 1)
        for part in values_and_pairs(config):
            if part not in self._innocent:
                untried *= 1 - self._unknown[part[0][0]] if len(part) == 1 else 1.0
                for failure, share in self._charges.get(part, ()):
                    shared[failure] += share
        return 1 - untried * (1 - min(max(shared), 1.0))

    def _charge(self, causes: dict[Values, float], weight: float) -> None:
        for part, share in causes.items():
            self._charges[part].append((self._failures, weight * share))
        self._failures += 1

    def _suspects(self, point: Point) -> dict[Values, float]:
        """How readily each part is suspected before other failures are looked at."""
        pull = {}
        for part in values_and_pairs(point.values):
            if part not in self._innocent:
                chances = [self._unknown[name] for name, _ in part]
                named = sum(name in point.named for name, _ in part) / len(part)
                pull[part] = math.prod(chances) ** (1 / len(part)) * (1.0 if len(part) == 1 else _PAIR)
                pull[part] *= _NAMED**named if point.named else 1.0
        return pull


def _share_blame(failures: list[dict[Values, float]]) -> list[tuple[dict[Values, float], float]]:
    """For each failure, the chance of each suspect to be its cause, and how many failures that cause explains."""
    causes: list[dict[Values, float]] = []
    guilt: dict[Values, float] = defaultdict(float)
    for _ in range(_ROUNDS):
        causes = []
        for suspects in failures:
            pull = {part: weight * (_DOUBT + guilt[part]) for part, weight in suspects.items()}
            total = sum(pull.values())
            causes.append({part: weight / total for part, weight in pull.items()})
        guilt = defaultdict(float)
        for part, share in (item for shares in causes for item in shares.items()):
            guilt[part] += share
    return [(shares, sum(share * guilt[part] for part, share in shares.items())) for shares in causes]
