"""What a person sees while a run lasts: a line per trial, a bar, and the run's event log."""

import time
from typing import Any

import structlog
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

from ksflow.records import Trial, Verdict
from ksflow.report import headline
from ksflow.report.words import STYLE, what
from ksflow.session.session import Session

_LOG = structlog.get_logger("ksflow")
_NOTICES = ("no plan", "no notes", "stale", "not confirmed", "estimate")
"""Steps that are said in a line of their own begin so."""
_UNBOUNDED = 1000
_SHORTEST = 16
"""Letters of what an experiment is about, in a window however narrow."""


class Display:
    """Progress of a run: a line per trial, and below them a bar with the best so far. Also the run's event log."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._said = ""
        """The newest notice; the same again is not said again."""
        columns = [BarColumn(20), TextColumn("{task.description}", markup=False)]
        self._bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._bar.add_task("starting", total=1.0)

    def __enter__(self) -> "Display":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def __call__(self, what: str, trial: Trial | None, session: Session) -> None:
        """Show one step."""
        _LOG.info(what, **_event(trial, session))
        if what == "done" and trial:
            width = self._console.width if self._console.is_terminal else _UNBOUNDED
            self._console.print(_line(trial, session, width), soft_wrap=True)
        elif what == "interrupt":
            self._console.print(
                f"finishing {_doing(session) or 'what is at hand'}; Ctrl-C again abandons it (nothing written is lost)",
                style="yellow",
                markup=False,
                soft_wrap=True,
            )
        elif what == "abandon":
            self._console.print(
                f"abandoned: {_doing(session) or 'nothing'}; the next run takes it up",
                style="yellow",
                markup=False,
                soft_wrap=True,
            )
        elif what.startswith(_NOTICES) and what != self._said:
            self._said = what
            self._console.print(what, style="yellow", markup=False, soft_wrap=True)
        share = max(session.used().values(), default=0.0)
        self._bar.update(self._task, completed=share, description=self._status(session, share))

    def _status(self, session: Session, share: float) -> str:
        best = session.known.best
        elapsed = time.monotonic() - session.started
        left = f"{elapsed / share - elapsed:.0f} s left" if share > 0.05 else ""
        parts = [
            f"round {session.rounds}",
            _doing(session),
            f"best {best.score_us:.4g} µs {headline.claim(best, session.baselines)}".strip() if best else "",
            left,
            f"${session.lab.transcript.total.usd:.2f}",
        ]
        return " · ".join(part for part in parts if part)


def _doing(session: Session) -> str:
    """What is in flight, such as `select, write 00031 00032`."""
    steps: dict[str, list[str]] = {}
    for step, trial in sorted(session.doing.values()):
        steps.setdefault(step, []).append(trial)
    return ", ".join(" ".join([step, *filter(None, trials)]) for step, trials in steps.items())


def _event(trial: Trial | None, session: Session) -> dict[str, Any]:
    if trial is None:
        return {"round": session.rounds + 1}
    found = trial.evaluation
    broken = {"log": found.evidence.log} if found and found.verdict is Verdict.HARNESS else {}
    return {
        **broken,
        "round": session.rounds + 1,
        "trial": trial.id,
        "verdict": trial.verdict,
        "score_us": trial.score_us,
        "parents": trial.parents,
        "wall_s": trial.wall_s,
        "usd": trial.cost.usd,
    }


def _line(trial: Trial, session: Session, width: int) -> Text:
    best = session.known.best
    score = f"{trial.score_us:9.4g} µs  {_beside(trial):18}" if trial.score_us else " " * 32
    base = f"<- {trial.parents[0]}" if trial.parents else "seed    "
    text = Text.assemble(
        (f"{trial.id} ", "bold" if best and best.id == trial.id else ""),
        (f"{trial.verdict:17.17}", STYLE.get(trial.verdict, "red")),
        f"{score}  {base}  ",
    )
    return text.append(what(trial, min(max(width - len(text), _SHORTEST), 100)))


def _beside(trial: Trial) -> str:
    """How it did beside the kernel that was the best when it was judged."""
    row = next(iter(trial.evaluation.evidence.against), None) if trial.evaluation else None
    return f"x{row.speedup:.2f} over {row.id}" if row else ""
