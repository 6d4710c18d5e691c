"""What a GPU MODE task's own `eval.py` does otherwise than the judge here: its clock, and what it makes of words.

The file is read, never run. Not covered: a harness that was written from scratch, of which nothing is said.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

_BATCHED = re.compile(r"^\s*(?:MAX|NUM)_ITERATIONS_PER_BENCHMARK\s*=\s*(\d+)", re.MULTILINE)
_TYPED = re.compile(r"==\s*['\"]true['\"]")
_WORDS = {"true": True, "false": False}
_DIFFERS = "so a ranking may differ from the one here"


def clock(text: str) -> Iterator[str]:
    """How a harness times otherwise than the judge, in sentences; none where it is not known."""
    if found := _BATCHED.search(text):
        yield (
            f"upstream calls a kernel on up to {found[1]} inputs between one pair of events: launches overlap and the "
            f"cache is emptied once for all; here every call has events and an empty cache of its own, {_DIFFERS}"
        )
    if "cudagraph" in text.lower():
        yield (
            "upstream replays a captured CUDA graph: a kernel that cannot be captured fails there, and launches cost "
            f"next to nothing, {_DIFFERS}"
        )
    if "perf_counter_ns" in text and "elapsed_time" not in text:
        yield f"upstream's times are those of the host's clock, with launches in them, {_DIFFERS}"
    if text and "clear_l2" not in text:
        yield f"upstream does not empty the cache between calls, {_DIFFERS}"


def typed(text: str, case: Mapping[str, Any]) -> dict[str, Any]:
    """A case in which the words true and false are truth values, where a harness makes that of them."""
    if not _TYPED.search(text):
        return dict(case)
    return {key: _WORDS.get(value, value) if isinstance(value, str) else value for key, value in case.items()}


def words(text: str) -> list[str]:
    """What a harness makes of words, in a sentence; nothing where it leaves them as they are."""
    return (
        ["its eval.py makes truth values of the words true and false, and so does this"] if _TYPED.search(text) else []
    )
