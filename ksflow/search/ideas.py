"""Proposals with expectations: their ranking, and their descriptions in experiments and avenues."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

from ksflow.kernels.source.families import Space
from ksflow.records import Experiment
from ksflow.search.moves import Proposal

if TYPE_CHECKING:
    from ksflow.search.forecast import Forecast, Forecasts  # which needs numpy

HOPELESS = 0.9  # risk from which on an idea is dropped
_AVENUES = 10
_NORMAL = NormalDist()
_KNOWN, _RISKY = 0.7, 0.2  # ignorance below and risk above which the description mentions them
_LEAST = math.log1p(0.01)  # gains below are not worth an experiment
_TRUST = 0.2  # weight of a move's own range without measurements


@dataclass(frozen=True)
class Idea:
    """A proposal with its expected gain."""

    proposal: Proposal
    forecast: "Forecast"
    low: float
    high: float  # range of the log gain: the catalogue's without measurements, else mostly the measurements'

    @property
    def innovation(self) -> float:
        """The boldest move's innovation, reduced by what measurements tell."""
        known = 0.4 + 0.6 * self.forecast.ignorance
        return round(min(100.0, max(m.innovation for m in self.proposal.moves) * known), 1)

    @property
    def gain_percent(self) -> tuple[float, float]:
        low, high = sorted((self.low, self.high))
        return round(100 * math.expm1(low), 1), round(100 * math.expm1(high), 1)

    @property
    def expected_improvement(self) -> float:
        """Expected improvement of the logarithm of the speed over the base, by kernels that are right."""
        mean, deviation = (self.low + self.high) / 2, max((self.high - self.low) / 2, 1e-6)
        z = mean / deviation
        return (1 - self.forecast.risk) * deviation * (z * _NORMAL.cdf(z) + _NORMAL.pdf(z))

    @property
    def upside(self) -> float:
        """The highest gain times the probability that it is right."""
        return self.high * (1 - self.forecast.risk)

    @property
    def uncertainty(self) -> float:
        """Highest for a single step of unknown effect; the effect of joint steps may be of another one."""
        hope = self.forecast.deviation if self.high > 0 else 0.0
        return (1 - self.forecast.risk) * hope / len(self.proposal.changes) ** 2


def ideas(proposals: Iterable[Proposal], model: "Forecasts") -> list[Idea]:
    """Return the proposals with the expectations of catalogue and measurements combined."""
    listed = list(proposals)
    ideas = []
    for proposal, forecast in zip(listed, model.predict([p.config for p in listed]), strict=True):
        lowest, highest = (sum(math.log1p(move.gain_percent[i] / 100) for move in proposal.moves) for i in (0, 1))
        share = _TRUST * forecast.ignorance**2
        low = share * lowest + (1 - share) * (forecast.mean - forecast.deviation)
        high = share * highest + (1 - share) * (forecast.mean + forecast.deviation)
        ideas.append(Idea(proposal, forecast, low, high))
    return ideas


def select_promising(ideas: Iterable[Idea], model: "Forecasts") -> list[Idea]:
    """Return the ideas that may be right, and faster than the base given the uncertainty of the measurements."""
    return [
        idea
        for idea in ideas
        if idea.forecast.risk < HOPELESS
        and max(idea.high, idea.forecast.mean + 2 * math.hypot(idea.forecast.deviation, model.misfit)) > _LEAST
    ]


def avenues(space: Space, ideas: Iterable[Idea]) -> tuple[str, ...]:
    """Return the ten most promising changes, each of other tunables."""
    best: dict[frozenset[str], Idea] = {}
    for idea in sorted(ideas, key=lambda idea: idea.upside, reverse=True):
        best.setdefault(frozenset(idea.proposal.changes), idea)
    lines = []
    for idea in best.values():
        low, high = idea.gain_percent
        lines.append(f"{_steps(space, idea)} ({low:+.0f} to {high:+.0f} %)")
    return tuple(lines[:_AVENUES])


def experiment(idea: Idea, space: Space, base: str) -> Experiment:
    """Return the experiment for an idea: the change, the tunables' own descriptions, and what was measured."""
    changes = dict(idea.proposal.changes)
    sentences = [f"{_steps(space, idea)}."]
    for name, value in changes.items():
        if gains := space.steps.get((name, space.base[name], value)):
            percent = 100 * math.expm1(sum(gains) / len(gains))
            sentences.append(f"{name} {space.base[name]} -> {value} alone brought {percent:+.0f} % in {len(gains)}.")
    if idea.forecast.ignorance < _KNOWN:
        sentences.append(f"Measurements so far expect {100 * math.expm1(idea.forecast.mean):+.0f} %.")
    if idea.forecast.risk > _RISKY:
        cause = space.failures.suspect_values(idea.proposal.config)
        why = f"{' with '.join(map('='.join, sorted(cause)))} failed before" if cause else "nobody tried such values"
        sentences.append(f"Risk {idea.forecast.risk:.0%}: {why}.")
    assigned = " ".join(f"{name}={value}" for name, value in changes.items())
    rubric = f"the source assigns {assigned}; right on every case; faster than {base}"
    return Experiment(" ".join(sentences), rubric, idea.gain_percent, idea.innovation, changes)


def _steps(space: Space, idea: Idea) -> str:
    """Return `VL 16 -> 64 (bytes of a vector)`, with the tunables' own descriptions."""
    docs = {tunable.name: tunable.doc or tunable.kind for tunable in space.tunables}
    return ", ".join(
        f"{name} {space.base[name]} -> {value}{f' ({docs[name]})' if docs[name] else ''}"
        for name, value in idea.proposal.changes.items()
    )
