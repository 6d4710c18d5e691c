"""The scale of a population: how many times as fast any kernel is as any other.

Every paired measurement is an edge of a graph: the logarithm of a ratio with its standard error. A kernel's speed is
its generalised least squares estimate over that graph (a network meta-analysis). So kernels that were never timed side
by side are compared through others, and A/B times B/C always equals A/C. Whatever states how fast a kernel is
(population, prompts, tables, page, trackers, notes, rewards, commands) uses this module. The graph of a search is
nearly a tree. A kernel with one neighbour affects only its own estimate, so equations are solved only for kernels on a
cycle. The result depends on the trials alone, not on the order in which they were added. Measurements that are not
ranked (the judge could not tell) connect only what no ranked one connects, and the result is not ranked.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from ksflow.records.base import by_number
from ksflow.records.comparisons import Comparison, Ratio, Speedup
from ksflow.records.evaluations import Evaluation
from ksflow.records.network import Core, Edge, Node, place_kernels
from ksflow.records.trials import Trial

_Z = 1.959964  # standard errors to either side of a 95 % interval
_LEAST_ERROR = 1e-4
"""Lower limit of a measurement's error, as a natural logarithm: an artificial landscape has no noise at all."""
_CONTRADICTED = 3.3
"""Standard errors between a measurement and all others from which on they contradict each other (0.1 %)."""


class Contradiction(NamedTuple):
    """A measurement that all others contradict."""

    trial: str
    other: str
    measured: Speedup  # from timing the two side by side
    estimated: Speedup  # from all measurements together

    def __str__(self) -> str:
        return (
            f"{self.trial} beside {self.other} read {self.measured}, where all comparisons together say "
            f"{self.estimated}: one of them was disturbed"
        )


@dataclass(frozen=True)
class Scale:
    """The estimates of a population's accepted kernels. `Scale.from_trials` makes one.

    anchor: the kernel with the factor 1: the first accepted baseline, or else the first accepted kernel; empty if none
    is accepted.
    """

    anchor: str = ""
    _alias: Mapping[str, str] = field(default_factory=dict)  # a repeat -> the trial whose verdict it took over
    _known: Mapping[str, Evaluation] = field(default_factory=dict)
    _edges: Mapping[str, Mapping[str, Edge]] = field(default_factory=dict)
    _nodes: Mapping[str, Node] = field(default_factory=dict)
    _cores: Mapping[str, Core] = field(default_factory=dict)
    """The kernel at which a component's equations are rooted -> the equations of its cycles; none for a tree."""
    _absent: frozenset[str] = frozenset()  # trials beside which kernels were timed and that are not in the population
    _confirmed: str = ""  # the kernel confirmed last, in the anchor's component, or else the anchor

    @staticmethod
    def from_trials(trials: Iterable[Trial]) -> "Scale":
        """Return the scale of the trials that were timed and are not stale.

        A trial refuted by a later judgement is included, so that kernels timed beside it stay connected.
        """
        timed = sorted(filter(_is_timed, trials), key=lambda trial: by_number(trial.id))
        known = {trial.id: trial.evaluation for trial in timed if trial.evaluation and not trial.repeats}
        alias = {trial.id: trial.repeats for trial in timed if trial.repeats in known}
        accepted = [trial for trial in timed if trial.score_us and trial.id in known]
        anchor = next((trial.id for trial in accepted if trial.baseline), accepted[0].id if accepted else "")
        edges: dict[str, dict[str, Edge]] = {name: {} for name in known}
        absent: set[str] = set()
        for name, evaluation in known.items():
            for row in _rows(evaluation):
                other = alias.get(row.id, row.id)
                absent |= {other} - known.keys()
                if other in known and other not in (name, *edges[name]) and evaluation.key == known[other].key:
                    edge = _edge(name, evaluation, other, known[other])
                    edges[name][other] = edge
                    edges[other][name] = _edge(other, known[other], name, evaluation)
        nodes, cores = place_kernels(anchor, edges)
        confirmed = [
            (evaluation.last_confirmation, name)
            for name, evaluation in known.items()
            if evaluation.last_confirmation and nodes[name].root == anchor
        ]
        newest = max(confirmed, default=(0, anchor))[1]
        return Scale(anchor, alias, known, edges, nodes, cores, frozenset(absent), newest)

    def with_trial(self, trial: Trial) -> "Scale | None":
        """Return the scale with one more kernel if that changes no other estimate, else None."""
        if not trial.evaluation or not _is_timed(trial):
            return self
        if trial.id in self._absent or trial.id in self._known:
            return None
        if trial.repeats:
            known = trial.repeats in self._known
            return replace(self, _alias={**self._alias, trial.id: trial.repeats}) if known else None
        named = {self._alias.get(row.id, row.id) for row in _rows(trial.evaluation)}
        rows = named & self._known.keys()
        first = (*rows, self.anchor)[0]
        versus = self._known.get(first)
        if (
            len(rows) > 1
            or versus is None
            or by_number(trial.id) < by_number(first)
            or trial.baseline
            or trial.evaluation.last_confirmation
        ):
            return None
        edges, node = {**self._edges, trial.id: {}}, Node(trial.id, 0.0, True, "", 0.0)
        if rows:
            if trial.evaluation.key != versus.key:
                return None
            edge, at = _edge(trial.id, trial.evaluation, first, versus), self._nodes[first]
            node = Node(at.root, at.log + edge.log, at.ranked and edge.ranked, first, edge.variance)
            edges[trial.id] = {first: edge}
            edges[first] = {**edges[first], trial.id: _edge(first, versus, trial.id, trial.evaluation)}
        return replace(
            self,
            _known={**self._known, trial.id: trial.evaluation},
            _edges=edges,
            _nodes={**self._nodes, trial.id: node},
            _absent=self._absent | (named - rows),
        )

    def ratio(self, trial: str, other: str) -> Speedup | None:
        """Return the speed-up of one trial over another, by their ids; None if no measurement connects them."""
        ours, theirs = self._node(trial), self._node(other)
        if ours is None or theirs is None or ours.root != theirs.root:
            return None
        half = _Z * math.sqrt(self._variance(self._alias.get(trial, trial), self._alias.get(other, other)))
        return _speedup(ours.log - theirs.log, half, (ours.ranked and theirs.ranked) or trial == other)

    def time_us(self, trial: str) -> float | None:
        """Return a trial's score in µs, as of the newest confirmation, or as measured if nothing connects it to the
        anchor; None if it was not accepted.
        """
        name = self._alias.get(trial, trial)
        evaluation, node = self._known.get(name), self._nodes.get(name)
        if evaluation is None or node is None or node.root != self._root:
            return evaluation.score_us if evaluation else None
        anchor, confirmed = self._nodes[self.anchor].log, self._nodes[self._confirmed].log
        anchor_us = (self._known[self._confirmed].score_us or 0.0) * math.exp(confirmed - anchor)
        return anchor_us / math.exp(node.log - anchor)

    def times_us(self, trial: str) -> dict[str, float]:
        """Return a trial's time on each case in µs, as of the same moment as `us`."""
        evaluation, score = self._known.get(self._alias.get(trial, trial)), self.time_us(trial)
        if evaluation is None or not score or not evaluation.score_us:
            return {}
        return {timing.case: timing.us * score / evaluation.score_us for timing in evaluation.timings}

    def is_ahead(self, trial: str, other: str) -> bool:
        """Return whether a trial was ranked ahead of the other side by side, by more than the margin, and still is."""
        edge = self._edges.get(trial, {}).get(other)
        return bool(edge and edge.ahead) and self._nodes[trial].log > self._nodes[other].log

    def overtakes(self, trial: str, other: str) -> bool:
        """Return whether a trial is ahead: side by side, or if they never met by the measurements that connect them."""
        if other in self._edges.get(trial, {}):
            return self.is_ahead(trial, other)
        ratio = self.ratio(trial, other)
        return bool(ratio and ratio.ahead)

    def ahead_of(self, other: str) -> tuple[str, ...]:
        """Return the kernels that were ranked ahead of it side by side, the fastest first."""
        names = [name for name in self._edges.get(other, ()) if self.is_ahead(name, other)]
        return tuple(sorted(names, key=self.order))

    def order(self, trial: str) -> tuple[bool, bool, float, tuple[float, str]]:
        """Return a sort key: the fastest first, kernels without a connection to the anchor last."""
        node = self._nodes.get(trial)
        connected = node is not None and node.root == self._root
        return (not connected, not (node and node.ranked), self.time_us(trial) or math.inf, by_number(trial))

    @cached_property
    def contradictions(self) -> tuple[Contradiction, ...]:
        """The ranked measurements that all others contradict."""
        found = []
        for name, others in self._edges.items():
            for other, edge in others.items():
                core = self._nodes[name].core
                if name > other and edge.ranked and core and core == self._nodes[other].core:
                    estimate = self._nodes[name].log - self._nodes[other].log
                    rest = edge.variance - self._variance(name, other) / self._cores[core].inflation
                    if (edge.log - estimate) ** 2 > _CONTRADICTED**2 * max(rest, 0.0) + _LEAST_ERROR:
                        measured = _speedup(edge.log, _Z * math.sqrt(edge.variance), True)
                        estimated = self.ratio(name, other)
                        assert estimated is not None
                        found.append(Contradiction(name, other, measured, estimated))
        return tuple(found)

    def _node(self, trial: str) -> Node | None:
        return self._nodes.get(self._alias.get(trial, trial))

    @property
    def _root(self) -> str:
        return self._nodes[self.anchor].root if self.anchor else ""

    def _variance(self, trial: str, other: str) -> float:
        """Return the variance of the logarithm of the ratio of two kernels of one component."""
        climbed = dict(self._climb(trial))
        entries = {self._nodes[name].core: name for name in reversed(climbed)}
        for name, so_far in self._climb(other):
            core = self._nodes[name].core
            if core and core in entries:
                return climbed[entries[core]] + so_far + self._cores[core].variance(entries[core], name)
            if name in climbed:
                return climbed[name] + so_far
        raise AssertionError(f"{trial} and {other} are of two components")

    def _climb(self, trial: str) -> Iterator[tuple[str, float]]:
        """Yield the trial and the kernels between it and its root, each with the variance so far."""
        variance = 0.0
        while True:
            yield trial, variance
            node = self._nodes[trial]
            if node.core and node.core != trial:
                trial, variance = node.core, variance + self._cores[node.core].variance(trial, node.core)
            elif node.parent:
                trial, variance = node.parent, variance + node.variance
            else:
                return


def _is_timed(trial: Trial) -> bool:
    evaluation = trial.evaluation if not trial.stale else None
    return evaluation is not None and bool(evaluation.score_us or evaluation.evidence.against)


def measured_ratio(ours: Evaluation, our_id: str, theirs: Evaluation, their_id: str) -> Ratio | None:
    """Return the latest ratio of two kernels that were timed in turns; None if they never were.

    Either verdict may have the row. A ranked row counts before one that is not, then a later confirmation before an
    earlier one, and that before the search. Two rows of one moment are combined.
    """
    mine, its = _row(ours, their_id), _row(theirs, our_id)
    if mine is None or its is None:
        return mine or (its.inverse if its else None)
    if mine.ranked is not its.ranked:
        return mine if mine.ranked else its.inverse
    if mine.moment != its.moment:
        return mine if mine.moment > its.moment else its.inverse
    log, variance = _together(mine, its.inverse)
    whole = _speedup(log, _Z * math.sqrt(variance), mine.ranked)
    return replace(its.inverse, speedup=whole.ratio, low=whole.low, high=whole.high, why=mine.why or its.why)


def _edge(name: str, ours: Evaluation, other: str, theirs: Evaluation) -> Edge:
    row = measured_ratio(ours, name, theirs, other)
    assert row is not None
    log, half = _log(row)
    return Edge(log, (half / _Z) ** 2, row.ranked, row.ahead)


def _together(*rows: Ratio) -> tuple[float, float]:
    """Return the weighted mean of measurements, and its variance, which is larger if they disagree."""
    logs = [(log, (half / _Z) ** 2) for log, half in map(_log, rows)]
    weight = sum(1 / variance for _, variance in logs)
    mean = sum(log / variance for log, variance in logs) / weight
    spread = sum((log - mean) ** 2 / variance for log, variance in logs) / (len(logs) - 1)
    return mean, max(spread, 1.0) / weight


def _log(row: Ratio) -> tuple[float, float]:
    log = math.log(row.speedup)
    return log, max(log - math.log(row.low), math.log(row.high) - log, _Z * _LEAST_ERROR)


def _speedup(log: float, half: float, ranked: bool) -> Speedup:
    return Speedup(math.exp(log), math.exp(log - half), math.exp(log + half), ranked)


def _rows(evaluation: Evaluation) -> Iterator[Comparison]:
    names = dict.fromkeys(row.id for row in evaluation.evidence.against)
    if evaluation.claim:
        names[evaluation.claim.id] = None
    for name in names:
        if row := _row(evaluation, name):
            yield row


def _row(evaluation: Evaluation, other: str) -> Comparison | None:
    """Return the comparison with `other` in one verdict: its claim or a row of `against`, with the verdict's doubts."""
    row, claim = evaluation.versus(other), evaluation.claim
    if claim and other and claim.id == other and (row is None or row.moment <= claim.moment):
        row = claim
    if row and (doubt := evaluation.evidence.unranked):
        return replace(row, ranked=False, why=doubt)
    return row
