"""The command `isolate`: a function of a repository as a problem folder, from the calls that are made of it."""

import re
import tempfile
from pathlib import Path

from ksflow import report
from ksflow.cli.model import show_table
from ksflow.errors import ConfigError


def isolate(words: list[str], overrides: list[str]) -> int:
    """`isolate MODULE:FUNCTION --run "COMMAND"`: 0, or ConfigError where no problem can be made of it."""
    known = {"run": "", "out": "."}
    rest = [*overrides]
    while rest:
        word, equals, value = rest.pop(0).lstrip("-").partition("=")
        if word not in known or not (equals or rest):
            raise ConfigError(f'{word}; valid: isolate MODULE:FUNCTION --run "COMMAND" out=FOLDER')
        known[word] = value if equals else rest.pop(0)
    if len(words) != 1 or not re.fullmatch(r"[\w.]+:[\w.]+", words[0]) or not known["run"]:
        raise ConfigError('the command is: isolate MODULE:FUNCTION --run "COMMAND", such as --run "pytest -q"')
    from ksflow.model import capture  # torch takes seconds
    from ksflow.model.isolate import isolate as write

    console = report.console()
    with tempfile.TemporaryDirectory(prefix="ksflow-") as folder:
        with report.console(stderr=True).status(known["run"]):
            seen = capture.observe(words[0], known["run"], Path(folder))
        table, written = write(seen, Path(folder), Path(known["out"]).expanduser())
    show_table(table)
    typed = written if written.is_absolute() else f"./{written}"
    report.say(console, f"written to {written}: python -m ksflow problem={typed}")
    return 0
