"""What trials and improvements have cost, from the population alone."""

from dataclasses import dataclass

from ksflow.records import Cost, Origin, Population, Trial


@dataclass(frozen=True)
class Improvement:
    """A new best, and what it took since the one before it."""

    trial: Trial
    before: Trial
    """The best until then."""
    trials: int
    """Experiments since the last improvement, this one included."""
    cost: Cost
    """Of those experiments."""

    @property
    def gain_percent(self) -> float:
        """By the two scores; 100 means twice as fast."""
        return ((self.before.score_us or 0.0) / (self.trial.score_us or 1.0) - 1) * 100


def improvements(population: Population) -> tuple[Improvement, ...]:
    """Every experiment that became the best, in the order of their ids."""
    found, trials, cost, before = [], 0, Cost(), None
    for trial, champion in zip(population.trials, population.champions, strict=True):
        if trial.origin is not Origin.SEED:
            trials, cost = trials + 1, cost + trial.cost
        if champion is trial and before is not None and trial.origin is not Origin.SEED:
            found.append(Improvement(trial, before, trials, cost))
            trials, cost = 0, Cost()
        before = champion
    return tuple(found)


def spent(population: Population) -> Cost:
    """On every experiment, stale ones included."""
    return sum((trial.cost for trial in (*population.stale, *population.trials)), Cost())


def price(cost: Cost) -> str:
    """As a person reads it: `$0.0123, 4.5k tokens`; empty where no model was called."""
    if not (cost.tokens or cost.usd or cost.calls):
        return ""
    return f"${cost.usd:.4f}, {cost.tokens / 1000:.1f}k tokens"
