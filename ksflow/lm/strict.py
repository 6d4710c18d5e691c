"""JSON that is what it should be or is refused: Python's parser, never a repair.

Beyond the standard: no key twice in an object, no NaN or Infinity, no lone surrogate, no NUL character.
"""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

_NEAR = 30  # characters shown on each side of a mistake


def loads(text: str) -> Any:
    """The value of one JSON text. ValueError says what is wrong and where."""
    try:
        value = json.loads(text, object_pairs_hook=_object, parse_constant=_constant)
    except json.JSONDecodeError as error:
        near = text[max(0, error.pos - _NEAR) : error.pos + _NEAR]
        raise ValueError(f"{error.msg} at line {error.lineno} column {error.colno}, near {near!r}") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    for part in _texts(value):
        check_text(part)
    return value


def check_text(text: str) -> None:
    """ValueError for what no file and no message may hold."""
    if "\0" in text:
        raise ValueError("it contains a NUL character")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("it is not valid Unicode (a lone surrogate)") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        (twice, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key {twice[:40]!r} appears twice in one object")
    return found


def _constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON; numbers are finite")


def _texts(value: Any) -> Iterator[str]:
    left = [value]
    while left:
        part = left.pop()
        if isinstance(part, str):
            yield part
        elif isinstance(part, dict):
            left += [*part, *part.values()]
        elif isinstance(part, list):
            left += part
