"""What headless coding agents print when they end: their last words, and what they say that they used."""

import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

_MOST_USD = 10_000.0  # what one call of an agent can have cost; more is nonsense


@dataclass(frozen=True)
class Usage:
    """What an agent says that it used; None where it says nothing."""

    text: str
    tokens: tuple[int, int] | None = None
    usd: float | None = None
    error: str = ""


def _count(value: object) -> int:
    """Tokens that a program told; 0 where it told nonsense."""
    return int(value) if isinstance(value, int | float) and type(value) is not bool and 0 <= value < 1e12 else 0


def clean(text: str) -> str:
    """Words of a program, as Unicode that can be written down and shown: no half characters, no codes of terminals."""
    text = text.encode("utf-8", "replace").decode()
    return "".join(letter for letter in text if (letter >= " " and letter != "\x7f") or letter in "\n\t")


def mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _object(output: str) -> Mapping[str, Any]:
    """All of it, its last line, or what follows its first lone brace, as an object of JSON; empty where it is none."""
    start = output.find("\n{\n") + 1
    for text in (output, output.strip().rpartition("\n")[2], output[start:]):
        with contextlib.suppress(ValueError, RecursionError):
            return mapping(json.loads(text))
    return {}


def _claude(output: str) -> Usage:
    """`claude -p --output-format json`: an object with result, is_error, total_cost_usd and usage."""
    answer = _object(output)
    if "result" not in answer and "usage" not in answer:
        return Usage(output.strip())
    usage = mapping(answer.get("usage"))
    read = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    tokens = (sum(_count(usage.get(name)) for name in read), _count(usage.get("output_tokens")))
    usd, cost = None, answer.get("total_cost_usd")
    if isinstance(cost, int | float) and type(cost) is not bool and 0 <= cost < _MOST_USD:
        usd = float(cost)
    text = str(answer.get("result") or "")
    return Usage("" if answer.get("is_error") else text, tokens, usd, text if answer.get("is_error") else "")


def _codex(output: str) -> Usage:
    """`codex exec --json`: a line for each event; the last agent_message is the answer, turn.completed has usage."""
    text, error, tokens = "", "", None
    for line in output.splitlines():
        event = _object(line)
        item = mapping(event.get("item"))
        if event.get("type") == "item.completed" and item.get("type") == "agent_message":
            text = str(item.get("text") or "")
        elif event.get("type") in ("turn.failed", "error"):
            error = str(mapping(event.get("error")).get("message") or event.get("message") or "failed")
        if event.get("type") in ("turn.completed", "turn.failed") and (usage := mapping(event.get("usage"))):
            before = tokens or (0, 0)
            tokens = (before[0] + _count(usage.get("input_tokens")), before[1] + _count(usage.get("output_tokens")))
    return Usage(text, tokens, None, error)


def _gemini(output: str) -> Usage:
    """`gemini -p --output-format json`: an object with response, stats.models.NAME.tokens and perhaps error."""
    answer = _object(output)
    if "response" not in answer and "error" not in answer:
        return Usage(output.strip())
    models = mapping(mapping(answer.get("stats")).get("models")).values()
    counts = [mapping(mapping(row).get("tokens")) for row in models]
    read = sum(_count(row.get("prompt")) for row in counts)
    written = sum(_count(row.get("candidates")) + _count(row.get("thoughts")) for row in counts)
    error = str(mapping(answer.get("error")).get("message") or "")
    return Usage(str(answer.get("response") or ""), (read, written) if counts else None, None, error)


ENVELOPES: dict[str, Callable[[str], Usage]] = {
    "claude": _claude,
    "codex": _codex,
    "gemini": _gemini,
    "text": lambda output: Usage(output.strip()),
}
