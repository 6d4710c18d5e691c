"""The composition root: from a checked configuration to the parts of a run, each built once and closed in the end."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from ksflow.config import compose
from ksflow.config.warm_start import WarmStart, warm_start
from ksflow.errors import ConfigError
from ksflow.kernels.problem.kernel_file import kernel_file
from ksflow.lineage import Lineage
from ksflow.lineage.history import RecordedRun
from ksflow.loop import judging
from ksflow.loop.events import Event
from ksflow.loop.run import Run, Stages
from ksflow.loop.schedule import Schedule
from ksflow.loop.startup import no_other, places
from ksflow.protocols import Answerer, Evaluator, Tracker
from ksflow.records import Note, Problem, Seed, Target


@dataclass(frozen=True)
class Parts:
    """What a run is made of. settings: the configuration as it is kept with the session."""

    problem: Problem
    target: Target
    lineage: Lineage
    stages: Stages
    schedule: Schedule
    seeds: tuple[Seed, ...]
    notes: tuple[Note, ...]
    settings: str
    models: tuple[Answerer, ...]
    tracker: Tracker | None
    recorded: RecordedRun | None
    profiler: Callable[[], Evaluator] | None
    """Builds the evaluator with hardware counters, where the device has them."""
    remarks: tuple[str, ...]
    """Lines for the terminal on what the run starts with."""

    def run(self, *listeners: Callable[[Event, Run], None]) -> Run:
        """Return a run that has not begun."""
        return Run(
            self.problem, self.lineage, self.stages, self.schedule, listeners, self.notes, self.recorded, self.models
        )


@contextmanager
def parts(cfg: DictConfig, driven: bool = False) -> Iterator[Parts]:
    """Build the parts of the configured run, and close what they hold in the end, also where building fails.

    driven: selection, design and kernels come from outside, so no stage, model, tracker or recorded run is built.
    Raises ConfigError, LineageError.
    """
    with ExitStack() as opened:

        def evaluator() -> Evaluator:
            evaluate = compose.evaluator(cfg)
            opened.callback(judging.close, evaluate)
            return evaluate

        @cache
        def profiler() -> Evaluator:
            cfg.evaluator.profile = True
            return evaluator()

        evaluate = evaluator()
        evaluate.start()
        problem = compose.problem(cfg)
        tracker: Tracker | None = compose.build(cfg.tracker) if cfg.tracker and not driven else None
        recorded: RecordedRun | None = compose.build(cfg.recorded) if cfg.recorded and not driven else None
        lineage: Lineage = compose.build(cfg.lineage)(problem=problem.name, run=compose.run_name(cfg))
        opened.callback(lineage.close)
        no_other(problem, lineage)
        target: Target = compose.build(cfg.target)
        start = WarmStart()
        if cfg.inherit:
            here = judging.current_key(problem, evaluate).target
            start = warm_start(compose.build(cfg.lineage), str(cfg.inherit), problem, target, here, lineage.run)
        select, design, write, digest = (_from_outside,) * 4 if driven else stages(cfg)
        yield Parts(
            problem,
            target,
            lineage,
            Stages(select, design, write, evaluate, digest),
            compose.build(cfg.loop),
            (*_seeds(cfg, problem), *start.seeds),
            (*compose.build(cfg.knowledge)(target=target, problem=problem.name), *start.notes),
            compose.settings(cfg, places(problem)),
            () if driven else tuple(compose.models(cfg)),
            tracker,
            recorded,
            profiler if target.kind == "gpu" and evaluate.profiles else None,
            start.said,
        )


def stages(cfg: DictConfig) -> tuple[Any, Any, Any, Any]:
    """Build the selector, the designer, the writer and the digester. Raises ConfigError."""
    select, design, write, digest = map(compose.build, (cfg.selector, cfg.designer, cfg.writer, cfg.digester))
    return select, design, write, digest


def _seeds(cfg: DictConfig, problem: Problem) -> tuple[Seed, ...]:
    files = [cfg.seed_kernels] if isinstance(cfg.seed_kernels, str) else list(cfg.seed_kernels or ())
    own = [Seed(Path(file).name, kernel_file(file, problem.languages)) for file in files]
    return (*problem.seeds, *(seed for seed in own if not problem.lane or seed.kernel.language == problem.lane))


def _from_outside(*_: object, **__: object) -> Any:
    raise ConfigError("selection, design and kernels of this run come from outside")
