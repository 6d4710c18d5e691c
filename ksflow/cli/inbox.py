"""The folder of questions that a run with `llm=inbox` leaves, as a tool sees it: list, read, answer."""

import re
from pathlib import Path

from ksflow import home
from ksflow.errors import ConfigError

_NAME = re.compile(r"[\w=.-]{1,180}\.md")
_LARGEST = 4_000_000


class Inbox:
    """Questions are `NAME.md`; one is answered by `NAME.answer.md` beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def waiting(self) -> list[str]:
        """The names of the questions without an answer, oldest first."""
        found = [file for file in self.folder.glob("*.md") if not file.name.endswith((".answer.md", ".part.md"))]
        open_ones = [file for file in found if not self._answer_of(file).exists()]
        return [file.name for file in sorted(open_ones, key=lambda file: (file.stat().st_mtime, file.name))]

    def read(self, question: str) -> str:
        """The question's text. Raises ConfigError where there is none of that name."""
        return self._file(question).read_text(errors="replace")[:_LARGEST]

    def answer(self, question: str, text: str, complete: bool = True) -> str:
        """Keep a part of an answer, or with the last part give it all. Raises ConfigError."""
        file = self._file(question)
        parts = file.with_name(f"{file.stem}.part.md")
        whole = (parts.read_text() if parts.exists() else "") + text
        if len(whole) > _LARGEST:
            raise ConfigError(f"the answer would be longer than {_LARGEST} characters")
        if not complete:
            home.write(parts, whole)
            return f"{len(whole)} characters are kept; the last part is to be sent with complete=true"
        home.write(self._answer_of(file), whole)
        parts.unlink(missing_ok=True)
        return f"answered with {len(whole)} characters"

    def _file(self, question: str) -> Path:
        if not _NAME.fullmatch(question) or question not in self.waiting():
            names = ", ".join(self.waiting()[:20]) or "none"
            raise ConfigError(f"no question {question[:80]!r} waits; waiting: {names}")
        return self.folder / question

    def _answer_of(self, file: Path) -> Path:
        return file.with_name(f"{file.stem}.answer.md")
