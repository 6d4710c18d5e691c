"""What commands share: a lineage to read, and model calls on record within the budgets of `loop`."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

from omegaconf import DictConfig

from ksflow.config import compose
from ksflow.errors import ConfigError
from ksflow.lineage import Lineage
from ksflow.lineage.transcript import Transcript
from ksflow.loop.budget import Meter
from ksflow.protocols import override_call
from ksflow.records import Problem, Trial


def open_lineage(cfg: DictConfig, problem: str, run: str = "", create: bool = False) -> AbstractContextManager[Lineage]:
    """The lineage of a problem's run (the configured one), closed in the end. Raises LineageError, ConfigError."""
    lineage: Lineage = compose.build(cfg.lineage)(problem=problem, run=run or str(cfg.run), create=create)
    return closing(lineage)


@contextmanager
def recorded_run(cfg: DictConfig) -> Iterator[tuple[Problem, Lineage]]:
    """The configured problem and its run, for looking: verdicts as recorded, whatever machine this is."""
    problem = compose.problem(cfg)
    with open_lineage(cfg, problem.name) as lineage:
        lineage.expect_as_recorded()
        yield problem, lineage


def winner_folder(lineage: Lineage) -> Path:
    """Where the files of a run's winner are, or will be."""
    return lineage.store.path.parent / "best" / lineage.problem / lineage.run


def some_trials(lineage: Lineage) -> dict[str, Trial]:
    """Its trials by their ids. ConfigError where there is none."""
    if trials := {trial.id: trial for trial in lineage.all_trials()}:
        return trials
    where = f"problem={lineage.problem} run={lineage.run} in {lineage.store.path}"
    raise ConfigError(f"no trial of {where}; runs: {lineage.runs()}")


def named_trial(word: str, trials: Mapping[str, Trial]) -> Trial:
    """The trial that a person means: 27 is 00027. ConfigError where there is none."""
    name = f"{word:0>5}" if word.isdigit() else word
    if name not in trials:
        known = f"there are {min(trials)} to {max(trials)}" if trials else "there is none yet"
        raise ConfigError(f"no trial {name}; {known}")
    return trials[name]


@contextmanager
def recorded_task(cfg: DictConfig, problem: Problem, what: str) -> Iterator[Transcript]:
    """Meanwhile, in this context, every model call is about `what`, on record and metered. BudgetError in there."""
    with open_lineage(cfg, problem.name, create=True) as lineage:
        transcript = Transcript(lineage)
        meter = Meter(transcript, compose.build(cfg.loop).caps)
        with override_call(meter=meter.reserve), transcript.attribute_calls(what):
            yield transcript
