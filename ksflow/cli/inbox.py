"""The questions that runs with `llm=inbox` leave in a folder, for whoever answers them."""

import re
import stat
import threading
from contextlib import suppress
from pathlib import Path

from ksflow import home
from ksflow.errors import ConfigError

_QUESTION = re.compile(r"[\w=.-]{1,180}\.md")
_LARGEST_ANSWER = 4_000_000


class InboxFolder:
    """The questions that a run with `llm=inbox` leaves in a folder: `NAME.md` is answered by `NAME.answer.md`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()

    def waiting_questions(self) -> list[str]:
        """The names of the questions without an answer, oldest first."""
        questions: list[tuple[float, str]] = []
        for file in self.folder.glob("*.md"):
            if file.name.endswith((".answer.md", ".part.md")) or self._answer_of(file).exists():
                continue
            with suppress(FileNotFoundError):  # it was answered meanwhile
                if stat.S_ISREG((status := file.lstat()).st_mode):
                    questions.append((status.st_mtime, file.name))
        return [name for _, name in sorted(questions)]

    def read(self, question: str) -> str:
        """The question's text. Raises ConfigError where there is none of that name."""
        try:
            return self._file(question).read_text(errors="replace", encoding="utf-8")[:_LARGEST_ANSWER]
        except FileNotFoundError:
            raise ConfigError(f"the question {question} was answered meanwhile") from None

    def answer(self, question: str, text: str, complete: bool = True) -> str:
        """Keep a part of an answer, or with the last part give it all. Raises ConfigError."""
        file = self._file(question)
        parts = file.with_name(f"{file.stem}.part.md")
        with self._lock:
            if parts.exists() and parts.stat().st_mtime < file.stat().st_mtime:
                parts.unlink()  # of the same question when it was asked before
            whole = (parts.read_text(encoding="utf-8") if parts.exists() else "") + text
            if len(whole) > _LARGEST_ANSWER:
                raise ConfigError(f"the answer would be longer than {_LARGEST_ANSWER} characters")
            if not complete:
                home.write(parts, whole)
                return f"{len(whole)} characters are kept; the last part is to be sent with complete=true"
            if not whole.strip():
                raise ConfigError("an empty answer would be waited for as if there were none: write one")
            home.write(self._answer_of(file), whole)
            parts.unlink(missing_ok=True)
            return f"answered with {len(whole)} characters"

    def _file(self, question: str) -> Path:
        if not _QUESTION.fullmatch(question) or question not in self.waiting_questions():
            names = ", ".join(self.waiting_questions()[:20]) or "none"
            raise ConfigError(f"no question {question[:80]!r} waits; waiting: {names}")
        return self.folder / question

    def _answer_of(self, file: Path) -> Path:
        return file.with_name(f"{file.stem}.answer.md")
