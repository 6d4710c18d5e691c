"""Which values, and pairs of values, are to blame for kernels that failed.

Failures repeat, so a value (or pair) that was ever accepted is innocent. The suspects of a failure share the blame
in proportion to what they explain elsewhere; those that the compiler or the judge named come first. One failure
with one suspect is a warning and several are nearly a proof: a dead end is avoided, yet never quite ruled out.
"""

import math
from collections.abc import Iterable, Mapping
from itertools import combinations

from ksflow.stages.designer.space import Config, Point

Part = tuple[tuple[str, str], ...]

_PAIR = 0.3  # how much less a pair is suspected than its values
_NAMED = 100.0  # how much more a part is suspected whose tunables were named
_DOUBT = 1.0  # failures' worth of doubt that a suspect keeps
_ROUNDS = 10


class Blame:
    """Fitted to a family's points."""

    def __init__(self, points: Iterable[Point], unknown: Mapping[str, float]) -> None:
        """`unknown`: for each tunable, the chance that a value nobody tried fails."""
        listed = list(points)
        self._unknown = unknown
        self._innocent = {part for point in listed if point.score_us for part in _parts(point.values)}
        self._failures: list[dict[Part, float]] = []
        self._guilt: dict[Part, float] = {}
        for point in listed:
            if point.failed:
                self._failures.append(self._suspects(point.values, point.named))
        self._share()

    def suppose(self, config: Config) -> None:
        """Go on as if `config` had failed: what follows should not fail for the same reason."""
        self._failures.append(self._suspects(config, frozenset()))
        self._share()

    def risk(self, config: Config) -> float:
        """The chance that `config` fails."""
        safe = 1.0
        for part in _parts(config):
            if part in self._innocent:
                continue
            guilt = self._guilt.get(part, 0.0)
            doubt = self._unknown[part[0][0]] if len(part) == 1 else 0.0
            safe *= (1 - doubt) * _DOUBT / (guilt + _DOUBT)
        return 1 - safe

    def _suspects(self, config: Config, named: frozenset[str]) -> dict[Part, float]:
        """How readily each part is suspected before other failures are looked at."""
        pull = {}
        for part in _parts(config):
            if part not in self._innocent:
                chances = [self._unknown[name] for name, _ in part]
                mentioned = sum(name in named for name, _ in part) / len(part)
                pull[part] = math.prod(chances) ** (1 / len(part)) * (1.0 if len(part) == 1 else _PAIR)
                pull[part] *= _NAMED**mentioned if named else 1.0
        return pull

    def _share(self) -> None:
        """Settle how many failures each suspect accounts for."""
        for _ in range(_ROUNDS):
            guilt: dict[Part, float] = {}
            for suspects in self._failures:
                pull = {p: w * (_DOUBT + self._guilt.get(p, 0.0)) for p, w in suspects.items()}
                total = sum(pull.values())
                for part, weight in pull.items():
                    guilt[part] = guilt.get(part, 0.0) + weight / total
            self._guilt = guilt


def _parts(config: Config) -> list[Part]:
    items = sorted(config.items())
    return [(item,) for item in items] + list(combinations(items, 2))
