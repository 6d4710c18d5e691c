"""What `dspy.inspect_history` shows of a run: its last calls, whole, without secrets and without providers' objects.

DSPy keeps up to ten thousand calls, which would be gigabytes of kernels; here a few are kept for whoever looks.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from dspy.clients.base_lm import GLOBAL_HISTORY

KEPT = 32
"""Calls that are remembered, of all stages together."""
_ours: deque[dict[str, Any]] = deque()
_lock = threading.Lock()


def shown(entry: dict[str, Any], redact: Callable[[str], str]) -> dict[str, Any]:
    """An entry of DSPy's history with texts that `redact` has cleaned, and without the provider's response."""
    messages = [{**message, "content": redact(str(message["content"]))} for message in entry.get("messages") or []]
    prompt = entry.get("prompt")
    return {
        **entry,
        "prompt": redact(prompt) if isinstance(prompt, str) else None,
        "messages": messages,
        "outputs": [_cleaned(output, redact) for output in entry["outputs"]],
        "response": None,
    }


def bound(entry: dict[str, Any]) -> None:
    """Forget the oldest calls of DSPy's history that came from here; what others put there stays."""
    with _lock:
        _ours.append(entry)
        while len(_ours) > KEPT:
            oldest = _ours.popleft()
            GLOBAL_HISTORY[:] = [kept for kept in GLOBAL_HISTORY if kept is not oldest]


def _cleaned(output: Any, redact: Callable[[str], str]) -> Any:
    if isinstance(output, str):
        return redact(output)
    return {name: redact(value) if isinstance(value, str) else value for name, value in output.items()}
