"""Model calls of a command that is no run: kept in the problem's lineage, and within the budgets of `loop`."""

from collections.abc import Iterator
from contextlib import contextmanager

from omegaconf import DictConfig

from ksflow.config import compose
from ksflow.lineage import Lineage
from ksflow.lineage.transcript import Transcript
from ksflow.protocols import calling
from ksflow.records import Problem
from ksflow.session.budget import Meter


@contextmanager
def recorded_task(cfg: DictConfig, problem: Problem, what: str) -> Iterator[Transcript]:
    """Meanwhile, in this context, every model call is about `what`, on record and metered. BudgetError in there."""
    lineage: Lineage = compose.build(cfg.lineage)(problem=problem.name, run=str(cfg.run))
    try:
        transcript = Transcript(lineage)
        caps = compose.build(cfg.loop).caps
        meter = Meter(transcript, caps)
        with calling(meter=meter.reserve), transcript.about(what):
            yield transcript
    finally:
        lineage.close()
