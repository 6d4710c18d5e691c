"""The clocks of a timed call: the judge's wall clock, and one that sees what a sandbox does outside of its calls."""

import contextlib
import os
import time
from pathlib import Path

from ksflow.evaluation.judge.sandboxed import Sandbox

_STOP_S = 5e-6  # CPU time of stopping an idle thread: 4 µs on an AMD EPYC (a virtual machine, 2026-11-29)
_REST_S, _STILL = 20e-6, 3  # how soon after an answer no thread runs, and in how many looks at its clock


class Clocks:
    """The clocks of one sandbox's calls, between which it is frozen.

    With one core the second clock is the CPU time since the last freeze. With several cores, where CPU time may exceed
    wall time, it is the wall time and all CPU time outside of the call: before the sandbox is thawed, and from the
    answer until it is frozen, which is at most the time that this took. If no thread runs any more soon after the
    answer, the cost of stopping an idle thread for each core is no part of it.
    """

    tree_s = 0.0  # CPU seconds of the latest call, all threads
    threads = 1  # number after the latest call, with several cores
    delay_s = 0.0  # for how long a thread waited for a core in the latest call, with several cores

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._clock_s = 0.0  # CPU time at the last freeze
        self._waited_s: dict[str, float] = {}  # thread -> seconds for which it has waited for a core, by then

    def start(self) -> None:
        """Freeze the sandbox, before its first timed call. Raises Failure."""
        self._sandbox.freeze()
        self._clock_s = self._sandbox.cpu_s()
        self._look_at_threads()

    def call(self, slots: bytes, timeout_s: float) -> tuple[float, float]:
        """Call the kernel and freeze the sandbox; return the seconds by both clocks. Raises Failure."""
        box, before_s = self._sandbox, self._clock_s
        thawed_s = box.cpu_s() if box.cores > 1 else 0.0
        wall_s = box.go(slots, timeout_s)
        answered_s, since = box.cpu_s() if box.cores > 1 else 0.0, time.perf_counter()
        idle = box.cores > 1 and self._comes_to_rest()
        box.freeze()
        passed_s = time.perf_counter() - since
        self._clock_s = box.cpu_s()
        self.tree_s = self._clock_s - before_s
        if box.cores == 1:
            return wall_s, self.tree_s
        self._look_at_threads()
        after_s = self._clock_s - answered_s - idle * _STOP_S * min(self.threads - 1, box.cores)
        return wall_s, wall_s + thawed_s - before_s + min(max(after_s, 0.0), passed_s)

    def _comes_to_rest(self) -> bool:
        """Return whether the CPU clock soon stands still, for several looks: no thread runs."""
        end, seen, still = time.perf_counter() + _REST_S, 0.0, 0
        while still < _STILL and time.perf_counter() < end:
            before, seen = seen, self._sandbox.cpu_s()
            still = still + 1 if seen == before else 0
        return still >= _STILL

    def _look_at_threads(self) -> None:
        """With several cores, count the threads, and find for how long one has waited for a core since the last look.

        More threads than cores wait for each other, which says nothing about other programs.
        """
        if self._sandbox.cores == 1:
            return
        before, waited, tasks = self._waited_s, dict[str, float](), list[str]()
        folder = Path(f"/proc/{self._sandbox.pid}/task")
        with contextlib.suppress(OSError):
            tasks = os.listdir(folder)
        for task in tasks:
            with contextlib.suppress(OSError, IndexError):
                waited[task] = int((folder / task / "schedstat").read_text(encoding="ascii").split()[1]) * 1e-9
        delays = [seconds - before.get(task, seconds) for task, seconds in waited.items()]
        self._waited_s, self.threads = waited, max(len(tasks), 1)
        self.delay_s = max(delays, default=0.0) if self.threads <= self._sandbox.cores + 1 else 0.0
