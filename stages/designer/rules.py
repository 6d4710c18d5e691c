"""The paper's designer done by rule: a catalogue of moves gives avenues, five experiments and the pick of three.

The catalogue (`catalogue.yaml`) says what can be changed, why, and what it usually brings; the population corrects
the predictions. The designer has no other memory: the same population gives the same plan.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from ksflow.protocols import lot
from ksflow.records import Choice, Experiment, Note, Plan, Population, Problem, portfolio
from ksflow.search.belief import Belief, Guess
from ksflow.search.catalogue import Catalogue, Move, catalogue
from ksflow.search.moves import Proposal, proposals
from ksflow.search.space import exhausted, space
from ksflow.source.families import Space

STAGE = "designer=rules"
AVENUES = 10
KNOWN, RISKY = 0.7, 0.2  # ignorance below and risk above which the words say so
UNLIKELY = 0.5  # the risk above which an unseen form is not tried for its own sake
TRUST = 0.2  # weight of a move's own range where nothing was measured


@dataclass(frozen=True)
class _Idea:
    """A proposal with what is expected of it."""

    proposal: Proposal
    guess: Guess
    low: float
    high: float
    """Range of the log gain: the catalogue's where nothing is known, the measurements' where much is."""

    @property
    def move(self) -> Move:
        return self.proposal.moves[0]

    @property
    def innovation(self) -> float:
        known = 0.4 + 0.6 * self.guess.ignorance
        return round(min(100.0, max(m.innovation for m in self.proposal.moves) * known), 1)

    @property
    def gain_percent(self) -> tuple[float, float]:
        low, high = sorted((self.low, self.high))
        return round(100 * math.expm1(low), 1), round(100 * math.expm1(high), 1)


class Rules:
    """Ten avenues, five experiments, three of them picked (`records.portfolio`)."""

    def __init__(self, experiments: int = 5, catalogue: str = "", seed: int = 0) -> None:
        """`catalogue`: a YAML file of moves, or nothing for the one that ships."""
        self.experiments = experiments
        self.catalogue = catalogue
        self.seed = seed

    def __call__(
        self,
        problem: Problem,
        population: Population,
        choice: Choice,
        notes: tuple[Note, ...],
    ) -> Plan:
        around = space(STAGE, population, choice.base)
        moves = catalogue(self.catalogue)
        belief = Belief(around, [moves.kind(tunable) for tunable in around.tunables])
        found = proposals(moves, around, choice.reference, belief, lot(self.seed, population))
        if not found:
            raise exhausted(STAGE, choice.base)
        ideas = _judged(found, belief)
        avenues = _avenues(moves, ideas)
        chosen = self._chosen(found, belief, _unseen_forms(moves, around))
        experiments = tuple(_experiment(idea, around, choice.base.id) for idea in chosen)
        return Plan(avenues, experiments, portfolio(experiments), "designer=rules")

    def _chosen(self, found: list[Proposal], belief: Belief, unseen: frozenset[tuple[str, str]]) -> list[_Idea]:
        """Five ideas for the three ways of picking, each chosen as if those before it were measured already.

        The first is a form that was never seen to work, while there is one: what is measured in one form says little
        of another.
        """
        wanted = (_likely, _new, _bold, _likely, _unsure)
        chosen: list[_Idea] = []
        left = list(found)
        for turn in range(min(self.experiments, len(found))):
            ideas = _judged(left, belief)
            forms = [i for i in ideas if i.guess.risk < UNLIKELY and unseen & i.proposal.config.items()]
            best = max((not turn and forms) or ideas, key=wanted[turn % len(wanted)])
            chosen.append(best)
            left.remove(best.proposal)
            belief.suppose(best.proposal.config)
        return chosen


def _unseen_forms(moves: Catalogue, around: Space) -> frozenset[tuple[str, str]]:
    """The forms of the algorithm that no kernel of this family was right in."""
    forms = [tunable for tunable in around.tunables if moves.kind(tunable).name == "form"]
    seen = {item for point in around.points if point.score_us for item in point.values.items()}
    return frozenset((t.name, value) for t in forms for value in t.options) - seen


def _likely(idea: _Idea) -> float:
    """The expected improvement over the base, by kernels that are right."""
    mean, deviation = (idea.low + idea.high) / 2, max((idea.high - idea.low) / 2, 1e-6)
    z = mean / deviation
    density = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    below = 0.5 * (1 + math.erf(z / math.sqrt(2)))
    return (1 - idea.guess.risk) * deviation * (z * below + density)


def _bold(idea: _Idea) -> float:
    return idea.high * (1 - idea.guess.risk)


def _unsure(idea: _Idea) -> float:
    """The single step that is understood least: what was credited to a joint step may be another's merit."""
    hope = idea.guess.deviation if idea.high > 0 else 0.0
    return (1 - idea.guess.risk) * hope / len(idea.proposal.changes) ** 2


def _new(idea: _Idea) -> float:
    return _likely(idea) * idea.innovation


def _judged(found: Iterable[Proposal], belief: Belief) -> list[_Idea]:
    listed = list(found)
    guesses = belief.guess([proposal.config for proposal in listed])
    return [_idea(proposal, guess) for proposal, guess in zip(listed, guesses, strict=True)]


def _idea(proposal: Proposal, guess: Guess) -> _Idea:
    lowest = sum(math.log1p(move.gain_percent[0] / 100) for move in proposal.moves)
    highest = sum(math.log1p(move.gain_percent[1] / 100) for move in proposal.moves)
    share = TRUST * guess.ignorance**2
    low = share * lowest + (1 - share) * (guess.mean - guess.deviation)
    high = share * highest + (1 - share) * (guess.mean + guess.deviation)
    return _Idea(proposal, guess, low, high)


def _avenues(moves: Catalogue, ideas: list[_Idea]) -> tuple[str, ...]:
    """The ten most promising moves; where fewer apply, those that would need more tunables."""
    best: dict[str, _Idea] = {}
    for idea in sorted(ideas, key=_bold, reverse=True):
        best.setdefault(idea.move.name, idea)
    listed = [
        f"{name}: {' '.join(f'{k}={v}' for k, v in idea.proposal.changes.items())} ({_percent(idea)}). {idea.move.why}"
        for name, idea in best.items()
    ]
    rest = [
        f"{move.name}: not open here ({', '.join(move.kinds)}). {move.why}"
        for move in moves.moves
        if move.name not in best
    ]
    return tuple([*listed, *rest][:AVENUES])


def _percent(idea: _Idea) -> str:
    low, high = idea.gain_percent
    return f"{low:+.0f} to {high:+.0f} %"


def _experiment(idea: _Idea, around: Space, base: str) -> Experiment:
    changes = dict(idea.proposal.changes)
    assigned = " ".join(f"{name}={value}" for name, value in changes.items())
    steps = ", ".join(f"{name} {around.base[name]} -> {value}" for name, value in changes.items())
    names = " with ".join(move.name for move in idea.proposal.moves)
    reasons = " ".join(move.why for move in idea.proposal.moves)
    return Experiment(
        f"{names}: {steps}. {reasons}{_caveat(idea, around)}",
        f"the source assigns {assigned}; right on every case; faster than {base}",
        idea.gain_percent,
        idea.innovation,
        changes,
    )


def _caveat(idea: _Idea, around: Space) -> str:
    """What measurements say of it, in words."""
    said = []
    for name, value in idea.proposal.changes.items():
        gains = around.steps.get((name, around.base[name], value))
        if gains:
            percent = 100 * math.expm1(sum(gains) / len(gains))
            said.append(f"{name} {around.base[name]} -> {value} alone brought {percent:+.0f} % in {len(gains)}.")
    if idea.guess.ignorance < KNOWN:
        said.append(f"Measurements so far expect {100 * math.expm1(idea.guess.mean):+.0f} %.")
    if idea.guess.risk > RISKY:
        said.append(f"Kernels like it failed, or nobody tried such values (risk {idea.guess.risk:.0%}).")
    return " ".join(["", *said])
