"""What one call may use and how it goes about it, and what came of it."""

from collections.abc import Mapping
from dataclasses import dataclass

from ksflow.errors import ConfigError, one_of
from ksflow.loop.budget import caps_of
from ksflow.records import Cost, Population, Trial


class Schedule:
    """Budgets of one call, and how it goes about it. Whichever is reached first ends the search; none means no limit.

    evaluations: experiments written and judged; one that the judge could not answer counts, and the next call has it
    judged again, which counts no more. rounds: how many are begun. minutes: how long the search goes on. usd: what
    models may cost. tokens: how many of prompts and answers. stages: caps of a stage, as `stages.writer.usd=3`, of usd,
    tokens, calls or minutes. rounds_in_flight: rounds that go on at the same time. repairs: how often a failed kernel
    goes back to the writer. repeats: code that was tried before is answered from the record, and shown to its writer
    with that answer once (`show`) or not (`skip`), or is judged again (`judge`). digest_every: trials between two
    digests. confirm: whether the winner is judged once more.
    """

    def __init__(  # noqa: PLR0913 - a budget each
        self,
        evaluations: int | None = 60,
        rounds: int | None = None,
        minutes: float | None = None,
        usd: float | None = None,
        tokens: float | None = None,
        stages: Mapping[str, Mapping[str, float | None]] | None = None,
        rounds_in_flight: int = 1,
        repairs: int = 0,
        repeats: str = "show",
        digest_every: int = 12,
        confirm: bool = True,
    ) -> None:
        whole = {"evaluations": evaluations, "rounds": rounds, "minutes": minutes, "usd": usd, "tokens": tokens}
        self.caps = caps_of(whole, stages or {})
        if digest_every < 1 or repairs < 0 or rounds_in_flight < 1:
            raise ConfigError("loop.digest_every and rounds_in_flight must be at least 1, loop.repairs at least 0")
        self.rounds_in_flight = rounds_in_flight
        self.repeats = one_of("loop.repeats", repeats, ("show", "skip", "judge"))
        self.repairs, self.digest_every, self.confirm = repairs, digest_every, confirm


@dataclass(frozen=True)
class RunOutcome:
    """How a run ended."""

    population: Population
    best: Trial
    baselines: tuple[Trial, ...]
    reason: str
    judged: int
    repeats: int
    """Trials that were answered from the record."""
    idle: str
    """Why nothing was tried; empty where something was, or where nothing was asked for."""
    took: Mapping[str, float]
    """Seconds of each part of the call, from the command to its end: set-up, seeds, search, confirmation, hand-over."""
    busy: float
    """The share of the search in which the device was at work."""
    cost: Cost

    @property
    def score_us(self) -> float:
        """The winner's score on the run's scale (`Population.time_us`)."""
        return self.population.time_us(self.best) or 0.0

    @property
    def search_s(self) -> float:
        """Seconds of the rounds alone."""
        return self.took["search"]

    @property
    def wall_s(self) -> float:
        """Seconds of the whole call."""
        return sum(self.took.values())
