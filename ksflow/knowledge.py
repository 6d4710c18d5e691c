"""Notes that ship or that a user keeps: Markdown files with front matter, in a folder per target.

    ---
    title: Outer products need no transposition
    sources: [Intel Optimization Reference Manual, section 20.5]
    targets: [cpu]
    status: documented
    ---
    Text.

What this does not do: make notes (that is a digester) or choose between them beyond the target.
"""

from pathlib import Path

import yaml

from ksflow.errors import ConfigError
from ksflow.home import shipped
from ksflow.records import Note, Status, Target


def handbook(target: Target, folder: str | None = None, most: int = 40_000) -> tuple[Note, ...]:
    """The notes for a target, at most `most` characters of them, from the shipped folder or the user's."""
    root = Path(folder).expanduser() if folder else shipped("knowledge")
    if not root.is_dir():
        raise ConfigError(f"no knowledge folder {root}; name one with knowledge.folder=FOLDER")
    notes, size = [], 0
    for file in sorted(root.glob("*/*.md")):
        if file.name == "index.md" or file.parent.name == "inbox":
            continue
        note = read(file)
        size += len(note.text)
        if (not note.targets or {target.name, target.kind} & set(note.targets)) and size <= most:
            notes.append(note)
    return tuple(notes)


def read(file: Path) -> Note:
    """One note. Raises ConfigError that names the file."""
    try:
        _, head, text = file.read_text().split("---\n", 2)
        front = yaml.safe_load(head)
        return Note(
            str(front["title"]),
            text.strip(),
            tuple(map(str, front["sources"])),
            tuple(map(str, front.get("targets", ()))),
            Status(front.get("status", "documented")),
        )
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError) as error:
        raise ConfigError(f"{file} is not a note (front matter with title and sources, then text): {error}") from error
