"""Long output at a terminal goes through a pager, as git's does; elsewhere, and where it fits, it is just printed."""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from rich.console import Console

_LESS = "FRX"
"""Quit where it fits, keep colours, leave the text on the screen."""


@contextmanager
def paged(console: Console) -> Iterator[None]:
    """Meanwhile nothing is printed; then all of it is, through $PAGER (less) where the window is too low for it."""
    if not console.is_terminal:
        yield
        return
    with console.capture() as captured:
        yield
    text = captured.get()
    pager = shlex.split(os.environ.get("PAGER", "less"))
    if text.count("\n") < console.height or not pager or not _through(pager, text):
        sys.stdout.write(text)


def _through(pager: list[str], text: str) -> bool:
    """Whether there was such a pager. It may be left before it has read everything."""
    settings = {"LESS": _LESS, **os.environ}
    try:
        reading = subprocess.Popen(pager, stdin=subprocess.PIPE, encoding="utf-8", env=settings, errors="replace")
    except OSError:
        return False
    with reading, suppress(BrokenPipeError, KeyboardInterrupt):
        reading.communicate(text)
    return True
