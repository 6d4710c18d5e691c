"""The verb `optimize`: a stage's prompt, compiled from what a lineage knows, measured on rounds it has never seen.

Interrupted or killed, the same command goes on: answers come from the model's cache and verdicts from the judge's, and
what is drawn comes from the seed.
"""

import io
import itertools
import os
import statistics
import sys
import time
from contextlib import AbstractContextManager, redirect_stderr, redirect_stdout, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ksflow import home, report
from ksflow.config.compose import build
from ksflow.errors import BudgetError, ConfigError, counted
from ksflow.lineage.transcript import Transcript
from ksflow.loop.budget import Meter
from ksflow.optimize import metrics
from ksflow.optimize.card import Comparison, card, spent
from ksflow.optimize.task import Settings, Task, prepare
from ksflow.protocols import calling
from ksflow.redaction import redact

_EVERY = 10
"""Graded answers between two lines of progress."""
_KEPT = 0.2
"""The share of what is left of a budget that is kept for measuring the result."""


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

    def __init__(self, task: Task, transcript: Transcript, path: Path) -> None:
        self.task, self.transcript, self.path = task, transcript, path
        self.school, self.parts, self.settings = task.school, task.parts, task.settings
        self.graded, self.start, self.began = 0, 0.0, time.monotonic()
        self.meter = Meter(transcript, task.caps)
        self.console = report.console(stderr=True)
        self.console.file = sys.stderr  # whatever stderr is redirected to meanwhile

    def run(self) -> None:
        """Say what comes of it. Raises BudgetError where the result could not be measured."""
        school, parts, stage = self.school, self.parts, self.task.cfg.stage
        assurance = "answers are kept, the same command goes on"
        if not school.keeps:
            assurance = "with model.cache=false answers are asked and paid for again where it is interrupted"
        self._say(
            f"{stage}: {counted(len(parts.train), 'example')} to learn from, {len(parts.validation)} to choose "
            f"by, {len(parts.held_out)} held out; {assurance}"
        )
        school.watch = self._progress
        with self._metered():
            base = school.student()
            self.start = statistics.fmean(school.examine(base, parts.validation))
            before = school.examine(base, parts.held_out)
        student, remark = self._compile()
        with self._metered():
            after = school.examine(student, parts.held_out)
        compared = Comparison(tuple(before), tuple(after), self.settings.seed, parts.held_out_rounds)
        instructions = (program.predict.signature.instructions for program in (base, student))
        used = f"{self.task.source.key or stage}.prompt={self.path.stem}"
        text = card(used, self._rows(student, remark), compared, *instructions)
        home.write(self.path.with_suffix(".md"), redact(text))
        student.save(self.path)
        self._say(f"held out: {compared}")
        self._say(f"written to {self.path}, with a card beside it; use it with {used}; {spent(self.transcript.total)}")

    def _say(self, line: str) -> None:
        report.say(self.console, line)

    def _progress(self) -> None:
        self.graded += 1
        if self.graded % _EVERY == 0:
            asked = counted(self.school.asked, "question")
            self._say(f"{self.graded} answers graded, {asked} to the teacher, {spent(self.transcript.total)}")

    def _compile(self) -> tuple[Any, str]:
        """The best prompt on the validation set, the one it started from included, and a remark."""
        school, parts, settings = self.school, self.parts, self.settings
        if self.start >= metrics.PERFECT:
            return school.best(parts.validation), "the start is perfect"
        optimizer = build(self.task.cfg.optimizers[self.task.cfg.optimizer])
        options = {"rollouts": settings.rollouts, "demos": settings.demos, "seed": settings.seed}
        log = io.StringIO()  # bars and whole prompts
        try:
            with self._metered(_KEPT), redirect_stdout(log), redirect_stderr(log):
                student, remark = school.compile(optimizer, parts.train, parts.validation, start=self.start, **options)
                school.examine(student, parts.validation)
        except BudgetError as error:
            remark = f"stopped early, {error}; the best prompt until then"
        finally:
            home.write(self.path.with_suffix(".log"), redact(log.getvalue()))
        return school.best(parts.validation), remark

    def _metered(self, share: float = 0.0) -> AbstractContextManager[None]:
        """Models may cost and take what is left of the caps, less a share."""
        caps = self.task.caps
        used = {**self.meter.used(), "minutes": (time.monotonic() - self.began) / 60 / (caps.get("minutes") or 1)}
        left = {name: most * max(1 - used.get(name, 0.0), 0.0) * (1 - share) for name, most in caps.items()}
        return calling(record=self.transcript.keep, meter=Meter(self.transcript, left, limits=caps).reserve)

    def _rows(self, student: Any, remark: str) -> dict[str, str]:
        """What the card says of how the prompt came about."""
        task, parts, settings, versions = self.task, self.parts, self.settings, self.school.versions
        sizes = zip(("train", "validation", "held out"), parts[:3], parts.rounds, strict=True)
        return {
            "data": "; ".join(f"{h.problem.name}/{h.run} (problem {h.problem.digest[:12]})" for h in task.histories),
            "examples": ", ".join(f"{name} {len(cases)} of {rounds} rounds" for name, cases, rounds in sizes),
            "divided": parts.how,
            "metric": f"version {metrics.VERSION}, measure={settings.measure}",
            "optimizer": f"{task.cfg.optimizer}, rollouts={settings.rollouts}, seed={settings.seed}: {remark}",
            "questions to the teacher": str(self.school.asked),
            "validation": f"{self.start:.3f} -> {self.school.mean(student, parts.validation):.3f}",
            "worked examples": str(len(student.predict.demos)),
            "models": f"{versions['model']}, teacher {versions['teacher']}",
            "cost of the last call of the command": spent(self.transcript.total),
            "kernels judged by it": str(task.source.judge.asked if task.source.judge else 0),
            "dspy, date": f"{versions['dspy']}, {datetime.now(UTC).date().isoformat()}",
        }
