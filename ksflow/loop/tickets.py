"""Questions to the judge that are answered later, each in a thread of its own."""

import itertools
import textwrap
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from ksflow.errors import ConfigError, KsflowError
from ksflow.loop.queue import ThreadJob
from ksflow.records import Trial

_MOST_WAITING = 32  # questions to the judge that may be unanswered at a time


@dataclass
class Ticket:
    """A question to the judge, and what became of it. `over` is set when it is answered."""

    name: str
    about: str
    asked: float = field(default_factory=time.monotonic)
    over: threading.Event = field(default_factory=threading.Event)
    trial: Trial | None = None
    error: str = ""
    ended: float = 0.0


class Tickets:
    """The questions that were asked. Any number of threads may use it."""

    def __init__(self) -> None:
        self._tickets: dict[str, Ticket] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    def ask(self, name: str, about: str, answer: Callable[[str], Trial | None]) -> str:
        """Have `answer` called in a thread with the ticket's name, which is returned; an empty one gets a number."""
        with self._lock:
            ticket = Ticket(name or f"e{next(self._numbers)}", about)
            self._tickets[ticket.name] = ticket

        def work() -> None:
            ticket.trial = answer(ticket.name)

        def over(job: ThreadJob) -> None:
            own = f"an error of ksflow's own, {type(job.error).__name__}" if job.error else "nothing was judged"
            ticket.error = "" if ticket.trial else str(job.error) if isinstance(job.error, KsflowError) else own
            ticket.ended = time.monotonic()
            ticket.over.set()

        ThreadJob(work, over)
        return ticket.name

    def find(self, name: str) -> Ticket:
        """The ticket of that name. ConfigError where there is none."""
        with self._lock:
            if ticket := self._tickets.get(name):
                return ticket
            known = ", ".join(self._tickets) or "none"
        raise ConfigError(f"no ticket {name!r}; tickets: {textwrap.shorten(known, 400)}")

    def check_room(self) -> None:
        """Raise ConfigError where so many questions wait for an answer that no other may be asked."""
        with self._lock:
            if sum(not ticket.over.is_set() for ticket in self._tickets.values()) >= _MOST_WAITING:
                raise ConfigError(f"{_MOST_WAITING} questions wait for the judge already: ask for their results first")

    def wait(self) -> None:
        """Wait until all that were asked by now are answered."""
        with self._lock:
            asked = tuple(self._tickets.values())
        for ticket in asked:
            ticket.over.wait()
