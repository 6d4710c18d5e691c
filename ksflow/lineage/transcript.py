"""Every model call, kept in git before its answer is used, and what the calls have cost.

Keys never get here: what is a secret (`redaction`) is struck out.
"""

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from ksflow.lineage import Lineage
from ksflow.protocols import call_context, calling
from ksflow.records import Call, Cost
from ksflow.redaction import redact


@dataclass
class Account:
    """What the calls about one thing have cost."""

    cost: Cost = field(default_factory=Cost)


class Transcript:
    """Keeps calls in a lineage, from any number of threads. `total` and `stages` only grow."""

    def __init__(self, lineage: Lineage) -> None:
        self._lineage = lineage
        self._lock = threading.Lock()
        self.total = Cost()
        self.stages: dict[str, Cost] = defaultdict(Cost)

    def keep(self, call: Call, account: Account | None = None) -> None:
        """Commit one call, and charge it to the account."""
        messages = tuple({key: redact(text) for key, text in message.items()} for message in call.messages)
        answer, error = redact(call.answer), redact(call.error)
        with self._lock:
            self.total = self.total + call.cost
            self.stages[call.stage.partition("=")[0]] += call.cost
            if account:
                account.cost = account.cost + call.cost
        self._lineage.record(replace(call, messages=messages, answer=answer, error=error, about=call_context().about))

    @contextmanager
    def about(self, what: str, sample_index: int = 0) -> Iterator[Account]:
        """Calls made meanwhile in this context are kept here, are about `what`, and are charged to the account.

        `sample_index`: which of several answers to the same questions is wanted.
        """
        account = Account()
        with calling(about=what, sample_index=sample_index, record=partial(self.keep, account=account)):
            yield account
