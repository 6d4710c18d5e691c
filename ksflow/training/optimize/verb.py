"""The verb `optimize`: a stage's prompt, compiled from what a lineage knows, measured on rounds it has never seen.

Interrupted or killed, the same command goes on: answers come from the model's cache, and what is drawn comes from the
seed.
"""

import io
import itertools
import os
import statistics
import sys
from contextlib import AbstractContextManager, redirect_stderr, redirect_stdout, suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from ksflow import home, report
from ksflow.config.compose import build
from ksflow.errors import BudgetError, ConfigError, pluralize
from ksflow.lineage.transcript import Transcript
from ksflow.loop.budget import Meter
from ksflow.protocols import override_call
from ksflow.records import Question, Reservation
from ksflow.redaction import redact
from ksflow.training.optimize import metrics
from ksflow.training.optimize.card import ScoreComparison, card, describe_cost
from ksflow.training.optimize.task import PromptTask, prepare
from ksflow.training.optimize.teaching import CandidateProgram, Settings, compiled

_EVERY = 10
"""Graded answers between two lines of progress."""
_KEPT = 0.2
"""The share of a budget that is kept for measuring the result."""


def optimize(words: list[str], overrides: list[str]) -> int:
    """`optimize stage=designer optimizer=gepa`."""
    if words:
        raise ConfigError(f"optimize takes key=value arguments, not {words[0]!r}")
    task = prepare(overrides)
    path = _destination(task.settings, task.cfg.stage, task.cfg.optimizer)
    with task.lineage() as lineage:
        try:
            _Optimization(task, Transcript(lineage), path).run()
        except BudgetError as error:
            raise BudgetError(
                f"{error} before the result was measured; the answers are kept: give more, the same command goes on"
            ) from error
    return 0


def _destination(settings: Settings, stage: str, optimizer: str) -> Path:
    """Where the prompt goes; a name is given once, because runs on record go by it. ConfigError where it cannot be."""
    folder = Path(settings.folder, stage)
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK):
        raise ConfigError(f"optimize.folder={settings.folder} cannot be written; choose another")
    names = [settings.name] if settings.name else (f"{optimizer}_v{number}" for number in itertools.count(1))
    for path in (folder / f"{name}.json" for name in names):
        if not path.exists():
            return path
    raise ConfigError(f"{path} is another prompt; choose another optimize.name, or remove it")


class _Optimization:
    """One call of the command: measures, compiles, measures again, saves."""

    def __init__(self, task: PromptTask, transcript: Transcript, path: Path) -> None:
        self.task, self.transcript, self.path = task, transcript, path
        self.course, self.settings = task.course, task.settings
        first = {name: most * (1 - _KEPT) for name, most in task.caps.items()}
        self.meter, self.first = Meter(transcript, task.caps), Meter(transcript, first, limits=task.caps)
        self.compiling = False
        self.console = report.console(stderr=True)
        self.console.file = sys.stderr  # whatever stderr is redirected to meanwhile

    def run(self) -> None:
        """Say what comes of it. Raises BudgetError where the result could not be measured."""
        course, stage, key = self.course, self.task.cfg.stage, self.task.source.key
        self._say(
            f"{stage}: {pluralize(len(course.train), 'example')} to learn from, {len(course.validation)} to choose "
            f"by, {len(course.held_out)} held out"
        )
        course.watch = self._progress
        with override_call(record=self.transcript.keep, meter=self._reserve), course.open():
            base = course.program
            start = statistics.fmean(course.examine(base, course.validation))
            before = course.examine(base, course.held_out)
            student, mean, remark = self._compile(start)
            after = course.examine(student, course.held_out)
        rounds = tuple(case.round for case in course.cases[-len(after) :])
        compared = ScoreComparison(tuple(before), tuple(after), self.settings.seed, rounds)
        instructions = (program.predict.signature.instructions for program in (base, student))
        used = f"{key or stage}.prompt={self.path.stem}"
        rows = {**self._rows(remark), "validation": f"{start:.3f} -> {mean:.3f}"}
        rows["worked examples"] = str(len(student.predict.demos))
        home.write(self.path.with_suffix(".md"), redact(card(used, rows, compared, *instructions)))
        student.save(self.path)
        self._say(f"held out: {compared}")
        self._say(
            f"written to {self.path}, with a card beside it; use it with {used}; {describe_cost(self.transcript.total)}"
        )

    def _say(self, line: str) -> None:
        report.say(self.console, line)

    def _progress(self) -> None:
        if self.course.graded % _EVERY == 0:
            asked = pluralize(self.course.teacher.asked, "question")
            self._say(
                f"{self.course.graded} answers graded, {asked} to the teacher, {describe_cost(self.transcript.total)}"
            )

    def _compile(self, start: float) -> tuple[CandidateProgram, float, str]:
        """The best prompt on the validation set, the one it started from included, its mean there, and a remark."""
        optimizer = build(self.task.cfg.optimizers[self.task.cfg.optimizer])
        log = io.StringIO()  # bars and whole prompts
        self.compiling = True
        try:
            with redirect_stdout(log), redirect_stderr(log), self.course.open():
                student, remark = compiled(self.course, self.settings, start, **optimizer)
                self.course.examine(student, self.course.validation)
        except BudgetError as error:
            remark = f"stopped early, {error}; the best prompt until then"
        finally:
            home.write(self.path.with_suffix(".log"), redact(log.getvalue()))
            self.compiling = False
        return *self.course.best(), remark

    def _reserve(self, question: Question) -> AbstractContextManager[Reservation]:
        return (self.first if self.compiling else self.meter).reserve(question)

    def _rows(self, remark: str) -> dict[str, str]:
        """What the card says of how the prompt came about."""
        task, course, settings = self.task, self.course, self.settings
        parts = zip(task.split.parts.items(), (course.train, course.validation, course.held_out), strict=True)
        return {
            "data": "; ".join(f"{h.problem.name}/{h.run} (problem {h.problem.digest[:12]})" for h in task.histories),
            "examples": ", ".join(f"{name} {len(part)} of {len(rounds)} rounds" for (name, rounds), part in parts),
            "divided": task.split.how,
            "metric": f"version {metrics.VERSION}, measure={settings.measure}",
            "optimizer": f"{task.cfg.optimizer}, rollouts={settings.rollouts}, seed={settings.seed}: {remark}",
            "questions to the teacher": str(course.teacher.asked),
            "models": f"{course.original.model.model}, teacher {course.teaching_model.model}",
            "cost of the last call of the command": describe_cost(self.transcript.total),
            "kernels judged by it": str(task.source.judge.asked if task.source.judge else 0),
            "dspy, date": f"{version('dspy')}, {datetime.now(UTC).date().isoformat()}",
        }
