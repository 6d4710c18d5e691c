"""What a round decides: experiments, the plan with those that are run, and the steps that are kept of it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ksflow.records.base import Record


@dataclass(frozen=True, slots=True)
class Experiment(Record):
    """One thing to try on the base kernel."""

    description: str  # what to change, and why it should help
    rubric: str  # how to tell that it was done as intended
    gain_percent: tuple[float, float]  # predicted [lowest, highest] gain of the whole score
    innovation: float  # 0 (routine) to 100 (never seen)
    changes: Mapping[str, str] = field(default_factory=dict)
    """Tunable -> value, if the experiment assigns tunables."""
    avenue: int = 0
    """Number of the plan's avenue that it follows, from 1; 0 for none."""

    def __post_init__(self) -> None:
        lowest, highest = self.gain_percent
        if not (math.isfinite(lowest) and math.isfinite(highest) and lowest <= highest):
            raise ValueError(f"a gain range is [lowest, highest], not {list(self.gain_percent)}")
        if not 0 <= self.innovation <= 100:
            raise ValueError(f"innovation is 0 to 100, not {self.innovation}")
        if self.avenue < 0:
            raise ValueError(f"avenue is the number of an avenue, from 1, not {self.avenue}")


@dataclass(frozen=True)
class Plan(Record):
    """The designer's answer: avenues, experiments, and which of them are run."""

    avenues: tuple[str, ...]
    experiments: tuple[Experiment, ...]
    picked: tuple[int, ...]
    """Indices into `experiments`, distinct, in the order of execution."""
    by: str = ""
    """The designer: the variant, with its model and prompt if it has them."""

    def __post_init__(self) -> None:
        if len(set(self.picked)) != len(self.picked) or not set(self.picked) <= {*range(len(self.experiments))}:
            raise ValueError(f"picked {list(self.picked)} of {len(self.experiments)} experiments")

    def avenue_of(self, experiment: Experiment) -> str:
        """Return the avenue that one of its experiments follows; "" if none is named."""
        return self.avenues[experiment.avenue - 1] if 0 < experiment.avenue <= len(self.avenues) else ""


def portfolio(experiments: tuple[Experiment, ...], risks: Sequence[float] = ()) -> tuple[int, ...]:
    """Return the paper's pick, without replacement: most innovative, highest maximum, highest minimum.

    risks: probabilities of failure, which turn each merit into its expectation; a failure gains -100 %.
    """
    merits = [(each.innovation, each.gain_percent[1] + 100, each.gain_percent[0] + 100) for each in experiments]
    hopes = [1 - risk for risk in risks] or [1.0] * len(experiments)
    picked: list[int] = []
    for merit in range(min(3, len(experiments))):
        left = [index for index in range(len(experiments)) if index not in picked]
        picked.append(max(left, key=lambda index: hopes[index] * merits[index][merit]))
    return tuple(picked)


@dataclass(frozen=True, slots=True)
class RoundStep(Record):
    """A step of a round: its start, its selection, or the ids of its plan's experiments or of a repair."""

    cause: str  # the round's name, `<session>.<number>`; for a repair the failed trial's id
    base: str = ""
    reference: str = ""
    rationale: str = ""
    ids: tuple[str, ...] = ()
    planned: bool = False  # whether the ids are those of a plan, which may have none

    @property
    def is_start(self) -> bool:
        """Whether the step only says that a round began."""
        return not (self.base or self.ids or self.planned)


@dataclass(frozen=True)
class PlannedRound:
    """A round's decisions: selected trials and rationale, the plan, and the trials that resulted."""

    base: str
    reference: str
    rationale: str
    plan: Plan
    trials: tuple[str, ...]

    @property
    def remaining_experiments(self) -> tuple[Experiment, ...]:
        """Experiments that were designed and not run."""
        run = self.plan.picked[: len(self.trials)]
        return tuple(each for index, each in enumerate(self.plan.experiments) if index not in run)
