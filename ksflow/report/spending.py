"""Costs of trials and improvements, and durations of a call. `Lineage.total_cost` has the cost of a whole run."""

from dataclasses import dataclass

from ksflow.records import Cost, Origin, Population, Trial


@dataclass(frozen=True)
class Improvement:
    """A new best, with its cost since the previous one."""

    trial: Trial
    gain_percent: float | None
    """Over the previous best: 100 means twice as fast; None if the two verdicts cannot be compared."""
    trials: int  # experiments since the last improvement, this one included
    cost: Cost  # of those experiments


def improvements(population: Population) -> tuple[Improvement, ...]:
    """Return every experiment that became the best, in the order of their ids."""
    steps, trials, cost, before = [], 0, Cost(), None
    for trial, incumbent in zip(population.trials, population.best_so_far, strict=True):
        if trial.origin is not Origin.SEED:
            trials, cost = trials + 1, cost + trial.cost
        if incumbent is trial and before is not None and trial.origin is not Origin.SEED:
            gain = population.speedup(trial, before)
            steps.append(Improvement(trial, gain.gain_percent if gain else None, trials, cost))
            trials, cost = 0, Cost()
        before = incumbent
    return tuple(steps)


def price(cost: Cost, shares: int = 1) -> str:
    """Return a cost, or one of so many equal shares: `$0.0123, 4.5k tokens`, without dollars if no price is known; ""
    if no model was called.
    """
    if not (cost.tokens or cost.usd or cost.calls):
        return ""
    return ", ".join(filter(None, (cost.dollars(4, shares), f"{cost.tokens / shares / 1000:.1f}k tokens")))


def duration(seconds: float) -> str:
    """Return `40 s`, `3 min 05 s`, `1 h 05 min`."""
    whole = round(seconds)
    if whole < 90:
        return f"{whole} s"
    minutes = whole // 60
    return f"{minutes} min {whole % 60:02} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"
