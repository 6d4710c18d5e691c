"""The paper's designer done by rule: a catalogue of moves gives avenues, five experiments and the pick of three.

The catalogue (`catalogue.yaml`) says what can be changed and what that usually brings; the population corrects the
predictions, and shows what fails. The designer has no other memory: the same population gives the same plan.
"""

from typing import TYPE_CHECKING

from ksflow.errors import StageError
from ksflow.kernels.source.families import Space
from ksflow.protocols import NO_CONTEXT, Context
from ksflow.records import Note, Plan, Population, Problem, Selection, Trial, portfolio
from ksflow.search.ideas import HOPELESS, Idea, avenues, experiment, ideas, select_promising
from ksflow.search.moves import Catalogue, Proposal, catalogue, proposals
from ksflow.search.space import exhausted_error, space

if TYPE_CHECKING:
    from ksflow.search.forecast import Forecasts  # which needs numpy

STAGE = "designer=rules"
_UNLIKELY = 0.5  # the risk above which an unseen form is not tried for its own sake
_WANTED = ("expected_improvement", "expected_improvement", "upside", "expected_improvement", "uncertainty")


class RulesDesigner:
    """Ten avenues, five experiments, three of them picked."""

    def __init__(self, experiments: int = 5, catalogue: str = "", seed: int = 0) -> None:
        """experiments: how many a plan has. catalogue: a YAML file of moves, or nothing for the one that ships."""
        self.experiments = experiments
        self.catalogue = catalogue
        self.seed = seed

    def __call__(
        self,
        problem: Problem,
        population: Population,
        selection: Selection,
        notes: tuple[Note, ...],
        context: Context = NO_CONTEXT,
    ) -> Plan:
        from ksflow.search.forecast import Forecasts  # numpy is for who designs

        around = space(STAGE, population, selection.base, notes)
        moves = catalogue(self.catalogue)
        model = Forecasts(around, [moves.kind(tunable) for tunable in around.tunables])
        candidates = proposals(moves, around, selection.reference, model, context.seed(self.seed, population))
        if not candidates:
            raise exhausted_error(STAGE, selection.base)
        hopes = ideas(candidates, model)
        if not select_promising(hopes, model):
            raise StageError(STAGE, _nothing_promises(selection.base, hopes))
        ways = avenues(around, hopes)
        chosen = self._chosen(candidates, model, moves, around)
        experiments = tuple(experiment(idea, around, selection.base.id) for idea in chosen)
        risks = [idea.forecast.risk for idea in chosen]
        return Plan(ways, experiments, portfolio(experiments, risks), STAGE)

    def _chosen(self, candidates: list[Proposal], model: "Forecasts", moves: Catalogue, around: Space) -> list[Idea]:
        """Up to five ideas for the three ways of picking, each chosen as if those before it were measured already.
        No two would fail of the same suspected cause.

        The first is a form that was never seen to work, while there is one: what is measured in one form says little
        of another.
        """
        chosen: list[Idea] = []
        unseen = _unseen_forms(moves, around)
        left = [(proposal, around.failures.suspect_values(proposal.config)) for proposal in candidates]
        while left and len(chosen) < self.experiments:
            hopes = ideas([proposal for proposal, _ in left], model)
            hopes = select_promising(hopes, model) or hopes
            forms = [i for i in hopes if i.forecast.risk < _UNLIKELY and unseen & i.proposal.config.items()]
            wanted = _WANTED[len(chosen) % len(_WANTED)]
            best = max((not chosen and forms) or hopes, key=lambda idea: float(getattr(idea, wanted)))
            chosen.append(best)
            model.assume_measured(best.proposal.config)
            tried = around.failures.suspect_values(best.proposal.config)
            left = [(p, cause) for p, cause in left if p != best.proposal and not (cause and cause == tried)]
        return chosen


def _nothing_promises(base: Trial, hopes: list[Idea]) -> str:
    gains = [idea.gain_percent[1] for idea in hopes if idea.forecast.risk < HOPELESS]
    most = f"is expected to gain more than {max(gains):+.0f} %" if gains else "is expected to be right"
    return (
        f"nothing promises a gain: of {len(hopes)} untried configurations near {base.id} none {most}; take "
        "designer=tune, have a model write (llm=NAME), add `tune:` values, or add a seed"
    )


def _unseen_forms(moves: Catalogue, around: Space) -> frozenset[tuple[str, str]]:
    """The forms of the algorithm that no kernel of this family was right in."""
    forms = [tunable for tunable in around.tunables if moves.kind(tunable).name == "form"]
    seen = {item for point in around.points if point.score_us for item in point.values.items()}
    return frozenset((t.name, value) for t in forms for value in t.options) - seen
