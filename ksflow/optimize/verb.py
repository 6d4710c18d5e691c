"""The verb `optimize`: a stage's prompt, compiled from what a lineage knows, measured on rounds it has never seen.

Interrupted or killed, the same command goes on: answers come from the model's cache and verdicts from the judge's, and
what is drawn comes from the seed. What it does not do: change a stage, or use a prompt because it was compiled.
"""

import hashlib
import json
import os
import statistics
import sys
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from ksflow import report
from ksflow.errors import BudgetError, ConfigError, counted
from ksflow.lineage.history import RunHistory
from ksflow.lineage.transcript import Transcript
from ksflow.optimize import metrics
from ksflow.optimize.card import Comparison, card, spent
from ksflow.optimize.examples import Parts
from ksflow.optimize.log import aside
from ksflow.optimize.metrics import Judge
from ksflow.optimize.task import Settings, prepare
from ksflow.protocols import calling
from ksflow.session.budget import Meter

_KEEPS = "answers are kept, the same command goes on"
_KEEPS_NOT = "with model.cache=false answers are asked and paid for again where it is interrupted"
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
        caps, parts = task.caps, task.parts
        stage, optimizer = task.cfg.stage, task.cfg.optimizer
        transcript, judge = Transcript(lineage), task.source.judge
        work = _Work(stage, optimizer, task.settings, task.school, parts, task.histories, transcript, caps, judge)
        console = report.console(stderr=True)
        console.file = sys.stderr  # whatever stderr is redirected to meanwhile
        try:
            return work.run(console)
        except BudgetError as error:
            raise BudgetError(
                f"{error} before the result was measured; the answers are kept: give more, the same command goes on"
            ) from error


@dataclass
class _Work:
    """One call of the command."""

    stage: str
    optimizer: str
    settings: Settings
    school: Any
    parts: Parts
    histories: list[RunHistory]
    transcript: Transcript
    caps: Mapping[str, float]
    judge: Judge | None
    graded: int = 0
    start: float = 0.0
    best: float = 0.0

    def __post_init__(self) -> None:
        self.began = time.monotonic()
        self.meter = Meter(self.transcript, self.caps)

    def run(self, console: Console) -> int:
        """Measure, compile, measure again, save."""
        folder = self._folder()
        if path := _compiled(folder):
            console.print(
                f"compiled already: {path}; for another one change optimize.seed or the settings", soft_wrap=True
            )
            return 0
        self._reserve()
        folder.mkdir(parents=True, exist_ok=True)
        school, parts = self.school, self.parts
        console.print(
            f"{self.stage}: {counted(len(parts.train), 'example')} to learn from, {len(parts.validation)} to choose "
            f"by, {len(parts.held_out)} held out; {_KEEPS if school.keeps else _KEEPS_NOT}",
            soft_wrap=True,
        )
        school.watch = lambda: self._progress(console)
        with self._metered():
            base = school.student()
            self.start = self.best = statistics.fmean(school.examine(base, parts.validation))
            before = school.examine(base, parts.held_out)
        made, remark = self._compile(folder)
        with self._metered():
            after = school.examine(made, parts.held_out)
        compared = Comparison(tuple(before), tuple(after), self.settings.seed, parts.held_out_rounds)
        path = self._save(made, base, compared, remark, folder / "result.json")
        console.print(f"held out: {compared}", markup=False, soft_wrap=True)
        console.print(
            f"written to {path}, with a card beside it; use it with {self.stage}.prompt={path.stem}; "
            f"{spent(self.transcript.total)}",
            markup=False,
            soft_wrap=True,
        )
        return 0

    def _compile(self, folder: Path) -> tuple[Any, str]:
        """The best prompt on the validation set, the one it started from included, and a remark."""
        school, parts, settings = self.school, self.parts, self.settings
        remark, redact = "the start is perfect", self.transcript.redact
        if self.start < metrics.PERFECT:
            options = {
                "start": self.start,
                "rollouts": settings.rollouts,
                "demos": settings.demos,
                "seed": settings.seed,
            }
            try:
                with self._metered(_KEPT), aside(folder / "optimizer.log", redact):
                    made, remark = school.compile(self.optimizer, parts.train, parts.validation, **options)
                    school.examine(made, parts.validation)
            except BudgetError as error:
                remark = f"stopped early, {error}; the best prompt until then"
        return school.best(parts.validation), remark

    def _metered(self, kept: float = 0.0) -> AbstractContextManager[None]:
        """Models may cost and take what is left of the caps, less a share."""
        used = {**self.meter.used(), "minutes": (time.monotonic() - self.began) / 60 / (self.caps.get("minutes") or 1)}
        left = {name: most * max(1 - used.get(name, 0.0), 0.0) * (1 - kept) for name, most in self.caps.items()}
        meter = Meter(self.transcript, left, minutes=left.get("minutes"), given=self.caps)
        return calling(record=self.transcript.keep, meter=meter.reserve)

    def _progress(self, console: Console) -> None:
        self.graded += 1
        validation = set(self.parts.validation)
        whole = [scores for scores in self.school.scores.values() if scores.keys() >= validation]
        best = max((statistics.fmean(scores[case] for case in validation) for scores in whole), default=0.0)
        if self.graded % _EVERY == 0 or (self.start and best > self.best):
            console.print(
                f"{counted(self.graded, 'answer')} graded, {counted(self.school.asked, 'question')} to the teacher, "
                f"best on validation {best:.3f}{f' (start {self.start:.3f})' if self.start else ''}, "
                f"{spent(self.transcript.total)}",
                soft_wrap=True,
            )
        self.best = max(self.best, best)

    def _folder(self) -> Path:
        """Of this optimisation: another one for other questions, settings, metric, prompt or model."""
        settings = {k: v for k, v in vars(self.settings).items() if k not in ("school", "lm", "calls", "folder")}
        shown = [self.school.shown(case) for part in self.parts[:3] for case in part]
        judge = getattr(self.judge.evaluate, "judge", "") if self.judge else ""
        text = json.dumps(
            [self.optimizer, metrics.VERSION, judge, self.school.named, settings, self.parts, shown],
            default=str,
        )
        digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
        return Path("runs", "optimize", self.histories[0].problem.name, self.stage, digest)

    def _reserve(self) -> None:
        """A name is given once: runs on record go by it. ConfigError, also where the prompt could not be written."""
        folder = self._path("").parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"optimize.folder={self.settings.folder} cannot be written: {error.strerror}") from error
        if not os.access(folder, os.W_OK):
            raise ConfigError(f"optimize.folder={self.settings.folder} cannot be written; choose another")
        if self.settings.name and (path := self._path(self.settings.name)).exists():
            raise ConfigError(f"{path} is another prompt; choose another optimize.name, or remove it")

    def _path(self, name: str) -> Path:
        return Path(self.settings.folder, self.stage, f"{name}.json")

    def _save(self, made: Any, base: Any, compared: Comparison, remark: str, result: Path) -> Path:
        """The prompt last: while it is not there, the same command ends here again."""
        name = self.settings.name or _free(Path(self.settings.folder, self.stage), self.optimizer)
        path = self._path(name)
        before, after = self.school.instruction(base), self.school.instruction(made)
        text = card(f"{self.stage}.prompt={name}", self._rows(made, remark), compared, before, after)
        path.with_suffix(".md").write_text(self.transcript.redact(text), encoding="utf-8")
        result.write_text(json.dumps({"prompt": str(path)}) + "\n")
        self.school.save(made, path)
        return path

    def _rows(self, made: Any, remark: str) -> list[tuple[str, str]]:
        parts, settings, told = self.parts, self.settings, self.school.told
        last = [t.evaluation.target for h in self.histories for t in h.final.trials if t.evaluation]
        counts = [
            f"{name} {len(cases)} of {rounds} rounds"
            for name, cases, rounds in zip(("train", "validation", "held out"), parts[:3], parts.rounds, strict=True)
        ]
        return [
            ("data", "; ".join(f"{h.problem.name}/{h.run} (problem {h.problem.digest[:12]})" for h in self.histories)),
            ("target", ", ".join(dict.fromkeys(last[-3:])) or "unknown"),
            ("examples", ", ".join(counts)),
            ("divided", parts.how),
            ("metric", f"version {metrics.VERSION}, measure={settings.measure}"),
            ("optimizer", f"{self.optimizer}, rollouts={settings.rollouts}, seed={settings.seed}: {remark}"),
            ("questions to the teacher", str(self.school.asked)),
            ("validation", f"{self.start:.3f} -> {self.best:.3f}"),
            ("worked examples", str(self.school.demos(made))),
            ("models", f"{told['model']}, teacher {told['teacher']}"),
            ("cost of the last call of the command", spent(self.transcript.total)),
            ("kernels judged by it", str(self.judge.asked if self.judge else 0)),
            ("dspy", told["dspy"]),
            ("date", datetime.now(UTC).date().isoformat()),
        ]


def _compiled(folder: Path) -> Path | None:
    """The prompt that this very optimisation has brought before, if it is still there."""
    try:
        path = Path(json.loads((folder / "result.json").read_text())["prompt"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return path if path.is_file() else None


def _free(folder: Path, optimizer: str) -> str:
    number = 1
    while (folder / f"{optimizer}_v{number}.json").exists():
        number += 1
    return f"{optimizer}_v{number}"
