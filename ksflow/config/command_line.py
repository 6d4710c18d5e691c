"""The words of a command line: flags, keys with their values, names made of them, and what Hydra says of them."""

import difflib
import itertools
import os
import re
from collections.abc import Sequence
from pathlib import Path

from hydra._internal.utils import get_args_parser
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from ksflow.config import keys
from ksflow.errors import ConfigError, error_location, suggest
from ksflow.home import PLAIN_VALUE, plain_or_quoted, problem_folders, quote_value
from ksflow.records import digest
from ksflow.redaction import passwords

_EXTRAS = {"optuna": "sweep", "joblib": "launchers", "submitit": "launchers", "ray": "ray-launcher"}
"""Sweepers and launchers of Hydra's -> the extra that brings them."""
_SHOWING = ("--cfg", "-c", "--info", "-i")
_WITH_VALUE = ("--cfg", "-c", "--config-dir", "-cd", "--config-path", "-cp", "--config-name", "-cn", "--package", "-p")
"""Flags of Hydra's whose value is the next word."""
PLAIN = re.compile(r"[^\w.=,+-]+")  # what a name among files and branches has no place for
_NAME = 120  # letters of such a name at most
_PART_KEY = re.compile(r"[A-Za-z_][\w.]*\.\w+=", re.ASCII)


def plain_name(words: str) -> str:
    """Words of a command line as a name; those of a long one that is cut end with their digest."""
    name = PLAIN.sub("_", words)
    return (name if len(name) <= _NAME else f"{name[: _NAME - 8]}-{digest(words, digits=7)}").strip(".,")


def free_key(argument: str) -> str:
    """`part.key=value` may name a parameter that the YAML does not list; `check` knows the valid ones."""
    argument = keys.as_typed(argument)
    name, equals, value = argument.partition("=")
    if equals and name in keys.groups() and value in ("", "null"):
        raise ConfigError(f"no option {argument}; valid: {', '.join(keys.options(name))}")
    own = name == "problem" and value not in keys.options(name)
    if own and ("/" in value.strip("'\"") or Path(value, "problem.yaml").is_file()):  # a folder, there or not
        argument = keys.as_typed(f"problem.path={plain_or_quoted(value)}")
    known = _PART_KEY.match(argument) and argument.partition(".")[0] in {*keys.roots(), "optimize"}
    argument = f"++{argument}" if known else argument
    name, equals, value = argument.partition("=")
    if equals and not PLAIN_VALUE.fullmatch(value):
        try:
            OverridesParser.create().parse_override(argument)
        except HydraException:  # its grammar has no place for the value: letters, brackets, signs
            return f"{name}={quote_value(value)}"
    return argument


def config_dir(arguments: list[str]) -> tuple[str | None, list[str]]:
    """(the folder that `--config-dir` names, the other arguments). ConfigError."""
    rest, directory = [], None
    pending = iter(arguments)
    for argument in pending:
        name, equals, value = argument.partition("=")
        if name in ("--config-dir", "-cd"):
            given = value if equals else next(pending, "")
            if not given:
                raise ConfigError(f"{name} needs the folder that it names: {name} FOLDER")
            directory = os.path.abspath(given)
            if not os.path.isdir(directory):
                raise ConfigError(f"--config-dir {directory} is no folder")
        else:
            rest.append(argument)
    return directory, rest


def flags_first(arguments: Sequence[str]) -> list[str]:
    """The arguments with Hydra's flags in front: between words its parser takes none."""
    flags, words = list[str](), list[str]()
    pending = iter(arguments)
    for argument in pending:
        (flags if argument.startswith("-") else words).append(argument)
        if argument in _WITH_VALUE:
            flags += [value for value in [next(pending, None)] if value is not None]
    return flags + words


def no_flags(words: Sequence[str]) -> None:
    """Commands that search nothing know none of Hydra's. ConfigError."""
    _no_dashes(words)
    if flag := next((word for word in words if word.startswith("-")), ""):
        shows = "; python -m ksflow --cfg job key=value ... shows a configuration" if flag in _SHOWING else ""
        raise ConfigError(f"{flag} is no flag of this command, which takes key=value and --config-dir{shows}")


def _no_dashes(words: Sequence[str]) -> None:
    for word, after in itertools.pairwise([*words, ""]):
        name, equals, value = word.partition("=")
        if name.startswith("--") and name[2:].partition(".")[0] in keys.roots() - {"run"}:
            raise ConfigError(f"{name} is no flag: write {name[2:]}={value if equals else after or 'VALUE'}")


def check_flags(arguments: list[str]) -> None:
    """Hydra answers flags that do not go together, and wrong words for --shell-completion, with a traceback; and it
    keeps words with credentials in a file. ConfigError.
    """
    for word in arguments:
        key, _, value = word.partition("=")
        if passwords(value):
            raise ConfigError(
                f"{key} holds credentials, and would be kept with the run: put the URL into an environment variable "
                f"and write {key}='${{oc.env:VARIABLE}}'"
            )
    _no_dashes(arguments)
    dashed = [word for word in arguments if word.startswith("-")]
    known = [flag for action in get_args_parser()._actions for flag in action.option_strings] if dashed else []
    if wrong := next((word for word in dashed if word.partition("=")[0] not in known), ""):
        dry = "a search that compiles nothing is recipe=dry_run; " if "dry" in wrong else ""
        raise ConfigError(f"no flag {wrong}; {dry}{suggest(wrong, (name for name in known if name[:2] == '--'))}")
    asked = not {"--shell-completion", "-sc"}.isdisjoint(arguments)
    if asked and not any(re.fullmatch(r"(un)?install=(bash|zsh|fish)|query=.+", word) for word in arguments):
        raise ConfigError("--shell-completion takes install=bash, zsh or fish, or uninstall= of one of them")
    shows = next((word for word in arguments if word.partition("=")[0] in _SHOWING), "")
    if shows and not {"-m", "--multirun", "--run", "-r"}.isdisjoint(arguments):
        raise ConfigError(
            f"{shows} shows one configuration and runs nothing: leave -m and --run out, and give each key one value"
        )


def explain(error: BaseException) -> ConfigError:
    """Hydra's and OmegaConf's many-line messages as one line that names what is valid."""
    text = str(error)
    if match := re.search(r"Could not override '([^']+)'", text):
        word = match[1].rpartition("/")[2].partition(".")[0]
        if word == "verifier":
            return ConfigError("verifier= goes with a writer that asks one: writer=verified")
        group, at, _ = word.partition("@")
        if at and (places := re.findall(rf"{group}@[\w.]+", text.partition("override one of")[2].partition("?")[0])):
            return ConfigError(f"no place {match[1]} here; valid: {', '.join(places)}")
        if word in keys.groups():
            return ConfigError(f"{word}= is for a command of its own, not for this one; see --help")
        inner = keys.keys_of_parts()
        close = difflib.get_close_matches(word, [*keys.roots(), *inner], 1)
        hint = f"did you mean {inner[close[0]]}? " if close and close[0] not in keys.roots() else ""
        return ConfigError(f"no key or group {word!r}; {hint}{suggest('' if hint else word, keys.roots())}")
    if match := re.search(r"Error parsing override '(.*)'\s+missing EQUAL", text):
        if "." in (word := match[1].lstrip("+")) and word.partition(".")[0] in keys.roots():
            return ConfigError(f"{word} needs a value: {word}=VALUE")
        return ConfigError(f"{match[1]!r} is not key=value; a command's words come first, before keys and --options")
    if match := re.search(r"Error merging override \+*(([^=]+)=.*)", text):
        shapes = f"keys with values are written {match[2]}.KEY=VALUE, a list {match[2]}=[A,B]"
        return ConfigError(f"{match[1]} is of another shape than what it would replace: {shapes}")
    if match := re.search(r"Could not find '([^']+)/([^']+)'", text):
        if match[1] in ("hydra/sweeper", "hydra/launcher"):
            extra = _EXTRAS.get(match[2].partition("_")[0] if "launcher" in match[1] else match[2])
            remedy = f"pip install -e '.[{extra}]' brings {match[2]}" if extra else "it is a plugin of Hydra's"
            return ConfigError(f"{match[1]}={match[2]} is not installed: {remedy}")
        group = match[1]
        options = set(keys.options(group))
        options |= set(re.findall(r"^\t([^_\s]\S*)$", text, re.MULTILINE))
        options |= set(problem_folders(Path())) if group == "problem" else set()
        return ConfigError(f"no option {group}={match[2]}; {suggest(match[2], options)}")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return ConfigError(("; ".join(lines[:3]) or type(error).__name__) + error_location(error))
