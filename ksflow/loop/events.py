"""What happens in a run, for whoever looks on: terminal, trackers, the event log. Nobody answers an event."""

from dataclasses import dataclass
from enum import StrEnum

from ksflow.records import Trial


class Activity(StrEnum):
    """What a thread of a run may be at."""

    SELECT = "select"
    DESIGN = "design"
    WRITE = "write"
    EVALUATE = "evaluate"
    DIGEST = "digest"
    CONFIRM = "confirm"


@dataclass(frozen=True)
class Began:
    """A step begins, of a trial where it is about one."""

    name: Activity
    trial: Trial | None = None


@dataclass(frozen=True)
class Checked:
    """The judge has answered about a kernel that is still being written."""

    trial: Trial
    name = "checked"


@dataclass(frozen=True)
class Judged:
    """A trial has its verdict, or there is no kernel to judge."""

    trial: Trial
    name = "done"


@dataclass(frozen=True)
class Notice:
    """A line for a person: an estimate, what became stale, why a plan, notes or a confirmation are missing."""

    name: str
    trial: None = None


@dataclass(frozen=True)
class Ending:
    """Ctrl-C was pressed: what is in flight is finished (`interrupt`), or left (`abandon`)."""

    name: str
    trial: None = None


Event = Began | Checked | Judged | Notice | Ending
