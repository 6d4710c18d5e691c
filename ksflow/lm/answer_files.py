"""DSPy's cache as a file for each answer, which any number of threads and processes read and write whole.

DSPy's own is a set of sixteen databases, which each thread opens anew, with pickled contents.
"""

import json
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from ksflow import home
from ksflow.lm.dspy_seams import Cache

Request = dict[str, Any]
_newest = threading.local()


def newest_file() -> Path | None:
    """Where the answer is that this thread has looked for or kept last."""
    found: Path | None = getattr(_newest, "file", None)
    return found


class AnswerFiles(Cache):  # type: ignore[misc]
    """What `dspy.cache` is here. A failed write is no error, and what is no JSON is not kept."""

    def __init__(self, folder: Path) -> None:
        """`folder` is made with the first answer."""
        super().__init__(enable_disk_cache=False, enable_memory_cache=False, disk_cache_dir=str(folder))
        self.folder = folder

    def get(self, request: Request, ignored: list[str] | None = None) -> Any:
        """The answer to a request; None where there is none, or none that can be read."""
        with suppress(OSError, TypeError, ValueError, RecursionError):
            return json.loads(self._file(request, ignored).read_bytes())
        return None

    def put(
        self, request: Request, value: Any, ignored: list[str] | None = None, enable_memory_cache: bool = True
    ) -> None:
        """Keep the answer to a request."""
        with suppress(OSError, TypeError, ValueError, RecursionError):
            file, text = self._file(request, ignored), json.dumps(value)
            file.parent.mkdir(parents=True, exist_ok=True)
            home.write(file, text)

    def _file(self, request: Request, ignored: list[str] | None) -> Path:
        name: str = self.cache_key(request, ignored)
        file = self.folder / name[:2] / f"{name}.json"
        _newest.file = file
        return file
