"""The verb `optimize`: a stage's prompt, compiled from what a lineage knows, measured on rounds it has never seen.

Interrupted or killed, the same command goes on: answers come from the model's cache and verdicts from the judge's, and
what is drawn comes from the seed.
"""

import io
import itertools
import json
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
from ksflow.errors import BudgetError, ConfigError, counted
from ksflow.lineage.transcript import Transcript
from ksflow.optimize import metrics
from ksflow.optimize.card import Comparison, card, spent
from ksflow.optimize.task import Task, prepare
from ksflow.protocols import calling
from ksflow.records import digest
from ksflow.redaction import redact
from ksflow.session.budget import Meter

_EVERY = 10
"""Graded answers between two lines of progress."""
_KEPT = 0.2
"""The share of what is left of a budget that is kept for measuring the result."""


def optimize(words: list[str], overrides: list[str]) -> int:
    """`optimize stage=designer optimizer=gepa`."""
    if words:
        raise ConfigError(f"optimize takes key=value arguments, not {words[0]!r}")
    task = prepare(overrides)
    with task.lineage() as lineage:
        console = report.console(stderr=True)
        console.file = sys.stderr  # whatever stderr is redirected to meanwhile
        try:
            return _Optimization(task, Transcript(lineage), console).run()
        except BudgetError as error:
            raise BudgetError(
                f"{error} before the result was measured; the answers are kept: give more, the same command goes on"
            ) from error


class _Optimization:
    """One call of the command."""

    def __init__(self, task: Task, transcript: Transcript, console: Console) -> None:
        self.task, self.transcript, self.console = task, transcript, console
        self.stage, self.optimizer = task.cfg.stage, task.cfg.optimizer
        self.school, self.parts, self.settings = task.school, task.parts, task.settings
        self.graded = 0
        self.start = self.best = 0.0
        """Mean scores on the validation set: of the prompt as it is, and the best so far."""
        self.began = time.monotonic()
        self.meter = Meter(transcript, task.caps)

    def run(self) -> int:
        """Measure, compile, measure again, save."""
        folder = self._folder()
        if path := _compiled(folder):
            self._say(f"compiled already: {path}; for another one change optimize.seed or the settings")
            return 0
        self._check_destination()
        folder.mkdir(parents=True, exist_ok=True)
        school, parts = self.school, self.parts
        kept = "answers are kept, the same command goes on"
        if not school.keeps:
            kept = "with model.cache=false answers are asked and paid for again where it is interrupted"
        self._say(
            f"{self.stage}: {counted(len(parts.train), 'example')} to learn from, {len(parts.validation)} to choose "
            f"by, {len(parts.held_out)} held out; {kept}"
        )
        school.watch = self._progress
        with self._metered():
            base = school.student()
            self.start = self.best = statistics.fmean(school.examine(base, parts.validation))
            before = school.examine(base, parts.held_out)
        made, remark = self._compile(folder)
        with self._metered():
            after = school.examine(made, parts.held_out)
        compared = Comparison(tuple(before), tuple(after), self.settings.seed, parts.held_out_rounds)
        path = self._save(made, base, compared, remark)
        home.write(folder / "result.json", json.dumps({"prompt": str(path)}) + "\n")
        school.save(made, path)  # last: while it is not there, the same command ends here again
        self._say(f"held out: {compared}")
        self._say(
            f"written to {path}, with a card beside it; use it with {self.stage}.prompt={path.stem}; "
            f"{spent(self.transcript.total)}"
        )
        return 0

    def _say(self, line: str) -> None:
        self.console.print(line, markup=False, soft_wrap=True)

    def _compile(self, folder: Path) -> tuple[Any, str]:
        """The best prompt on the validation set, the one it started from included, and a remark."""
        school, parts, settings = self.school, self.parts, self.settings
        remark = "the start is perfect"
        if self.start < metrics.PERFECT:
            options = {name: getattr(settings, name) for name in ("rollouts", "demos", "seed")}
            log = _RedactedLog(folder / "optimizer.log")  # bars and whole prompts
            try:
                with self._metered(_KEPT), log, redirect_stdout(log), redirect_stderr(log):
                    made, remark = school.compile(
                        self.optimizer, parts.train, parts.validation, start=self.start, **options
                    )
                    school.examine(made, parts.validation)
            except BudgetError as error:
                remark = f"stopped early, {error}; the best prompt until then"
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

    def _folder(self) -> Path:
        """Of this optimisation: another one for other questions, settings, metric, prompt or model."""
        settings = {k: v for k, v in vars(self.settings).items() if k not in ("school", "lm", "calls", "folder")}
        shown = [self.school.shown(case) for part in self.parts[:3] for case in part]
        judge = self.task.source.judge
        said_by = getattr(judge.evaluate, "judge", "") if judge else ""
        named = [self.optimizer, metrics.VERSION, said_by, self.school.named, settings, self.parts, shown]
        name = digest(json.dumps(named, default=str))
        return Path("runs", "optimize", self.task.histories[0].problem.name, self.stage, name)

    def _check_destination(self) -> None:
        """ConfigError where the prompt could not be written. A name is given once: runs on record go by it."""
        folder, name = Path(self.settings.folder, self.stage), self.settings.name
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"optimize.folder={self.settings.folder} cannot be written: {error.strerror}") from error
        if not os.access(folder, os.W_OK):
            raise ConfigError(f"optimize.folder={self.settings.folder} cannot be written; choose another")
        if name and (path := folder / f"{name}.json").exists():
            raise ConfigError(f"{path} is another prompt; choose another optimize.name, or remove it")

    def _save(self, made: Any, base: Any, compared: Comparison, remark: str) -> Path:
        """Write the card; where the prompt belongs."""
        folder, name = Path(self.settings.folder, self.stage), self.settings.name
        if not name:
            names = (f"{self.optimizer}_v{number}" for number in itertools.count(1))
            name = next(name for name in names if not (folder / f"{name}.json").exists())
        before, after = (one.predict.signature.instructions for one in (base, made))
        text = card(f"{self.stage}.prompt={name}", self._rows(made, remark), compared, before, after)
        home.write(folder / f"{name}.md", redact(text))
        return folder / f"{name}.json"

    def _rows(self, made: Any, remark: str) -> list[tuple[str, str]]:
        parts, settings, told, histories = self.parts, self.settings, self.school.told, self.task.histories
        targets = [t.evaluation.target for h in histories for t in h.final.trials if t.evaluation]
        counts = [
            f"{name} {len(cases)} of {rounds} rounds"
            for name, cases, rounds in zip(("train", "validation", "held out"), parts[:3], parts.rounds, strict=True)
        ]
        judge = self.task.source.judge
        return [
            ("data", "; ".join(f"{h.problem.name}/{h.run} (problem {h.problem.digest[:12]})" for h in histories)),
            ("target", ", ".join(dict.fromkeys(targets[-3:])) or "unknown"),
            ("examples", ", ".join(counts)),
            ("divided", parts.how),
            ("metric", f"version {metrics.VERSION}, measure={settings.measure}"),
            ("optimizer", f"{self.optimizer}, rollouts={settings.rollouts}, seed={settings.seed}: {remark}"),
            ("questions to the teacher", str(self.school.asked)),
            ("validation", f"{self.start:.3f} -> {self.best:.3f}"),
            ("worked examples", str(len(made.predict.demos))),
            ("models", f"{told['model']}, teacher {told['teacher']}"),
            ("cost of the last call of the command", spent(self.transcript.total)),
            ("kernels judged by it", str(judge.asked if judge else 0)),
            ("dspy", told["dspy"]),
            ("date", datetime.now(UTC).date().isoformat()),
        ]


def _compiled(folder: Path) -> Path | None:
    """The prompt that this very optimisation has brought before, if it is still there."""
    try:
        path = Path(json.loads((folder / "result.json").read_text(encoding="utf-8"))["prompt"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return path if path.is_file() else None


class _RedactedLog(io.TextIOBase):
    """A text file that secrets do not get into."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8", errors="replace")

    def write(self, text: str) -> int:
        """Write the text without what is secret; its whole length."""
        self._file.write(redact(text))
        return len(text)

    def close(self) -> None:
        """Close the file and this stream."""
        self._file.close()
        super().close()
