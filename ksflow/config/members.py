"""Which members a suite has, from the words of a command line, and when `-m` means a suite."""

import glob
import itertools
import json
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from ksflow.config import command_line, keys
from ksflow.errors import ConfigError
from ksflow.records import Json, digest

FLAGS = ("-m", "--multirun")
_WHOLE = re.compile(r"loop\.(usd|minutes)=[0-9.eE+-]+")  # words that `-m` takes as the budget of all members together
_CHOOSING = (
    "problem", "problem.path", "problem.root", "problem.level", "problem.id", "problem.name", "problem.definition",
    "problem.channel", "problem.file", "problem.leaderboard", "problem.repo", "problem.kernel",
)  # fmt: skip
"""Keys that say which problem it is; any other makes a variant."""
_PLACES = ("problem.path", "problem.kernel")
_ODD = re.compile(r"\W+", re.ASCII)


@dataclass(frozen=True)
class Suite:
    """Which problems, and what they may cost together.

    words: what the command line's words are added to. name: of the run and of the folder. usd: what models may cost,
    all calls of the command together. minutes: of one call. A member may spend an even share of what is left. at_once:
    members at the same time, for an evaluator that has several devices or workers. needs: keys of folders that the
    command line must name. finalists: how many variants of each problem, the fastest, go on for as much again once all
    are through; half of the budget is kept for them.
    """

    words: Sequence[str] = ()
    name: str = "suite"
    needs: Sequence[str] = ()
    usd: float | None = None
    minutes: float | None = None
    at_once: int = 1
    finalists: int = 0

    def __post_init__(self) -> None:
        if self.at_once < 1:
            raise ConfigError("suite.at_once must be at least 1")


@dataclass
class SuiteMember:
    """One run of a suite."""

    key: str  # the words that set it apart
    variant: str  # those of them that do not say which problem it is
    words: tuple[str, ...]
    row: Json = field(default_factory=dict)
    usd: float = 0.0  # what it may spend, while it runs
    final: bool = False  # whether it goes on for as much again
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def folder(self) -> str:
        """A name for it among files."""
        return command_line.plain_name(self.key).strip(".,_") or "all"

    @property
    def is_finished(self) -> bool:
        """Whether it has been run to its end."""
        done = self.row.get("state") == "finished" and self.row.get("words") == list(self.words)
        return done and self.row.get("final", False) >= self.final

    @property
    def known(self) -> Json:
        """What its row says whatever became of it."""
        folder = command_line.PLAIN.sub("_", self.variant)
        final = {"final": True} if self.final else {}
        return {"member": self.key, "variant": self.variant, "words": list(self.words), "folder": folder, **final}

    def read_row(self, suite: Path) -> None:
        """Take what the suite's folder has of it. ConfigError where it was run with other words: budgets may change,
        and who is told.
        """
        file = suite / self.folder / "row.json"
        self.row = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        self.final = self.row.get("final", False)
        before, now = (
            [word for word in words if not word.startswith(("loop.", "tracker=", "tracker."))]
            for words in (self.row.get("words", self.words), self.words)
        )
        if before != now:
            raise ConfigError(
                f"{self.key or 'the suite'} was run with other words in {suite}: "
                f"{' '.join(sorted({*self.row['words']} ^ {*self.words}))}; give suite.name=ANOTHER"
            )


def members(plan: Suite, words: Sequence[str]) -> list[SuiteMember]:
    """One for each combination of the values given. The command line's words win. ConfigError."""
    values: dict[str, list[str]] = {}
    for word in (*plan.words, *words):
        key, several = _read(word)
        values[key] = several or [word]
    swept = [key for key, choices in values.items() if len(choices) > 1]
    combined = []
    for chosen in itertools.product(*values.values()):
        apart = {key: word for key, word in zip(values, chosen, strict=True) if key in swept}
        variant = ",".join(word for key, word in apart.items() if key not in _CHOOSING)
        alike = [word for key, word in apart.items() if key in _PLACES and _alike(word, values[key])]
        run = ",".join(filter(None, (variant, *alike)))
        combined.append(SuiteMember(",".join(apart.values()), variant, _with_run(plan.name, run, chosen)))
    return combined


def _alike(word: str, others: Sequence[str]) -> bool:
    """Whether a file or folder has the name of another, so that their problems share one."""
    stems = [PurePath(each.partition("=")[2]).stem for each in (word, *others)]
    return stems.count(stems[0]) > 2  # it is among the others itself


def of_multirun(arguments: Sequence[str]) -> list[str] | None:
    """The suite's words where `-m` runs over problems; None where Hydra's own sweep is meant, or none at all.

    What the line gives models and time is then the budget of all together, unless `suite.usd` and `suite.minutes` are
    given; the suite's name follows from the other words. ConfigError.
    """
    directory, words = command_line.config_dir([word for word in arguments if word not in FLAGS])
    recipe = any(word.startswith("suite=") for word in words)
    hydras = any(word.startswith("-") or word.lstrip("+~").startswith("hydra") for word in words)
    if len(words) == len(arguments) or hydras:
        return None
    if not words and not directory:
        flag = next(word for word in arguments if word in FLAGS)
        raise ConfigError(f"{flag} needs a key with several values, a run for each: ksflow {flag} designer=tune,random")
    if not (recipe or any(map(_over_problems, words))):
        return None
    whole = [word.replace("loop.", "suite.", 1) for word in words if _WHOLE.fullmatch(word)]
    whole = [word for word in whole if not any(other.startswith(word.partition("=")[0] + "=") for other in words)]
    rest = [word for word in words if not _WHOLE.fullmatch(word) or word.replace("loop.", "suite.", 1) not in whole]
    name = [] if recipe or any(word.startswith("suite.name=") for word in words) else [_named(words)]
    return [*([f"--config-dir={directory}"] if directory else []), *rest, *whole, *name]


def _over_problems(word: str) -> bool:
    key, several = _read(word)
    return (key == "problem" or key.startswith("problem.")) and len(several) > 1


def _named(words: Sequence[str]) -> str:
    """A suite's name: its problems for people, and a digest of all that must stay the same."""
    pairs = sorted(word.lstrip("+").partition("=")[::2] for word in words if not word.startswith(("loop.", "suite.")))
    about = [value for key, value in pairs if key == "problem" or _over_problems(f"{key}={value}")]
    return f"suite.name={_ODD.sub('_', '_'.join(about)).strip('_')[:60]}-{digest(repr(pairs), digits=6)}"


def _read(word: str) -> tuple[str, list[str]]:
    """(key, the words for each of its values, if it has several); a flag is its own key. ConfigError."""
    if word.startswith("-"):
        return word, []
    try:
        parsed = OverridesParser.create().parse_override(keys.as_typed(word))
        key = parsed.get_key_element().lstrip("+")
        several = [f"{key}={value}" for value in parsed.sweep_string_iterator()] if parsed.is_sweep_override() else []
        if key == "problem.path" and not several and "*" in (pattern := str(parsed.value())):
            several = [f"{key}={found}" for found in sorted(glob.glob(str(Path(pattern).expanduser())))]
            if not several:
                raise ConfigError(f"{word}: nothing there has such a name")
    except HydraException as error:
        hint = "; several values are a,b,c or range(1,11)" if "(" in word else ""
        raise ConfigError(f"{word}: {str(error).splitlines()[0]}{hint}") from error
    return key, several


def _with_run(name: str, variant: str, words: tuple[str, ...]) -> tuple[str, ...]:
    """With a run for each variant: no two members may share one."""
    typed = next((word.removeprefix("run=") for word in words if word.startswith("run=")), "")
    if typed and (not variant or f"run={typed}" in variant.split(",")):
        return words
    run = command_line.plain_name(",".join(filter(None, (typed or name, variant))))
    return (*(word for word in words if not word.startswith("run=")), f"run={run}")
