"""The verb `optimize`: a stage's prompt, compiled from what a lineage knows, measured on rounds it has never seen.

Interrupted or killed, the same command goes on: answers come from the model's cache, and what is drawn comes from the
seed.
"""

import io
import itertools
import os
import statistics
import sys
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import version
from pathlib import Path

import numpy as np

from ksflow import home, report
from ksflow.config.compose import build
from ksflow.errors import BudgetError, ConfigError, pluralize
from ksflow.lineage.transcript import Transcript
from ksflow.loop.budget import Meter
from ksflow.protocols import override_call
from ksflow.redaction import redact
from ksflow.training.optimize import metrics
from ksflow.training.optimize.task import PromptTask, prepare
from ksflow.training.optimize.teaching import CandidateProgram, Settings, compiled

_DRAWS = 5000
_LEAST = 6  # rounds without which chance alone makes all of them better, or worse, more often than once in twenty times
_EVERY = 10  # graded answers between two lines of progress
_KEPT = 0.2  # the share of a budget that is kept for measuring the result


def optimize(words: list[str], overrides: list[str]) -> int:
    """Compile a stage's prompt: `optimize stage=designer optimizer=gepa`. Returns the exit status."""
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
    """Return the new prompt's file. A name is used once, because runs on record have it. Raises ConfigError."""
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
        self.console = report.console(stderr=True)
        self.console.file = sys.stderr  # whatever stderr is redirected to meanwhile

    def run(self) -> None:
        """Compile and measure the prompt. Raises BudgetError if the result could not be measured."""
        course, stage, key = self.course, self.task.cfg.stage, self.task.source.key
        self._say(
            f"{stage}: {pluralize(len(course.train), 'example')} to learn from, {len(course.validation)} to choose "
            f"by, {len(course.held_out)} held out"
        )
        course.watch = self._progress
        with override_call(record=self.transcript.keep, meter=self.meter.reserve), course.open():
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
        self._say(f"written to {self.path}, with a card beside it; use it with {used}; {self._cost()}")

    def _say(self, line: str) -> None:
        report.say(self.console, line)

    def _progress(self) -> None:
        if self.course.graded % _EVERY == 0:
            asked = pluralize(self.course.teacher.asked, "question")
            self._say(f"{self.course.graded} answers graded, {asked} to the teacher, {self._cost()}")

    def _cost(self) -> str:
        cost = self.transcript.total
        return ", ".join(filter(None, (cost.dollars(4), pluralize(cost.calls, "call"), f"{cost.tokens} tokens")))

    def _compile(self, start: float) -> tuple[CandidateProgram, float, str]:
        """The best prompt on the validation set, the one it started from included, its mean there, and a remark."""
        optimizer = build(self.task.cfg.optimizers[self.task.cfg.optimizer])
        log = io.StringIO()  # bars and whole prompts
        try:
            with (
                override_call(meter=self.first.reserve),
                redirect_stdout(log),
                redirect_stderr(log),
                self.course.open(),
            ):
                student, remark = compiled(self.course, self.settings, start, **optimizer)
                self.course.examine(student, self.course.validation)
        except BudgetError as error:
            remark = f"stopped early, {error}; the best prompt until then"
        finally:
            home.write(self.path.with_suffix(".log"), redact(log.getvalue()))
        return *self.course.best(), remark

    def _rows(self, remark: str) -> dict[str, str]:
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
            "cost of the last call of the command": self._cost(),
            "kernels judged by it": str(task.source.judge.asked if task.source.judge else 0),
            "dspy, date": f"{version('dspy')}, {datetime.now(UTC).date().isoformat()}",
        }


@dataclass(frozen=True)
class ScoreComparison:
    """Scores of the same held-out questions, before and after."""

    before: tuple[float, ...]
    after: tuple[float, ...]
    seed: int = 0
    rounds: tuple[str, ...] = ()  # the round that each question is from; without them each is a round of its own

    @cached_property
    def interval(self) -> tuple[float, float]:
        """95 % of the mean paired difference, drawing whole rounds again: questions of a round are no evidence of their
        own.
        """
        drawn = np.random.default_rng(self.seed).integers(len(self._by_round), size=(_DRAWS, len(self._by_round)))
        sums, counts = (np.array([*map(of, self._by_round)])[drawn].sum(1) for of in (sum, len))
        low, high = np.quantile(sums / counts, (0.025, 0.975))
        return float(low), float(high)

    @cached_property
    def _by_round(self) -> list[list[float]]:
        """The paired differences of each round."""
        grouped: dict[str, list[float]] = {}
        names = self.rounds or [str(number) for number in range(len(self.before))]
        for name, before, after in zip(names, self.before, self.after, strict=True):
            grouped.setdefault(name, []).append(after - before)
        return [*grouped.values()]

    @property
    def verdict(self) -> str:
        """Return whether the scores after are better, worse, not better or undecided; the last two with the reason."""
        low, high = self.interval
        if low <= 0 <= high:
            return "not better: the interval holds 0"
        if len(self._by_round) < _LEAST:
            return f"undecided: {pluralize(len(self._by_round), 'round')}, and at least {_LEAST} are needed to tell"
        return "better" if low > 0 else "worse"

    def __str__(self) -> str:
        low, high = self.interval
        before, after = statistics.fmean(self.before), statistics.fmean(self.after)
        asked = f"{len(self.before)} held-out examples of {pluralize(len(self._by_round), 'round')}"
        change = f"difference {after - before:+.3f} [{low:+.3f}, {high:+.3f}]"
        return f"{before:.3f} -> {after:.3f} on {asked}, {change}: {self.verdict}"


def card(name: str, rows: Mapping[str, str], compared: ScoreComparison, before: str, after: str) -> str:
    """Return the card of a compiled prompt as Markdown. rows: the table's entries. before, after: the instructions."""
    lines = (f"| {key} | {' '.join(value.split()).replace('|', chr(92) + '|')} |" for key, value in rows.items())
    table = "\n".join(lines)
    same = "The instruction is unchanged." if before == after else f"## Instruction after\n\n{_quoted(after)}"
    return (
        f"# {name}\n\n**{compared}** (95 % interval of the paired difference, bootstrap over rounds)\n\n"
        f"| | |\n|---|---|\n{table}\n\n"
        f"## Instruction before\n\n{_quoted(before)}\n\n{same}\n"
    )


def _quoted(text: str) -> str:
    """Return a text as an indented block of Markdown."""
    return "\n".join(f"    {line}".rstrip() for line in text.splitlines())
