"""The fastest kernel that still has something to try. Plays by rule; random numbers are not involved.

Kernels that declare the same tunables are a family. The best of a family is ranked by its time divided by what its
untried values might still bring, so a slow seed with much to explore gets its turn before a fast one with little.
The optimism fades with every experiment that did not improve the family: in the end the fastest family wins.
"""

from dataclasses import dataclass
from functools import cached_property

from ksflow.records import Choice, Population, Problem, Trial
from ksflow.source.families import Member, declared, families, space, values_of


class Fastest:
    """Base: the best of the most promising family. Reference: the best kernel that is not like it."""

    def __init__(self, optimism_percent: float = 20.0, patience: int = 12) -> None:
        """`optimism_percent`: what a value never tried may bring. `patience`: experiments that halve the hope."""
        self.optimism = 1 + optimism_percent / 100
        self.patience = patience

    def __call__(self, problem: Problem, population: Population) -> Choice:
        found = map(_Family, families(population).values())
        open_families = [family for family in found if family.best and family.open]
        if not open_families:
            base = population.ranked[0]
            reference = _reference(base, population)
            return population.choose(base.id, reference.id, "the fastest; nothing is left to tune")
        chosen = min(open_families, key=self._hoped)
        base = chosen.ranked[0]
        reference = _reference(base, population)
        return population.choose(base.id, reference.id, self._rationale(chosen, reference))

    def _hoped(self, family: "_Family") -> float:
        """The time the family might reach."""
        hope = family.untried / (1 + family.stalled / self.patience)
        return family.best / float(self.optimism**hope)

    def _rationale(self, family: "_Family", reference: Trial) -> str:
        base = family.ranked[0]
        return (
            f"{base.id} is the fastest of {len(family.ranked)} accepted kernels with its {family.declared} tunables "
            f"({family.best:.1f} us); {family.untried} of their values are untried, so it may reach "
            f"{self._hoped(family):.1f} us. "
            f"{reference.id} is the best kernel that differs from it in more than one value."
        )


@dataclass(frozen=True)
class _Family:
    """Trials whose kernels declare the same tunables."""

    members: tuple[Member, ...]

    @cached_property
    def ranked(self) -> tuple[Trial, ...]:
        return Population(tuple(member.trial for member in self.members)).ranked

    @property
    def best(self) -> float:
        """The best time, 0 when none was accepted."""
        return self.ranked[0].score_us or 0.0 if self.ranked else 0.0

    @property
    def declared(self) -> int:
        return len(self.members[0].values)

    @property
    def untried(self) -> int:
        """How many declared values no accepted kernel of the family has."""
        options = {(t.name, option) for t in declared(_text(self.ranked[0])) for option in t.options}
        return len(options.difference(*(values_of(_text(trial)).items() for trial in self.ranked)))

    @property
    def open(self) -> bool:
        """Whether a designer that starts from its best kernel has something left to try."""
        return space(_text(self.ranked[0]), self.members).open

    @property
    def stalled(self) -> int:
        """Experiments since the family last improved."""
        best = self.ranked[0]
        return sum(member.trial.id > best.id for member in self.members)


def _text(trial: Trial) -> str:
    return trial.kernel.main if trial.kernel else ""


def _reference(base: Trial, population: Population) -> Trial:
    """The best accepted kernel that differs from the base in two values or more, of its family before others."""
    mine = values_of(_text(base))
    family = [trial for trial in population.ranked if values_of(_text(trial)).keys() == mine.keys()]
    unlike = [trial for trial in family if len(mine.items() - values_of(_text(trial)).items()) > 1]
    others = [trial for trial in population.ranked if trial not in family]
    return next(iter([*unlike, *others, *family[1:]]), base)
