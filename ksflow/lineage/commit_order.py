"""The order of a session's commits, and their dates. Live they come as they come; a replay keeps to what was recorded.

A session is one call of a run. Each of its commits ends with `Step: <session>.<number>`, so the order in which several
threads wrote is on record. A replay lets every commit wait until it is its turn, and gives it the date it had. Commits
are told apart by what they say (tree and message), which a replay makes anew.
"""

import math
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from ksflow.errors import BudgetError, LineageError

_STUCK_S = 60.0
"""A recorded step that nothing produces for so long will not come."""
_LOOK_S = 0.5
_DIVERGED_S = 3.0
"""The same where something was made that is not on record."""


class RecordedCommit(NamedTuple):
    """One commit of a session as it was recorded."""

    number: int
    tree: str
    text: str
    """The message without its step."""
    date: int


class LiveOrder:
    """Steps as they come. `clock` gives the dates (seconds since 1970)."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.done = 0
        self.rounds: float = math.inf
        """How many rounds may begin."""

    def next_step(self, tree: str, text: str, changed: threading.Condition) -> tuple[int, int]:
        """(number, date) for a commit that is about to be made."""
        return self.done + 1, int(self._clock())

    def await_turn(self, trailer: str, changed: threading.Condition) -> None:
        """Return when a commit with this last line may be put together from what is on record: at once."""

    def ids(self, cause: str) -> tuple[str, ...] | None:
        """The ids that a round or a repair may take; None where it is free to choose."""
        return None


class RecordedIds(LiveOrder):
    """Steps as they come, with the rounds and the ids of a recorded session: its kernels are judged anew."""

    def __init__(self, clock: Callable[[], float], ids: Mapping[str, tuple[str, ...]], rounds: int) -> None:
        super().__init__(clock)
        self._ids = ids
        self.rounds = rounds

    def ids(self, cause: str) -> tuple[str, ...] | None:
        """The ids that a round or a repair took; none where there was none."""
        return self._ids.get(cause, ())


class ReplayedOrder:
    """Steps in the order and with the dates of a recorded session."""

    def __init__(
        self, steps: Iterable[RecordedCommit], ids: Mapping[str, tuple[str, ...]], made_with: str = ""
    ) -> None:
        """`ids`: the ids that each round (by its name) and each repair (by the failed trial) took. `made_with`: the
        arguments of the recorded session.
        """
        self._ids, self._made_with = ids, made_with or "no arguments"
        self._left: dict[tuple[str, str], deque[RecordedCommit]] = defaultdict(deque)
        self._text: dict[int, str] = {}
        for step in sorted(steps):
            self._left[step.tree, step.text].append(step)
            self._text[step.number] = step.text
        self.done = 0
        self._diverged = False
        self.rounds: float = sum(text.startswith("round ") for text in self._text.values())
        """Rounds that were recorded."""

    @property
    def missing(self) -> str:
        """The first recorded step that was not made again; empty when all were."""
        return self._text.get(self.done + 1, "").partition("\n")[0]

    @property
    def divergence(self) -> str:
        """What to tell a user when recorded steps are missing."""
        return (
            f"the replay came to step {self.done} of {len(self._text)}, before {self.missing!r}; it takes the stages "
            f"and settings that were recorded: that session was made with {self._made_with}"
        )

    def ids(self, cause: str) -> tuple[str, ...] | None:
        """The ids that a round or a repair took; none where there was none."""
        return self._ids.get(cause, ())

    def next_step(self, tree: str, text: str, changed: threading.Condition) -> tuple[int, int]:
        """(number, date), once it is this commit's turn. BudgetError when the recording has no such commit."""
        left = self._left[tree, text]
        if not left:
            self._diverged = True
            raise BudgetError(f"the recording ends before {text.partition(chr(10))[0]!r}")
        step = left.popleft()
        self._wait(step.number, changed)
        return step.number, step.date

    def await_turn(self, trailer: str, changed: threading.Condition) -> None:
        """Return when it is the turn of the next recorded commit with this last line; at once where there is none."""
        later = (
            number for number, text in self._text.items() if number > self.done and text.endswith(f"\n{trailer}\n")
        )
        if number := next(later, 0):
            self._wait(number, changed)

    def _wait(self, number: int, changed: threading.Condition) -> None:
        seen, since = self.done, time.monotonic()
        while self.done + 1 != number:
            changed.wait(_LOOK_S)
            if self.done > seen:
                seen, since = self.done, time.monotonic()
            elif time.monotonic() - since > (_DIVERGED_S if self._diverged else _STUCK_S):
                raise LineageError(self.divergence)
