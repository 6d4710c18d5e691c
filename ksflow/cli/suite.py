"""The verb `suite`: many problems, one after another or side by side, under one budget and in one table.

    python -m ksflow suite problem=kernelbench problem.root=~/KernelBench problem.level=1 problem.id='range(1,101)'
    python -m ksflow suite suite=kernelbench_l1 problem.root=~/KernelBench llm=gemini suite.usd=20
    python -m ksflow -m problem=softmax,fp8_gemm loop.minutes=20

Words with several values, written as Hydra's sweeps are, make a member for each; other words hold for all. Each is a
run in a process of its own, so one that fails stops no other; all end when this process ends, however it does. What is
finished is kept below `runs/suites/NAME`, and the same command goes on with the rest.
"""

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from ksflow import home, report
from ksflow.cli.task import recorded_run
from ksflow.config import command_line, compose
from ksflow.config.members import FLAGS, Suite, SuiteMember, members
from ksflow.config.parts import stages
from ksflow.errors import ConfigError, LineageError, NothingTried
from ksflow.evaluation.processes import ending
from ksflow.evaluation.processes.child_environment import end_with_this_process
from ksflow.evaluation.processes.deadline import locked_within
from ksflow.lineage import Lineage
from ksflow.records import Json, Origin, Problem
from ksflow.report import scores
from ksflow.report.page import RunFacts, as_html

_LOOK_S = 0.1
_OUTPUT = "output.txt"
_WHY = 300  # characters of a reason


def suite(words: list[str], overrides: list[str]) -> int:
    """Run the members that are not finished, end with a table; 1 where one failed."""
    if words:
        raise ConfigError(f"suite takes key=value arguments, not {words[0]!r}")
    if not overrides:
        raise ConfigError("suite needs members: suite=NAME, or problem=softmax,fp8_gemm (`ksflow suite --help`)")
    directory, typed = command_line.config_dir([word for word in overrides if word not in FLAGS])
    command_line.no_flags(typed)
    parts = [f"--config-dir={directory}"] if directory else []
    own = [word for word in typed if word.startswith(("suite=", "suite."))]
    cfg = compose.compose([*parts, *own], "suite")
    plan: Suite = compose.build(cfg.suite)
    runs = members(plan, [*parts, *(word for word in typed if word not in own)])
    if plan.finalists and len({member.variant for member in runs}) < 2:
        raise ConfigError(f"suite={plan.name} compares variants: name some, such as language=cuda,triton,python")
    _possible(plan, runs)
    folder = Path("runs", "suites", command_line.PLAIN.sub("_", plan.name))
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("ab") as lock:  # two processes would spend the budget twice
        if not locked_within(lock.fileno(), 0):
            raise ConfigError(f"another process works in {folder}; wait for it, or give suite.name=ANOTHER")
        return Session(plan, runs, folder, report.console(stderr=True)).run()


def _possible(plan: Suite, runs: Sequence[SuiteMember]) -> None:
    """What would fail every member is said once: a mistyped word, a missing folder, a missing key. ConfigError."""
    kinds = {tuple(word for word in member.words if "." not in word.partition("=")[0]): member for member in runs[::-1]}
    cfg = [compose.compose(list(member.words)) for member in kinds.values()][-1]
    for key in plan.needs:
        folder = next((word.partition("=")[2] for word in runs[0].words if word.startswith(f"{key}=")), "")
        if not folder or not Path(folder).expanduser().is_dir():
            raise ConfigError(f"suite={plan.name} needs {key}=FOLDER{f', and {folder} is none' if folder else ''}")
    if len({member.variant for member in runs}) == 1:
        stages(cfg)


class Session:
    """One call of the verb."""

    def __init__(self, plan: Suite, members: list[SuiteMember], folder: Path, console: Console) -> None:
        self.plan, self.members, self.folder, self.console = plan, members, folder, console
        self.started = time.monotonic()
        self._stopped = False
        for member in members:
            member.read_row(folder)
            if member.row.get("state") == "begun":
                member.row["usd"] = _paid(member)
                member.row["wall_s"] = round(member.row.get("wall_s", 0.0) + self._lasted(member), 1)

    def run(self) -> int:
        """Until all are through, the budget is spent or the user has had enough."""
        usd, minutes = self.plan.usd, self.plan.minutes
        caps = [f"${usd:g}"] if usd is not None else []
        caps += [f"{minutes:g} minutes"] if minutes is not None else []
        whole = f"{' and '.join(caps) or 'no budget'} for all together"
        count = len(self.members)
        report.say(self.console, f"suite of {count}: {whole}; kept in {self.folder}, the same command goes on")
        waiting = [member for member in self.members if not member.is_finished] or self._finalists()
        running: list[SuiteMember] = []
        columns = [BarColumn(20), TextColumn("{task.description}", markup=False)]
        with (
            Progress(*columns, console=self.console, transient=True, disable=not self.console.is_terminal) as bar,
            self._interruptible(),
        ):
            task = bar.add_task("", total=count)
            while running or (waiting and self._go_on()):
                self._turn(waiting, running)
                done = sum(member.is_finished for member in self.members)
                keys = ", ".join(member.key for member in running)
                bar.update(task, completed=done, description=f"{done} of {count}, now {keys}")
                if not (running or waiting or self._stopped):
                    waiting += self._finalists()
        return self._end(waiting)

    def _compared(self) -> dict[str, list[SuiteMember]]:
        """Of a suite that compares variants the members that have figures, by their problems."""
        groups: dict[str, list[SuiteMember]] = {}
        for member in self.members if self.plan.finalists else ():
            if member.row.get("figures"):
                groups.setdefault(member.row["problem"], []).append(member)
        return groups

    def _finalists(self) -> list[SuiteMember]:
        """The fastest variants of each problem, of those with a new kernel; none where some have gone on already."""
        finalists: list[SuiteMember] = []
        for group in self._compared().values():
            right = [member for member in group if member.row["figures"]["right"]]
            if not any(member.final for member in right):
                finalists += sorted(right, key=lambda member: float(member.row["figures"]["us"]))[: self.plan.finalists]
        for member in finalists:
            member.final = True
            report.say(self.console, f"{member.key} goes on for as much again")
        return finalists

    def _turn(self, waiting: list[SuiteMember], running: list[SuiteMember]) -> None:
        while waiting and len(running) < self.plan.at_once and self._go_on():
            member = waiting[0]
            self._start(member, waiting, running)
            if waiting.pop(0).process:
                running.append(member)
        time.sleep(_LOOK_S)
        for member in running:
            os.utime(self.folder / member.folder / _OUTPUT)  # until when it ran, should this process be killed
        for member in [member for member in running if member.process and member.process.poll() is not None]:
            running.remove(member)
            self._finish(member)

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Meanwhile, what asks to end goes to the members in flight: once, they end as usual; twice, abandoned."""

        def interrupt(_: int) -> None:
            if self._stopped:
                raise KeyboardInterrupt
            self._stopped = True
            self.console.print("finishing what is at hand; once more abandons it", style="yellow")
            for process in self._processes():
                process.terminate()

        try:
            with ending.handle_signals(interrupt):
                yield
        finally:
            for process in self._processes():
                process.send_signal(signal.SIGINT)

    def _processes(self) -> "list[subprocess.Popen[bytes]]":
        return [member.process for member in self.members if member.process]

    def _go_on(self) -> bool:
        return not self._stopped and self._usd() != 0.0 and self._minutes() != 0.0

    def _usd(self) -> float | None:
        """What is left to give away: neither paid, also by a running member before it was begun anew, nor given."""
        if self.plan.usd is None:
            return None
        spent = sum(float(member.row.get("usd", 0.0)) for member in self.members)
        reserved = sum(member.usd for member in self.members if member.process)
        return max(self.plan.usd - spent - reserved, 0.0)

    def _minutes(self) -> float | None:
        if self.plan.minutes is None:
            return None
        return max(self.plan.minutes - (time.monotonic() - self.started) / 60, 0.0)

    def _shares(self, member: SuiteMember, waiting: Sequence[SuiteMember], running: Sequence[SuiteMember]) -> list[str]:
        """An even share for each that has not begun, no more than its own words allow; of the half of the budget that
        variants have before the finals, and finalists there, the same for all."""
        loop, plan = compose.build(compose.compose(list(member.words)).loop), self.plan
        alike = sum(other.final or not member.final for other in self.members)
        shares = []
        if (usd := self._usd()) is not None and plan.usd is not None:
            even = plan.usd / 2 / alike if plan.finalists else usd
            member.usd = min(usd / len(waiting), even, loop.caps.get("usd", usd))
            shares.append(f"loop.usd={member.usd:.6f}")
        if (minutes := self._minutes()) is not None and plan.minutes is not None:
            turns, all_turns = (-(-count // plan.at_once) for count in (len(waiting) + len(running), alike))
            even = plan.minutes / 2 / all_turns if plan.finalists else minutes
            shares.append(f"loop.minutes={min(minutes / turns, even, loop.caps.get('minutes', minutes)):.4f}")
        if member.row and "evaluations" in loop.caps:
            left = int(loop.caps["evaluations"]) * (2 if member.final else 1)
            with suppress(LineageError), _opened(member) as (_, lineage):  # what an earlier call has judged
                left -= sum(t.origin is not Origin.SEED and t.evaluation is not None for t in lineage.all_trials())
            shares.append(f"loop.evaluations={max(left, 0)}")
        return shares

    def _start(self, member: SuiteMember, waiting: Sequence[SuiteMember], running: Sequence[SuiteMember]) -> None:
        folder = self.folder / member.folder
        folder.mkdir(parents=True, exist_ok=True)
        try:
            shares = self._shares(member, waiting, running)
        except (ConfigError, LineageError) as error:
            self._tell(member, {**member.row, "state": "failed", "why": str(error)[:_WHY]})
            return
        (folder / "summary.json").unlink(missing_ok=True)
        self._keep(member, {**member.row, "state": "begun", "begun": time.time()})
        command = [sys.executable, "-m", "ksflow", *member.words, *shares, f"hydra.run.dir='{folder}'"]
        with (folder / _OUTPUT).open("wb") as out:
            member.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                process_group=0,  # where no Ctrl-C comes that is not sent
                preexec_fn=end_with_this_process(signal.SIGTERM),
            )

    def _finish(self, member: SuiteMember) -> None:
        assert member.process is not None
        code, member.process, member.usd = member.process.returncode, None, 0.0
        folder = self.folder / member.folder
        file = folder / "summary.json"
        earlier = {name: member.row.get(name, 0.0) for name in ("usd", "wall_s")}
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        row: Json = json.loads(text) if text else {"usd": _paid(member), "wall_s": self._lasted(member)}
        row["wall_s"] = round(row["wall_s"] + earlier["wall_s"], 1)
        judged = code in (0, NothingTried.status) and text
        state = "interrupted" if self._stopped else "finished" if judged else "failed"
        if code and state != "interrupted":
            lines = (folder / _OUTPUT).read_text("utf-8", "replace").strip().splitlines() or [f"exit status {code}"]
            row["why"] = lines[-1].removeprefix("ksflow: ")[:_WHY]
        self._tell(member, {**row, "state": state})

    def _lasted(self, member: SuiteMember) -> float:
        """For how many seconds it ran when it was begun last."""
        output = self.folder / member.folder / _OUTPUT
        last = output.stat().st_mtime if output.exists() else 0.0
        return max(last - float(member.row.get("begun", last)), 0.0)

    def _tell(self, member: SuiteMember, row: Json) -> None:
        self._keep(member, row)
        report.say(self.console, scores.summary(member.row))

    def _keep(self, member: SuiteMember, row: Json) -> None:
        member.row = {**row, **member.known}
        home.write(self.folder / member.folder / "row.json", json.dumps(member.row, indent=1) + "\n")

    def _end(self, waiting: Sequence[SuiteMember]) -> int:
        left = {"state": "left", "why": "interrupted" if self._stopped else "the suite's budget is used up"}
        rows = [
            {**member.known, **({**left, "usd": member.row.get("usd", 0.0)} if member in waiting else member.row)}
            for member in self.members
        ]
        if self.plan.finalists:
            rows.sort(key=lambda row: row.get("figures", {}).get("us") or math.inf)
        file = scores.write_report(self.folder, self.plan.name, rows)
        scores.show(report.console(), rows, self.plan.name if self.plan.finalists else "suite")
        report.say(self.console, *(f"written to {written}" for written in (file, *self._pages())))
        if self._stopped:
            raise KeyboardInterrupt
        return int(any(row["state"] == "failed" for row in rows))

    def _pages(self) -> Iterator[Path]:
        """Of a suite that compares variants a page for each problem, with the runs side by side."""
        for name, group in self._compared().items():
            with ExitStack() as stack:
                opened = [stack.enter_context(_opened(member)) for member in group]
                runs = [RunFacts(lineage, problem).read() for problem, lineage in opened]
            home.write(self.folder / f"{name}.html", as_html(runs))
            yield self.folder / f"{name}.html"


def _paid(member: SuiteMember) -> float:
    """What models have cost by the calls on record: of a member that left no summary."""
    with suppress(ConfigError, LineageError), _opened(member) as (_, lineage):
        return lineage.total_cost().usd
    return 0.0


def _opened(member: SuiteMember) -> AbstractContextManager[tuple[Problem, Lineage]]:
    return recorded_run(compose.compose(list(member.words)))
