"""The pages that `--help` and `COMMAND --help` print. Imports nothing heavy: help is there at once."""

import difflib
import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from ksflow.errors import ConfigError, suggest
from ksflow.home import default_options, problem_folders, sections, shipped_path, text_of

_TEXT = Path(__file__).with_name("usage.txt")
_PAGES = sections(_TEXT)
_HEADINGS = dict(re.findall(r"^@@ (\w+) (.+)$", _TEXT.read_text(encoding="utf-8"), re.MULTILINE))
"""The commands at which a part of the page of all commands begins -> its heading."""
_WHOLE = _PAGES.pop("ksflow")
COMMANDS = tuple(_PAGES)
_SECOND = re.compile(r"^  ksflow \w+ (?:\[NAME\] )?([a-z|]+)", re.MULTILINE)
"""The second words of a command, as its page has them."""

_KINDS = (
    (r"\b(custom_kernel|ModelNew)\b", "evaluate {word} problem=NAME"),
    (r"^def (get_inputs)\(", "problem=kernelbench problem.path={word}"),
    (r"^def (ref_kernel)\(", "problem=kernel problem.reference={word}"),
    (r"^def (model)\(", "model profile {word}"),
    (r"^def ([A-Za-z]\w*)\(", "init problem {name} from={word}:{name}"),
)
"""What the text of a Python file contains -> the command for it."""
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
    rows, defaults = [], default_options()
    for folder in sorted(path for path in shipped_path("conf").iterdir() if path.is_dir()):
        default = defaults.get(folder.name)
        options = " ".join(file.stem + " (default)" * (file.stem == default) for file in _options(folder))
        rows.append(textwrap.fill(f"  {folder.name:10} {options}", 80, subsequent_indent=" " * 13))
    return _WHOLE.format(version=version, lines=lines.lstrip("\n"), groups="\n".join(rows))


def command_page(command: str) -> str:
    """One command's own page."""
    lines, about, examples = (part.strip("\n") for part in _PAGES[command].split("---\n"))
    if command == "llm":
        from ksflow.config import providers  # which a worker's folder lacks

        about += f"\n\n{providers.table()}"
    return f"{lines}\n\n{about}\n\nExamples:\n{examples}"


def unknown(word: str) -> str:
    """Return what is said of a first word that is no command."""
    return f"no command {word!r}; {meant(word)}commands: {', '.join(COMMANDS)}; see --help"


def meant(word: str) -> str:
    """Return what a word that is no command may mean: a command that shows what the word asks for, one that has it as
    its second word, a file, an option, or one alike; else an empty string."""
    if word in _SOUGHT:
        return f"`ksflow {_SOUGHT[word]}; "
    groups = {path.name: [file.stem for file in _options(path)] for path in shipped_path("conf").iterdir()}
    if word in groups:
        return f"did you mean {word}=NAME? `ksflow {word} --help` lists them; "
    if typed := _of_file(word) or _of_option(word, groups):
        return f"did you mean `ksflow {typed}`? "
    pairs = [
        (name, second)
        for name in COMMANDS
        for line in _SECOND.findall(_PAGES[name].split("---\n")[0])
        for second in line.split("|")
    ]
    found = [f"{name} {second}" for name, second in pairs if word in (second, f"{name}s")]
    if close := [] if found else difflib.get_close_matches(word, [*COMMANDS, *_problems(groups)], 1):
        found = [name if name in COMMANDS else f"`ksflow problem={name}`" for name in close]
    return f"did you mean {' or '.join(dict.fromkeys(found))}? " if found else ""


def _options(group: Path) -> list[Path]:
    return sorted(group.glob("[!_]*.yaml"))


def _problems(groups: Mapping[str, Sequence[str]]) -> list[str]:
    return [*groups["problem"], *problem_folders(Path())]


def _of_option(word: str, groups: Mapping[str, Sequence[str]]) -> str:
    """The words that choose the option of a group which a word names alone; empty where it names none."""
    if word in _problems(groups):
        return f"problem={word}"
    return next((f"{group}={word}" for group in ("llm", *sorted(groups)) if word in groups[group]), "")


def _of_file(word: str) -> str:
    """The command for a file, a folder or a function of one that a word names alone; empty where it names none."""
    file, colon, name = word.partition(":")
    path = Path(file).expanduser()
    if colon and name:
        if file.endswith(".py"):
            return f"init problem {name.rpartition('.')[2]} from={word}"
        return f'isolate {word} --run "COMMAND"'
    if (path / "problem.yaml").is_file():
        return f"problem=./{word}" if "/" not in word else f"problem={word}"
    if path.suffix in (".cpp", ".cu", ".hip") or not path.is_file():
        return f"evaluate {word} problem=NAME" if path.suffix in (".cpp", ".cu", ".hip", ".py") else ""
    text = text_of(path)
    for pattern, typed in _KINDS:
        if found := re.search(pattern, text, re.MULTILINE):
            return typed.format(word=word, name=found[1])
    return ""


def expect_word(command: str, words: Sequence[str], valid: Sequence[str]) -> None:
    """Raise ConfigError, with the word that may be meant, unless a command's first word is one of its own."""
    if words and words[0] not in valid:
        names = [f"{command} {word}" for word in valid]
        raise ConfigError(f"no command '{command} {words[0]}'; {suggest(f'{command} {words[0]}', names)}")
