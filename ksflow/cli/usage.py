"""The pages that `--help` and `COMMAND --help` print. Imports nothing heavy: help is there at once."""

import difflib
import re
import textwrap
from collections.abc import Sequence
from pathlib import Path

from ksflow.errors import ConfigError, suggest
from ksflow.home import sections, shipped_path

_TEXT = Path(__file__).with_name("usage.txt")
_PAGES = sections(_TEXT)
_HEADINGS = dict(re.findall(r"^@@ (\w+) (.+)$", _TEXT.read_text(encoding="utf-8"), re.MULTILINE))
"""The commands at which a part of the page of all commands begins -> its heading."""
_WHOLE = _PAGES.pop("ksflow")
COMMANDS = tuple(_PAGES)
_SECOND = re.compile(r"^  ksflow \w+ (?:\[NAME\] )?([a-z|]+)", re.MULTILINE)
"""The second words of a command, as its page has them."""

_SOUGHT = {
    "best": "lineage` shows the winner, and runs/best has its files",
    "winner": "lineage` shows the winner, and runs/best has its files",
    "version": "--version` prints the version",
    "status": "runs` shows every run and whether it is at work",
    "resume": "run` with the words of the earlier call goes on with its run",
}
"""Words that people try -> the command that shows what they look for."""


def full_page(version: str) -> str:
    """The page of all commands, groups and options."""
    heads = {name: f"\n{_HEADINGS[name]}:\n" if name in _HEADINGS else "" for name in _PAGES}
    lines = "\n".join(heads[name] + page.split("---\n")[0].strip("\n") for name, page in _PAGES.items())
    rows = []
    for folder in sorted(path for path in shipped_path("conf").iterdir() if path.is_dir()):
        options = " ".join(sorted(file.stem for file in folder.glob("[!_]*.yaml")))
        rows.append(textwrap.fill(f"  {folder.name:10} {options}", 80, subsequent_indent=" " * 13))
    return _WHOLE.format(version=version, lines=lines.lstrip("\n"), groups="\n".join(rows))


def command_page(command: str) -> str:
    """One command's own page."""
    lines, about, examples = (part.strip("\n") for part in _PAGES[command].split("---\n"))
    return f"{lines}\n\n{about}\n\nExamples:\n{examples}"


def meant(word: str) -> str:
    """Return what a word that is no command may mean: a command that shows what the word asks for, one that has it as
    its second word, or one alike; else an empty string."""
    if word in _SOUGHT:
        return f"`ksflow {_SOUGHT[word]}; "
    if word in (path.name for path in shipped_path("conf").iterdir()):
        return f"did you mean {word}=NAME? `ksflow {word} --help` lists them; "
    pairs = [
        (name, second)
        for name in COMMANDS
        for line in _SECOND.findall(_PAGES[name].split("---\n")[0])
        for second in line.split("|")
    ]
    found = [f"{name} {second}" for name, second in pairs if word in (second, f"{name}s")]
    found = found or difflib.get_close_matches(word, COMMANDS, 1)
    return f"did you mean {' or '.join(dict.fromkeys(found))}? " if found else ""


def expect_word(command: str, words: Sequence[str], valid: Sequence[str]) -> None:
    """Raise ConfigError, with the word that may be meant, unless a command's first word is one of its own."""
    if words and words[0] not in valid:
        names = [f"{command} {word}" for word in valid]
        raise ConfigError(f"no command '{command} {words[0]}'; {suggest(f'{command} {words[0]}', names)}")
