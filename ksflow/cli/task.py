"""What commands share: a run by its name, a lineage to read, and model calls on record within the budgets of `loop`.

`lineage dwt`, `verify dwt/main 12`: without a name the only run is meant, or the newest.
"""

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from ksflow.config import compose, keys
from ksflow.errors import ConfigError, LineageError, suggest
from ksflow.home import plain_or_quoted
from ksflow.lineage import Lineage
from ksflow.lineage.transcript import Transcript
from ksflow.loop.budget import Meter
from ksflow.protocols import override_call
from ksflow.records import Problem, Trial

_SUBCOMMANDS = ("show", "diff")
_COMMIT = re.compile("[0-9a-f]{7,40}")


def open_lineage(cfg: DictConfig, problem: str, run: str = "", create: bool = False) -> AbstractContextManager[Lineage]:
    """The lineage of a problem's run (the configured one), closed in the end. Raises LineageError, ConfigError."""
    lineage: Lineage = compose.build(cfg.lineage)(problem=problem, run=run or str(cfg.run), create=create)
    return closing(lineage)


@contextmanager
def recorded_run(cfg: DictConfig) -> Iterator[tuple[Problem, Lineage]]:
    """The configured problem and its run, for looking: verdicts as recorded, whatever machine this is."""
    problem = compose.problem(cfg)
    with open_lineage(cfg, problem.name) as lineage:
        lineage.expect_as_recorded()
        yield problem, lineage


def winner_folder(lineage: Lineage) -> Path:
    """Where the files of a run's winner are, or will be."""
    return lineage.store.path.parent / "best" / lineage.problem / lineage.run


def some_trials(lineage: Lineage) -> dict[str, Trial]:
    """Its trials by their ids. ConfigError where there is none."""
    if trials := {trial.id: trial for trial in lineage.all_trials()}:
        return trials
    where = f"problem={lineage.problem} run={lineage.run} in {lineage.store.path}"
    raise ConfigError(f"no trial of {where}; runs: {lineage.runs()}")


def winner(lineage: Lineage, command: str) -> Trial:
    """The winner of a run as it is recorded. ConfigError where it has none."""
    some_trials(lineage)
    if lineage.last_population.best is None:
        raise ConfigError(f"run={lineage.run} has no winner: no kernel was accepted; name a trial: {command} ID")
    return lineage.last_population.best


def named_trial(word: str, trials: Mapping[str, Trial]) -> Trial:
    """The trial that a person means: 27 is 00027. ConfigError where there is none."""
    name = f"{word:0>5}" if word.isdigit() else word
    if name not in trials:
        known = f"there are {min(trials)} to {max(trials)}" if trials else "there is none yet"
        raise ConfigError(f"no trial {name}; {known}")
    return trials[name]


@contextmanager
def recorded_task(cfg: DictConfig, problem: Problem, what: str) -> Iterator[Transcript]:
    """Meanwhile, in this context, every model call is about `what`, on record and metered. BudgetError in there."""
    with open_lineage(cfg, problem.name, create=True) as lineage:
        transcript = Transcript(lineage)
        meter = Meter(transcript, compose.build(cfg.loop).caps)
        with override_call(meter=meter.reserve), transcript.attribute_calls(what):
            yield transcript


def resolve_names(verb: str, words: list[str], overrides: list[str], kernels: int) -> tuple[list[str], list[str]]:
    """A command's words without a run's name, and its configuration with what that names. ConfigError for none.

    kernels: how many words the command has beside.
    """
    cfg = compose.compose([word for word in overrides if word.startswith("lineage.")])
    wanted = keys.own_options(overrides, "run")[0].get("run", "")
    try:
        with open_lineage(cfg, "any", "main") as lineage:
            runs = [run for run in lineage.store.runs() if wanted in ("", run[1])]
            choice = _find(lineage, runs, words, kernels)
    except LineageError:
        if len(words) > kernels and not get_close_matches(words[0], _SUBCOMMANDS):
            raise
        choice = None  # none is there: the command says so
    if choice is None:
        return words, overrides
    (problem, run), several, words = choice
    with open_lineage(cfg, problem, run) as lineage:
        typed = recorded_problem(problem, lineage.made_with)
    if several > 1:
        name = f"{problem}/{run}, the newest of {several}"
        sys.stderr.write(f"run: {name} (another: python -m ksflow {verb} NAME; `runs` lists them)\n")
    return words, [*typed, *([] if wanted else [f"run={plain_or_quoted(run)}"]), *overrides]


def _find(
    lineage: Lineage, runs: Sequence[tuple[str, str]], words: list[str], kernels: int
) -> tuple[tuple[str, str], int, list[str]] | None:
    """Problem and run, how many runs it is the newest of (1 where it was named), and the words without the name."""

    def newest(among: Sequence[tuple[str, str]]) -> tuple[str, str]:
        return max(among, key=lambda run: lineage.store.newest_commit_time(f"refs/heads/{run[0]}/{run[1]}/"))

    begin = 1 if words and words[0] in _SUBCOMMANDS else 0
    for at, word in enumerate(words[begin:], begin):
        parts = tuple(word.split("/"))
        rest = words[:at] + words[at + 1 :]
        if len(parts) == 2 and parts in runs:
            return parts, 1, rest
        if len(parts) == 3 and parts[:2] in runs:
            return (parts[0], parts[1]), 1, words
        if among := [run for run in runs if run[0] == word]:
            main = (word, "main")
            return (main, 1, rest) if main in among else (newest(among), len(among), rest)
    if words and _COMMIT.fullmatch(words[0]):  # which says itself whose it is
        return None
    if len(words) > kernels and not begin:
        known = [*dict.fromkeys(run[0] for run in runs), *map("/".join, runs)]
        raise ConfigError(f"no run {words[0]!r} in {lineage.store.path}; {suggest(words[0], known)}")
    return (newest(runs), len(runs), words) if runs else None


def recorded_problem(problem: str, recorded: Mapping[str, Any]) -> list[str]:
    """What a user would type to name the problem of a run that was made so."""
    typed = [str(word).lstrip("+") for word in recorded.get("arguments") or ()]
    words = [word for word in typed if word.partition("=")[0].partition(".")[0] == "problem" and "," not in word]
    value = keys.own_options(words, "problem")[0].get("problem", "")
    place = str(next(iter(recorded.get("place") or ()), ""))
    if value and Path(value, "problem.yaml").is_file():
        return words
    if problem in keys.options("problem"):
        return [f"problem={problem}", *(word for word in words if not word.startswith("problem="))]
    if not place or value in keys.options("problem"):
        return words
    others = [word for word in words if not word.startswith(("problem=", "problem.path="))]
    return [f"problem.path={plain_or_quoted(place)}", *others]
