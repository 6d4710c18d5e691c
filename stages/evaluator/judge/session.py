"""A request -> a verdict with its evidence. One box to check in, one per contestant to time in."""

import contextlib
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from ksflow.stages.evaluator.judge import statistics
from ksflow.stages.evaluator.judge.box import Box, Failure, Room, Start
from ksflow.stages.evaluator.judge.check import SLOTS, Checker, Rejected
from ksflow.stages.evaluator.judge.overhead import Overhead
from ksflow.stages.evaluator.judge.suite import Item, Source, Suite, room
from ksflow.stages.evaluator.judge.timing import Contestant, Race, row

Json = dict[str, Any]


@dataclass(frozen=True)
class Host:
    """Where boxes come from and where they run."""

    light: socket.socket
    torch: socket.socket
    box_core: int | None
    level: str

    def start(self, kernel: Json, limits: Json) -> Start:
        """How to start a box for this kernel."""
        native = kernel["language"] == "cpp"
        return Start(
            zygote=self.light if native else self.torch,
            language=kernel["language"],
            files={} if native else kernel["files"],
            artefact=kernel.get("artefact", ""),
            memory_mb=limits["memory_mb"],
            cpu_s=int(limits["check_s"] + limits["time_s"]) + 10,
            core=self.box_core,
            level=self.level,
        )


class Judgement:
    """One kernel's way to its verdict. What was found so far is evidence, however it ends."""

    def __init__(self, host: Host, source: Source, overhead: Overhead, request: Json) -> None:
        self.host = host
        self.source = source
        self.overhead = overhead
        self.kernel: Json = request["kernel"]
        self.against: list[Json] = request["against"]
        self.limits: Json = source.problem["limits"]
        self.at = ""
        self.evidence: Json = {}
        self.timings: list[Json] = []

    def run(self) -> Json:
        """The verdict as the evaluator gets it."""
        watch = time.monotonic()
        suite = self.source.take()
        self.evidence["spent_s"] = {"prepare": round(time.monotonic() - watch, 3)}
        try:
            if suite.tests:
                self._check(suite.tests)
            self._time(suite)
            verdict, reason = "accept", ""
        except Rejected as rejected:
            verdict, reason = rejected.verdict, rejected.reason
            self.evidence |= rejected.evidence
        timings = self.timings if verdict == "accept" else []
        return {"verdict": verdict, "reason": reason, "timings": timings, "evidence": self.evidence}

    def _check(self, items: list[Item]) -> None:
        with self._candidate("check", room(items, SLOTS)) as box:
            checker = Checker(box, self.source.reference, self.limits["check_s"])
            for item in items:
                self.at = item.name
                checker.run(item)
        self.evidence["checked"] = checker.rows
        if self.source.reference.upstream is not None:
            self.evidence["upstream"] = checker.upstream or "pass"

    def _time(self, suite: Suite) -> None:
        deadline = time.monotonic() + self.limits["time_s"]
        space = room(suite.benchmarks)
        ratios: dict[str, list[torch.Tensor]] = {}
        speedups: dict[str, list[float]] = {}
        charged: list[float] = []
        with contextlib.ExitStack() as stack:
            own = stack.enter_context(self._candidate("time", space))
            others = self._opponents(stack, space)
            for item in suite.benchmarks:
                self.at = item.name
                boxes = {"": own, **others}
                racers = [Contestant(name, box, item, self.overhead, deadline) for name, box in boxes.items()]
                race = Race(racers, partial(self.source.fresh, item))
                race.run()
                for name, reason in race.dropped.items():
                    self._skip(name, reason)
                    others.pop(name)
                self.timings.append(row(race.racing[0]))
                charged.append(statistics.middle(race.racing[0].samples.charged))
                _compare(race.racing, ratios, speedups)
        self.evidence["sampled"] = [item.name for item in suite.benchmarks if item.sampled]
        self.evidence["charged_us"] = [round(value, 1) for value in charged]
        self.evidence["overhead_us"] = round(self.overhead.seconds(1) * 1e6, 1)
        self.evidence["against"] = [_ratio(name, speedups[name], ratios[name]) for name in others]

    @contextlib.contextmanager
    def _candidate(self, phase: str, space: Room) -> Iterator[Box]:
        """The candidate's box. Whatever the box does wrong inside is the candidate's verdict."""
        limit = self.limits[f"{phase}_s"]
        started = time.monotonic()
        with Box(self.host.start(self.kernel, self.limits), space) as box:
            try:
                self.at = "import"
                box.ready(limit)
                yield box
            except Failure as failure:
                raise _blame(failure, phase, self.at, limit) from failure
            finally:
                box.close()
                self.evidence["spent_s"][phase] = round(time.monotonic() - started, 3)
                if text := box.log.text():
                    self.evidence["log"] = text

    def _opponents(self, stack: contextlib.ExitStack, space: Room) -> dict[str, Box]:
        boxes = {}
        for kernel in self.against:
            box = stack.enter_context(Box(self.host.start(kernel, self.limits), space))
            try:
                box.ready(self.limits["check_s"])
                boxes[kernel["id"]] = box
            except Failure as failure:
                self._skip(kernel["id"], failure.text)
        return boxes

    def _skip(self, name: str, reason: str) -> None:
        self.evidence.setdefault("skipped", {})[name] = reason.splitlines()[0][:300]


def _blame(failure: Failure, phase: str, at: str, limit: float) -> Rejected:
    first = (failure.text.splitlines() or [""])[0]
    evidence = {"phase": "import" if at == "import" else phase, "at": at, "error": failure.text}
    match failure.kind:
        case "wrong":
            return Rejected("reject-incorrect", f"{at}: {first}", evidence)
        case "timeout":
            where = "import" if at == "import" else f"{phase}, at {at}"
            return Rejected("contained-timeout", f"{where}: {first} ({limit:g} s)", evidence)
        case "harness":
            return Rejected("harness-error", first, evidence)
    return Rejected("contained-crash", f"{at}: {first}", evidence)


def _compare(racing: list[Contestant], ratios: dict[str, list[torch.Tensor]], speedups: dict[str, list[float]]) -> None:
    own, *others = racing
    generator = torch.Generator().manual_seed(0)
    for other in others:
        time_of = {c: c.samples.statistic()[0] for c in (own, other)}
        speedups.setdefault(other.name, []).append(time_of[other] / time_of[own])
        theirs, ours = ((c.samples.wall, c.samples.cpu) for c in (other, own))
        logs = statistics.ratio_logs(theirs, ours, generator)
        ratios.setdefault(other.name, []).append(logs)


def _ratio(name: str, speedups: list[float], logs: list[torch.Tensor]) -> Json:
    speedup = float(torch.tensor(speedups, dtype=torch.float64).log().mean().exp())
    low, high = statistics.interval(logs)
    return {
        "id": name,
        "speedup": round(speedup, 4),
        "low": round(min(low, speedup), 4),
        "high": round(max(high, speedup), 4),
    }
