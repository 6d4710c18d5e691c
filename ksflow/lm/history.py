"""What `dspy.inspect_history` shows of a run: its last calls, whole and without secrets.

DSPy keeps up to ten thousand calls, which would be gigabytes of kernels; here a few are kept for whoever looks.
"""

import threading
import uuid
from collections import deque
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import dspy

from ksflow.lm.dspy_seams import GLOBAL_HISTORY

KEPT = 32
"""Calls that are remembered, of all stages together."""
_ours: deque[dict[str, Any]] = deque()
_lock = threading.Lock()


def remember(lm: dspy.LM, messages: Iterable[Mapping[str, str]], text: str) -> None:
    """Put a finished call into DSPy's histories, and forget the oldest of ours there; what others put there stays.

    Texts come here without secrets. Does nothing where a person has switched histories off.
    """
    if dspy.settings.disable_history or not dspy.settings.max_history_size:
        return
    entry = {
        "timestamp": datetime.now().isoformat(),
        "uuid": str(uuid.uuid4()),
        "prompt": None,
        "messages": [dict(message) for message in messages],
        "outputs": [text],
        "kwargs": {},
        "usage": {},
        "cost": None,
        "response": None,
        "model": lm.model,
        "response_model": lm.model,
        "model_type": lm.model_type,
    }
    with dspy.context(max_history_size=min(KEPT, dspy.settings.max_history_size)):
        lm.update_history(entry)
    with _lock:
        _ours.append(entry)
        while len(_ours) > KEPT:
            oldest = _ours.popleft()
            GLOBAL_HISTORY[:] = [past for past in GLOBAL_HISTORY if past is not oldest]
