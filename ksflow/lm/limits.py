"""Rate limits: how many requests and tokens may go to one model within a minute, from all threads of the process."""

import threading
import time
from collections import deque
from dataclasses import dataclass

from ksflow.lm.model import Model

PERIOD_S = 60.0


@dataclass
class Slot:
    """One request's place in the last minute."""

    at: float
    tokens: int  # prompt and answer: the most that they may be, and once known what they were


class RateLimiter:
    """What was sent to one model within the last minute. Whoever waits is served in the order of arrival."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._changed = threading.Condition()
        self._slots: deque[Slot] = deque()

    def enter(
        self,
        tokens: int,
        requests_limit: int | None = None,
        tokens_limit: int | None = None,
        until: float | None = None,
    ) -> Slot | None:
        """Wait until both limits leave room for a request; return its slot, or None if that takes longer than `until`.

        A request above the token limit on its own goes when there was no other within a minute.
        """
        if not self._turn.acquire(timeout=-1 if until is None else max(until - time.monotonic(), 0.0)):
            return None
        try:
            with self._changed:
                while (wait_s := self._wait_s(tokens, requests_limit, tokens_limit)) > 0:
                    if until is not None and time.monotonic() + wait_s > until:
                        return None
                    self._changed.wait(wait_s)
                slot = Slot(time.monotonic(), tokens)
                self._slots.append(slot)
                return slot
        finally:
            self._turn.release()

    def settle(self, slot: Slot, tokens: int) -> None:
        """Record that a request had so many tokens."""
        with self._changed:
            slot.tokens = tokens
            self._changed.notify_all()

    def _wait_s(self, tokens: int, requests_limit: int | None, tokens_limit: int | None) -> float:
        now = time.monotonic()
        while self._slots and self._slots[0].at <= now - PERIOD_S:
            self._slots.popleft()
        full = requests_limit is not None and len(self._slots) >= requests_limit
        if tokens_limit is not None and self._slots:
            full = full or sum(slot.tokens for slot in self._slots) + tokens > tokens_limit
        return self._slots[0].at + PERIOD_S - now if full else 0.0


_limiters: dict[tuple[str, str], RateLimiter] = {}


def rate_limiter(model: Model) -> RateLimiter:
    """Return the limiter that all models with this address and name share."""
    return _limiters.setdefault((model.api_base or "", model.model), RateLimiter())
