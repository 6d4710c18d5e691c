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
from contextlib import AbstractContextManager, redirect_stderr, redirect_stdout
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

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
        console = report.console(stderr=True)
        console.file = sys.stderr  # whatever stderr is redirected to meanwhile
        try:
            _Optimization(task, Transcript(lineage), console, path).run()
        except BudgetError as error:
            raise BudgetError(
                f"{error} before the result was measured; the answers are kept: give more, the same command goes on"
            ) from error
    return 0


def _destination(settings: Settings, stage: str, optimizer: str) -> Path:
    """Where the prompt goes; a name is given once, because runs on record go by it. ConfigError where it cannot be."""
    folder = Path(settings.folder, stage)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"optimize.folder={settings.folder} cannot be written: {error.strerror}") from error
    if not os.access(folder, os.W_OK):
        raise ConfigError(f"optimize.folder={settings.folder} cannot be written; choose another")
    if settings.name:
        path = folder / f"{settings.name}.json"
        if path.exists():
            raise ConfigError(f"{path} is another prompt; choose another optimize.name, or remove it")
        return path
    numbered = (folder / f"{optimizer}_v{number}.json" for number in itertools.count(1))
    return next(path for path in numbered if not path.exists())


class _Optimization:
    """One call of the command."""

    def __init__(self, task: Task, transcript: Transcript, console: Console, path: Path) -> None:
        self.task, self.transcript, self.console, self.path = task, transcript, console, path
        self.school, self.parts, self.settings = task.school, task.parts, task.settings
        self.graded = 0
        self.start = self.best = 0.0
        """Mean scores on the validation set: of the prompt as it is, and the best so far."""
        self.began = time.monotonic()
        self.meter = Meter(transcript, task.caps)

    def run(self) -> None:
        """Measure, compile, measure again, save."""
        school, parts, stage = self.school, self.parts, self.task.cfg.stage
        kept = "answers are kept, the same command goes on"
        if not school.keeps:
            kept = "with model.cache=false answers are asked and paid for again where it is interrupted"
        self._say(
            f"{stage}: {counted(len(parts.train), 'example')} to learn from, {len(parts.validation)} to choose "
            f"by, {len(parts.held_out)} held out; {kept}"
        )
        school.watch = self._progress
        with self._metered():
            base = school.student()
            self.start = self.best = statistics.fmean(school.examine(base, parts.validation))
            before = school.examine(base, parts.held_out)
        made, remark = self._compile()
        with self._metered():
            after = school.examine(made, parts.held_out)
        compared = Comparison(tuple(before), tuple(after), self.settings.seed, parts.held_out_rounds)
        instructions = (one.predict.signature.instructions for one in (base, made))
        text = card(f"{stage}.prompt={self.path.stem}", self._rows(made, remark), compared, *instructions)
        home.write(self.path.with_suffix(".md"), redact(text))
        school.save(made, self.path)
        self._say(f"held out: {compared}")
        self._say(
            f"written to {self.path}, with a card beside it; use it with {stage}.prompt={self.path.stem}; "
            f"{spent(self.transcript.total)}"
        )

    def _say(self, line: str) -> None:
        self.console.print(line, markup=False, soft_wrap=True)

    def _compile(self) -> tuple[Any, str]:
        """The best prompt on the validation set, the one it started from included, and a remark."""
        school, parts, settings = self.school, self.parts, self.settings
        remark = "the start is perfect"
        if self.start < metrics.PERFECT:
            optimizer = build(self.task.cfg.optimizers[self.task.cfg.optimizer])
            options = {name: getattr(settings, name) for name in ("rollouts", "demos", "seed")}
            log = io.StringIO()  # bars and whole prompts
            try:
                with self._metered(_KEPT), redirect_stdout(log), redirect_stderr(log):
                    made, remark = school.compile(optimizer, parts.train, parts.validation, start=self.start, **options)
                    school.examine(made, parts.validation)
            except BudgetError as error:
                remark = f"stopped early, {error}; the best prompt until then"
            finally:
                home.write(self.path.with_suffix(".log"), redact(log.getvalue()))
        return school.best(parts.validation), remark

    def _metered(self, kept: float = 0.0) -> AbstractContextManager[None]:
        """Models may cost and take what is left of the caps, less a share."""
        caps = self.task.caps
        used = {**self.meter.used(), "minutes": (time.monotonic() - self.began) / 60 / (caps.get("minutes") or 1)}
        left = {name: most * max(1 - used.get(name, 0.0), 0.0) * (1 - kept) for name, most in caps.items()}
        meter = Meter(self.transcript, left, given=caps)
        return calling(record=self.transcript.keep, meter=meter.reserve)

    def _progress(self) -> None:
        self.graded += 1
        validation = set(self.parts.validation)
        whole = [scores for scores in self.school.scores.values() if scores.keys() >= validation]
        best = max((statistics.fmean(scores[case] for case in validation) for scores in whole), default=0.0)
        if self.graded % _EVERY == 0 or (self.start and best > self.best):
            self._say(
                f"{counted(self.graded, 'answer')} graded, {counted(self.school.asked, 'question')} to the teacher, "
                f"best on validation {best:.3f}{f' (start {self.start:.3f})' if self.start else ''}, "
                f"{spent(self.transcript.total)}"
            )
        self.best = max(self.best, best)

    def _rows(self, made: Any, remark: str) -> list[tuple[str, str]]:
        """What the card says of how the prompt came about."""
        parts, settings, told, histories = self.parts, self.settings, self.school.told, self.task.histories
        targets = [t.evaluation.target for h in histories for t in h.final.trials if t.evaluation]
        counts = [
            f"{name} {len(cases)} of {rounds} rounds"
            for name, cases, rounds in zip(("train", "validation", "held out"), parts[:3], parts.rounds, strict=True)
        ]
        optimizer, judge = self.task.cfg.optimizer, self.task.source.judge
        return [
            ("data", "; ".join(f"{h.problem.name}/{h.run} (problem {h.problem.digest[:12]})" for h in histories)),
            ("target", ", ".join(dict.fromkeys(targets[-3:])) or "unknown"),
            ("examples", ", ".join(counts)),
            ("divided", parts.how),
            ("metric", f"version {metrics.VERSION}, measure={settings.measure}"),
            ("optimizer", f"{optimizer}, rollouts={settings.rollouts}, seed={settings.seed}: {remark}"),
            ("questions to the teacher", str(self.school.asked)),
            ("validation", f"{self.start:.3f} -> {self.best:.3f}"),
            ("worked examples", str(len(made.predict.demos))),
            ("models", f"{told['model']}, teacher {told['teacher']}"),
            ("cost of the last call of the command", spent(self.transcript.total)),
            ("kernels judged by it", str(judge.asked if judge else 0)),
            ("dspy", told["dspy"]),
            ("date", datetime.now(UTC).date().isoformat()),
        ]
