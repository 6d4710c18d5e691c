"""What an optimiser works with, from the words of a command line: for `optimize`, and for a program of one's own.

`with course("stage=designer", "problem=softmax", "llm=gemini", "loop.usd=5") as designer:` gives a stage's program (a
`dspy.Module`), examples from the recorded runs, a metric and a teacher, as any of DSPy's optimisers takes them. Calls
are recorded and budgets kept as they are for the command.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from typing import Any

from ksflow.config import compose
from ksflow.errors import ConfigError
from ksflow.lineage import Lineage
from ksflow.lineage.history import RunHistory, read_histories
from ksflow.lineage.transcript import Transcript
from ksflow.loop.budget import Meter
from ksflow.protocols import MODEL_STAGES, Asks, Composite, override_call
from ksflow.training.optimize.examples import ExampleSource, HeldOutSplit, gather
from ksflow.training.optimize.metrics import Judge
from ksflow.training.optimize.teaching import Course, Settings

_CAP = re.compile(r"\+*loop\.(usd|tokens|minutes|stages(?!\.evaluator\.)[\w.]*)=")
"""Words of the command line for budgets that are kept here."""


@dataclass(frozen=True)
class PromptTask:
    """A stage's prompt to compile, and what it is compiled from."""

    cfg: Any
    settings: Settings
    source: ExampleSource
    histories: list[RunHistory]
    course: Course
    split: HeldOutSplit
    caps: Mapping[str, float]

    def lineage(self) -> AbstractContextManager[Lineage]:
        """Return the lineage that records the calls, in the run `optimize-<stage>` of the problem."""
        name = self.histories[0].problem.name
        lineage: Lineage = compose.build(self.cfg.lineage)(problem=name, run=f"optimize-{self.cfg.stage}", create=False)
        return closing(lineage)


def prepare(words: Sequence[str]) -> PromptTask:
    """Return the task of `key=value` words. Raises ConfigError for invalid words or too few rounds."""
    overrides = list(words)
    if unread := [word for word in overrides if word.lstrip("+").startswith("loop.") and not _CAP.match(word)]:
        raise ConfigError(
            f"{unread[0]} is for a search; optimize keeps loop.usd, loop.tokens, loop.minutes and "
            "loop.stages.STAGE.KIND, and has at most optimize.evaluations kernels judged"
        )
    cfg = compose.compose(overrides, "optimize")
    for key, valid in (("stage", MODEL_STAGES), ("optimizer", [*cfg.optimizers])):
        if cfg[key] not in valid:
            raise ConfigError(f"{key}={cfg[key]} is not one of: {', '.join(valid)}")
    settings: Settings = compose.build(cfg.optimize)
    source = _source(cfg, settings)
    rest = [word for word in overrides if not word.startswith("problem=")]
    others = [compose.compose([*rest, f"problem={name}"], "optimize") for name in _listed(settings.problems)]
    problems = {problem.name: problem for problem in (compose.build(each.problem) for each in (cfg, *others))}.values()
    histories = [
        h for each in problems for h in read_histories(compose.build(cfg.lineage), each, _listed(settings.runs))
    ]
    parts, split = gather(source, histories, settings.examples, settings.seed)
    made = Course(source.stage.program, parts, settings.lm)
    return PromptTask(cfg, settings, source, histories, made, split, compose.build(cfg.loop).caps)


@contextmanager
def course(*words: str) -> Iterator[Course]:
    """What an optimiser of DSPy's takes, for the `key=value` words that the command `optimize` takes.

    It has `program` (the stage's `dspy.Module`), `train`, `validation` and `held_out` (lists of `dspy.Example`),
    `metric` and `teacher` (a `dspy.LM` for reflection). Inside, DSPy asks the stage's model, one question at a time;
    every call is recorded in the lineage, and budgets (`loop.usd=5`) are kept. Raises ConfigError where the words
    cannot be, and inside whatever ends the asking: BudgetError, StageError, ConfigError.
    """
    task = prepare(words)
    with task.lineage() as lineage:
        transcript = Transcript(lineage)
        meter = Meter(transcript, task.caps)
        with override_call(record=transcript.keep, meter=meter.reserve), task.course.open() as opened:
            yield opened


def _listed(names: Sequence[str] | None) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names or ())


def _source(cfg: Any, settings: Settings) -> ExampleSource:
    """Return what the stage's examples are made from. Raises ConfigError for a stage without a model."""
    if cfg.stage not in cfg:
        raise ConfigError(f"nobody asks the {cfg.stage}: add writer=verified")
    stage, key = compose.build(cfg[cfg.stage]), cfg.stage
    while isinstance(stage, Composite) and stage.parts:  # the part that asks: `writer.llm` where the writer is a mix
        part = stage.parts[0]
        names = [name for name, value in vars(stage).items() if value is part]
        if not names:  # several take turns
            break
        stage, key = part, f"{key}.{names[0]}"
    if not isinstance(stage, Asks):
        raise ConfigError(
            f"{cfg.stage}={type(stage).__name__} has no prompt: choose a model with llm=... or {cfg.stage}=llm; one of "
            "your own needs program and question(...), see docs/learning.md"
        )
    initial_notes = compose.build(cfg.knowledge)(target=compose.build(cfg.target))
    live = cfg.stage == "designer" and settings.measure == "live"
    judge = None
    if live or cfg.stage == "writer":
        evaluate = compose.evaluator(cfg)
        evaluate.start()
        judge = Judge(evaluate, settings.evaluations)
    return ExampleSource(cfg.stage, stage, initial_notes, judge, compose.build(cfg.writer) if live else None, key)
