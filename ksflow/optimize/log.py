"""Where an optimiser's own words go while it works."""

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path


class _Log(io.TextIOBase):
    """A text file that secrets do not get into."""

    def __init__(self, path: Path, redact: Callable[[str], str]) -> None:
        self._file, self._redact = path.open("a", encoding="utf-8", errors="replace"), redact

    def write(self, text: str) -> int:
        """As a file's."""
        self._file.write(self._redact(text))
        return len(text)

    def close(self) -> None:
        """As a file's."""
        self._file.close()
        super().close()


@contextmanager
def aside(path: Path, redact: Callable[[str], str]) -> Iterator[None]:
    """Meanwhile what is printed goes into a file: optimisers print bars and whole prompts."""
    with _Log(path, redact) as log, redirect_stdout(log), redirect_stderr(log):
        yield
