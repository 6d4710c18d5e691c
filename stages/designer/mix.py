"""Several designers take turns: a model finds the structure, a tuner the numbers."""

from collections.abc import Mapping

from ksflow.errors import ConfigError, StageError
from ksflow.protocols import NO_CONTEXT, Composite, Context, Designer, call_stage
from ksflow.records import Note, Plan, Population, Problem, Selection

_GOLDEN = 0.6180339887498949


class MixDesigner(Composite):
    """Asks one of several designers, by the size of the population, so that a replay asks the same ones."""

    def __init__(self, designers: Mapping[str, Designer], weights: Mapping[str, float] | None = None, seed: int = 0):
        """weights: the shares of the turns; a designer without one counts 1."""
        weights = weights or {}
        if unknown := set(weights) - set(designers):
            raise ConfigError(f"designer.weights: no designer {', '.join(sorted(unknown))}")
        self.designers, self.parts = designers, tuple(designers.values())
        self.shares = {name: weights.get(name, 1.0) for name in designers}
        if min(self.shares.values(), default=0.0) < 0 or not any(self.shares.values()):
            raise ConfigError("designer.weights must not be negative, and one must be positive")
        self.seed = seed

    def __call__(
        self,
        problem: Problem,
        population: Population,
        selection: Selection,
        notes: tuple[Note, ...],
        context: Context = NO_CONTEXT,
    ) -> Plan:
        """Return the plan of the designer whose turn it is, or of the next one if that fails."""
        first = self.turn(len(population.trials))
        failed: list[str] = []
        for name in [first, *(name for name, share in self.shares.items() if share and name != first)]:
            try:
                return call_stage(self.designers[name], problem, population, selection, notes, context=context)
            except StageError as error:
                failed.append(error.reason)
        raise StageError("designer=mix", "; ".join(failed))

    def turn(self, step: int) -> str:
        """Return a step's designer. Multiples of the golden ratio meet every share closely, whatever the steps."""
        point = (step + self.seed) * _GOLDEN % 1 * sum(self.shares.values())
        for name, share in self.shares.items():
            point -= share
            if point < 0:
                return name
        return name
