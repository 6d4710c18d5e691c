"""Every model call, kept in git before its answer is used, and what the calls have cost so far.

Keys never get here: the callers send none, and whatever in the environment looks like a secret is struck out.
"""

import os
import re
from dataclasses import replace

from ksflow.lineage import Lineage
from ksflow.protocols import transcript_to
from ksflow.records import Call, Cost

_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)


class Transcript:
    """Keeps calls in a lineage. `total` only grows."""

    def __init__(self, lineage: Lineage) -> None:
        self._lineage = lineage
        self._secrets = [value for name, value in os.environ.items() if _SECRET.search(name) and len(value) >= 8]
        self.total = Cost()
        transcript_to(self.keep)

    def keep(self, call: Call) -> None:
        """Commit one call."""
        self.total = self.total + call.cost
        messages = tuple({key: self._redact(text) for key, text in message.items()} for message in call.messages)
        self._lineage.record(
            replace(
                call,
                messages=messages,
                answer=self._redact(call.answer),
                error=self._redact(call.error),
            )
        )

    def _redact(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "[secret]")
        return text
