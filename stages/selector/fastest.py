"""The fastest kernel that still has something to try. Plays by rule; random numbers are not involved.

Kernels that differ in the values of their tunables alone are a family. The best of a family is ranked by its time
divided by what its untried values might still bring, so a slow seed with much to explore gets its turn before a fast
one with little. Where an experiment made the structure, values that were accepted in another one with the same names
promise nothing more: it was written with what was known of them. The optimism fades with every experiment that did not
improve the family: in the end the fastest family wins.
"""

from collections import defaultdict
from collections.abc import Sequence, Set
from dataclasses import dataclass
from functools import cached_property

from ksflow.kernels.source.families import FamilyMember, declared, families, space, values_in
from ksflow.records import Origin, Population, Problem, Selection, Trial, by_number

_OPTIMISM = 1.2  # how many times as fast a value that was never tried may be
_PATIENCE = 12  # experiments that halve the hope


class Fastest:
    """Base: the best of the most promising family. Reference: the best kernel that is not like it."""

    def __call__(self, problem: Problem, population: Population) -> Selection:
        met: dict[frozenset[str], set[tuple[str, str]]] = defaultdict(set)
        for trial in population.ranked:
            values = values_in(trial.kernel)
            met[frozenset(values)].update(values.items())
        listed = families(population).values()
        all_families = [_Family(members, met[frozenset(members[0].values)], population) for members in listed]
        hopes = sorted((family for family in all_families if family.ranked), key=lambda family: family.hoped_us)
        left = (family for family in hopes if space(family.ranked[0].kernel, family.members).has_untried)
        chosen = next(left, None)
        base = chosen.ranked[0].trial if chosen else population.ranked[0]
        reference = _reference(base, population)
        rationale = "the fastest; nothing is left to tune"
        if chosen:
            rationale = (
                f"{base.id} is the fastest of {len(chosen.ranked)} accepted kernels with its "
                f"{len(chosen.members[0].values)} tunables ({chosen.best_us:.1f} us); {chosen.untried} of their values "
                f"are untried, so it may reach {chosen.hoped_us:.1f} us. "
                f"{reference.id} is the best kernel that differs from it in more than one value."
            )
        return population.choose(base.id, reference.id, rationale)


@dataclass(frozen=True)
class _Family:
    """Trials whose kernels differ in the values of their tunables alone."""

    members: tuple[FamilyMember, ...]
    met: Set[tuple[str, str]]
    """The values that accepted kernels with tunables of these names have, in whatever structure."""
    population: Population

    @cached_property
    def ranked(self) -> Sequence[FamilyMember]:
        by_id = {member.trial.id: member for member in self.members}
        return [by_id[trial.id] for trial in self.population.ranked if trial.id in by_id]

    @property
    def best_us(self) -> float:
        return self.ranked[0].us or 0.0

    @cached_property
    def untried(self) -> int:
        """The number of declared values that no accepted kernel of the family, or that it may have learnt from, has."""
        options = {(t.name, option) for t in declared(self.ranked[0].kernel.main) for option in t.options}
        if self.members[0].trial.origin is not Origin.SEED:
            return len(options - self.met)
        return len(options.difference(*(member.values.items() for member in self.ranked)))

    @property
    def hoped_us(self) -> float:
        """The time the family might reach; less hope with every experiment since it last improved."""
        best = by_number(self.ranked[0].trial.id)
        stalled = sum(by_number(member.trial.id) > best for member in self.members)
        return self.best_us / float(_OPTIMISM ** (self.untried / (1 + stalled / _PATIENCE)))


def _reference(base: Trial, population: Population) -> Trial:
    """Return the best kernel with two or more other values of the base's tunables, else one with other tunables."""
    mine = values_in(base.kernel)
    family = [trial for trial in population.ranked if values_in(trial.kernel).keys() == mine.keys()]
    unlike = [trial for trial in family if len(mine.items() - values_in(trial.kernel).items()) > 1]
    others = [trial for trial in population.ranked if trial not in family]
    return next(iter([*unlike, *others, *family[1:]]), base)
