"""Where things live on disk. What ships is read-only data beside this file; what a run makes is the user's."""

import os
import threading
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def shipped(*parts: str) -> Path:
    """A path inside the shipped data: `shipped("problems", "softmax")`."""
    return PACKAGE.joinpath(*parts)


def cache(*parts: str) -> Path:
    """A path for what may be deleted at any time (compiled kernels), under `$KSFLOW_CACHE` or XDG's cache."""
    base = os.environ.get("KSFLOW_CACHE")
    root = Path(base) if base else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ksflow"
    return root.joinpath(*parts)


def write(path: Path, text: str) -> None:
    """All of it or nothing, whoever else writes there. A character that UTF-8 does not have becomes a question mark."""
    draft = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}")
    try:
        draft.write_bytes(text.encode("utf-8", "replace"))
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
