"""Every model call, kept in git before its answer is used, and what the calls have cost.

Keys never get here: what is a secret (`redaction`) is struck out.
"""

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from ksflow.lineage import Lineage
from ksflow.protocols import Account, call_context, override_call
from ksflow.records import Call, Cost
from ksflow.redaction import redact


class Transcript:
    """Keeps calls in a lineage, from any number of threads. `total` and `stages` only grow."""

    def __init__(self, lineage: Lineage) -> None:
        self._lineage = lineage
        self._lock = threading.Lock()
        self.total = Cost()
        self.stages: dict[str, Cost] = defaultdict(Cost)

    def keep(self, call: Call) -> None:
        """Commit one call, and charge it to the account of whoever made it."""
        context = call_context()
        messages = tuple({key: redact(text) for key, text in message.items()} for message in call.messages)
        answer, error = redact(call.answer), redact(call.error)
        with self._lock:
            self.total = self.total + call.cost
            self.stages[call.stage.partition("=")[0]] += call.cost
            if context.account:
                context.account.cost += call.cost
        self._lineage.record(replace(call, messages=messages, answer=answer, error=error, about=context.about))

    @contextmanager
    def attribute_calls(self, what: str) -> Iterator[Account]:
        """Calls made meanwhile in this context are kept here, are about `what`, and are charged to the account."""
        account = Account()
        with override_call(about=what, record=self.keep, account=account):
            yield account
