"""Display of a running run: a line per trial, a bar, and the event log."""

import textwrap
import threading
import time
from collections.abc import Collection
from typing import Any

import structlog
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from ksflow.errors import pluralize
from ksflow.loop.events import Activity, Ending, Event, Judged, Notice
from ksflow.loop.run import Run
from ksflow.records import Trial, Verdict
from ksflow.records.evidence import BUSY
from ksflow.report import words
from ksflow.report.headline import headline
from ksflow.report.words import STYLE, say

_LOG = structlog.get_logger("ksflow")
_DEVICE = (Activity.EVALUATE, Activity.CONFIRM)  # steps that never wait for a person
_OTHERS = tuple(step for step in Activity if step not in _DEVICE)
_LEAST, _PIPED = 24, 100  # columns of the description: least in a window, and without a window
_WIDE = 100  # window width in columns from which on a line shows the trial's base
_LEFT = len("1 h 05 min left ")
_NEXT = 7  # indent of the reason, on the line below
_REASON_LINES = 2
_SEVERAL = 3  # trials that a busy machine could not rank, from which on a person is told
_TOO_BUSY = "this machine is too busy to rank some kernels: end other programs on it, or go on and run again later"


class _Left(ProgressColumn):
    """The time left, which also decreases between events; empty once the estimate has passed."""

    def render(self, task: Task) -> Text:
        left = (task.fields.get("ends") or 0.0) - time.monotonic()
        return Text(f"{_time(left)} left" if left > 0 else "")


class Display:
    """Shows a run's progress: a line per trial, below them a bar with the best so far; writes the event log."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._newest = ""  # the newest notice; a repetition is not shown
        self._headed = False
        self._busy = 0  # trials that the machine was too busy to rank
        self._reasons: dict[str, tuple[str, int]] = {}  # reason -> the first trial with it, and how many have it
        self._lock = threading.Lock()
        columns = [BarColumn(16), _Left(), TextColumn("{task.description}", markup=False)]
        self._bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._bar.add_task("starting: the judge, then the seeds", total=1.0)

    def __enter__(self) -> "Display":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def __call__(self, event: Event, run: Run) -> None:
        if event == Ending("abandon"):  # the lock may be held by a thread that never ends
            self._tell(event, run)
            return
        with self._lock:
            self._tell(event, run)

    def _tell(self, event: Event, run: Run) -> None:
        _LOG.info(event.name, **_event(event.trial, run))
        match event:
            case Judged(trial):
                self._show(trial, run)
            case Ending("abandon"):
                self._notice(f"abandoned: {_doing(run) or 'nothing'}; the next run takes it up")
            case Ending():
                self._notice(_ending(run))
            case Notice(text) if text != self._newest:
                self._newest = text
                self._notice(text)
        if self._console.is_terminal:
            share = max(run.used_shares().values(), default=0.0)
            left, status = run.left_s(), _status(run, self._console.width - 18 - _LEFT)
            self._bar.update(self._task, completed=share, description=status, ends=left and time.monotonic() + left)

    def _notice(self, text: str) -> None:
        say(self._console, text, style="yellow")

    def _show(self, trial: Trial, run: Run) -> None:
        terminal = self._console.is_terminal
        wide = not terminal or self._console.width >= _WIDE
        if not self._headed:
            self._headed = True
            heading = _columns("trial", "verdict", "beside the best", "base", wide)
            self._console.print(Text(heading, "bold"), soft_wrap=True, no_wrap=True)
        base = trial.parents[0] if trial.parents else "seed"
        row = next(iter(trial.evaluation.evidence.against), None) if trial.evaluation else None
        gain = run.population.scale.ratio(trial.id, row.id) if row else None
        time = f"{words.format_us(run.population.time_us(trial) or trial.score_us)} µs" if trial.score_us else ""
        said = f"x{gain.ratio:.2f} over {row.id}" if row and gain else time
        unranked = trial.verdict == Verdict.ACCEPT and trial.evaluation and trial.evaluation.why_unranked
        verdict, style = (
            (f"{trial.verdict}, unranked", "yellow") if unranked else (trial.verdict, STYLE.get(trial.verdict, "red"))
        )
        line = Text(_columns(trial.id, verdict, said, base, wide))
        line.stylize(style, 7, 7 + len(verdict))
        room = self._console.width - line.cell_len if terminal else _PIPED
        line.append(words.describe_changes(trial, run.population.by_id, max(room, _LEAST)))
        if reason := self._reason(trial):
            if terminal:
                room = self._console.width - _NEXT
                parts = textwrap.wrap(reason, room, max_lines=_REASON_LINES, placeholder=" …", break_on_hyphens=False)
                line.append("".join(f"\n{' ' * _NEXT}{part}" for part in parts), "dim")
            else:
                line.append(f" | {reason}")
        if (best := run.population.leader) and best.id == trial.id:
            line.stylize("bold")
        self._console.print(line, soft_wrap=True, no_wrap=True)

    def _reason(self, trial: Trial) -> str:
        """Return why a trial has no rank; for a repeated reason the first such trial, and the count."""
        if not (reason := words.why_unranked(trial)):
            return ""
        if BUSY in reason:
            reason = reason.replace(f" {BUSY}", "")
            self._busy += 1
            if self._busy == _SEVERAL:
                self._notice(_TOO_BUSY)
        first, times = self._reasons.get(reason, (trial.id, 0))
        self._reasons[reason] = first, times + 1
        return f"as {first}, {times + 1} times so far" if times else reason


def _status(run: Run, width: int) -> str:
    best, most = run.population.leader, run.schedule.caps.get("evaluations")
    claimed = headline(run.population, run.baselines, best)
    tally = run.tally
    done = f"{tally.judged + tally.checks} of {most:g}" if most else pluralize(tally.judged, "experiment")
    parts = {
        "done": "the seeds first" if run.search_started is None else done,
        "best": f"best {words.format_us(run.population.time_us(best) or 0.0)} µs" if best else "",
        "claim": claimed.claim if claimed else "",
        "doing": _doing(run),
        "cost": run.transcript.total.dollars(),
    }
    for name in ("", "claim", "cost", "doing", "best"):
        parts.pop(name, None)
        text = " · ".join(part for part in parts.values() if part)
        if len(text) <= width:
            break
    return text


def _time(seconds: float) -> str:
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"


def _ending(run: Run) -> str:
    """Return what the first Ctrl-C does: finish current work, without waiting for people's answers or for a judge that
    can be stopped."""
    asking = [step for step, _ in tuple(run.doing.values()) if step not in _DEVICE]
    notices, judging, doing = [], _doing(run, _DEVICE), _doing(run, _OTHERS)
    if run.unanswered:
        noun = "answer: the question stays" if run.unanswered == 1 else "answers: the questions stay"
        notices.append(f"no longer waiting for {run.unanswered} {noun} in the inbox, the next run asks again")
        doing = doing if len(asking) > run.unanswered else ""
    if judging and run.judge_stopped:
        notices.append(f"stopped {judging}, which the next run judges")
        judging = ""
    if doing := ", ".join(filter(None, (judging, doing))) or ("" if notices else "what is at hand"):
        notices.append(f"finishing {doing}; Ctrl-C again abandons it (nothing written is lost)")
    return f"interrupted: {'; '.join(notices)}"


def _doing(run: Run, only: Collection[str] = ()) -> str:
    steps: dict[str, list[str]] = {}
    for step, trial in sorted(each for each in tuple(run.doing.values()) if not only or each[0] in only):
        steps.setdefault(step, []).append(trial)
    return ", ".join(" ".join([step, *filter(None, trials)]) for step, trials in steps.items())


def _event(trial: Trial | None, run: Run) -> dict[str, Any]:
    if trial is None:
        return {"round": run.tally.rounds + 1}
    evaluation = trial.evaluation
    broken = {"log": evaluation.evidence.log} if evaluation and evaluation.verdict is Verdict.HARNESS else {}
    return {
        **broken,
        "round": run.tally.rounds + 1,
        "trial": trial.id,
        "verdict": trial.verdict,
        "score_us": run.population.time_us(trial),
        "parents": trial.parents,
        "wall_s": trial.wall_s,
        "usd": trial.cost.usd,
    }


def _columns(name: str, verdict: str, versus: str, base: str, wide: bool) -> str:
    """Return the cells in front of the description; in a narrow window without the base."""
    base_cell = f"{base:5}  " if wide else ""
    return f"{name:5}  {verdict:17.17}  {versus:16}  {base_cell}{'tried' if name == 'trial' else ''}"
