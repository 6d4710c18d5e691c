"""What tables, trees and lines of progress say in the same words."""

import os
from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from ksflow import records
from ksflow.errors import printable
from ksflow.records import Population, Problem, Trial

STYLE = {"accept": "green", "failed": "red", "compile-error": "yellow", "untimed": "cyan", "stale": "dim"}


class _PrintableConsole(Console):
    """Whatever models, documents and file names put into a text, none of it steers the terminal."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable(text), style, control)

    def on_broken_pipe(self) -> None:
        """Rich would end the program by itself; `main` does, for whatever wrote to the pipe."""
        raise BrokenPipeError


def console(stderr: bool = False) -> Console:
    """A console that does not squeeze tables into 80 columns when nobody's window sets the width.

    Brackets in a text are brackets, never rich's markup: most texts are words of models, people and compilers.
    """
    made = _PrintableConsole(stderr=stderr, markup=False)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = 160
    return made


def what(trial: Trial, width: int) -> str:
    found = trial.evaluation
    reason = trial.failure or (found.reason if found else "")
    idea = trial.experiment.description if trial.experiment else trial.name
    unranked = f"unranked: {found.unranked}" if found and found.unranked else ""
    repeat = f"the code of {trial.repeats}" if trial.repeats else ""
    cached = f"judged on {found.evidence.cached.date[:10]}" if found and found.evidence.cached else ""
    text = " ".join(" | ".join(part for part in (repeat, unranked, idea, reason, cached) if part).split())
    return text if len(text) <= width else f"{text[: width - 1]}…"


def recorded(trial: Trial) -> str:
    """The verdict on record, whether or not it may be compared with others of the run."""
    return trial.evaluation.verdict.value if trial.evaluation else trial.verdict


def speedup(trial: Trial, baselines: tuple[Trial, ...]) -> float | None:
    """How many times as fast a trial is as the baseline that it beats by least; None where that is not known."""
    found = (records.speedup(trial, baseline) for baseline in baselines)
    return min((one.ratio for one in found if one), default=None)


def known_baselines(population: Population, problem: Problem) -> tuple[Trial, ...]:
    """The trials that are the problem's baselines, fastest first."""
    digests = {seed.kernel.digest for seed in problem.seeds if seed.baseline}
    return tuple(t for t in population.ranked if t.kernel and t.kernel.digest in digests)
