"""Child processes that are started once, asked over pipes, and restarted when they die."""

import os
import subprocess
import sys
import time
import weakref
from collections.abc import Mapping
from contextlib import ExitStack

from ksflow.evaluation.processes import scratch
from ksflow.evaluation.processes.child_environment import child_environment
from ksflow.evaluation.processes.core_pinning import CORES
from ksflow.evaluation.processes.deadline import end_process
from ksflow.evaluation.processes.wire import Closed, Message, receive, send

ALL_CORES = " ".join(map(str, sorted(os.sched_getaffinity(0))))  # of this process, before it moves off any
_TAIL = 2000


class ServerProcess:
    """One process of ours. It ends with this object, and with this process however that ends."""

    ends_within_s = 2.0  # else it is killed

    def __init__(self, module: str, extra_environment: Mapping[str, str], *arguments: str) -> None:
        self._command = [sys.executable, "-P", "-m", module, *arguments]
        self._environment = {**child_environment(extra_environment), CORES: ALL_CORES}
        self._ids = 0
        self._start()

    def _start(self) -> None:
        self._words = os.memfd_create("errors", os.MFD_CLOEXEC)
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._words,
            bufsize=0,
            env=self._environment,
            start_new_session=True,
            cwd="/",
        )
        assert self._process.stdin
        assert self._process.stdout
        self._input, self._output = self._process.stdin.fileno(), self._process.stdout.fileno()
        self._end = weakref.finalize(self, _end, self._process, self._words, self.ends_within_s)

    def post(self, message: Message) -> None:
        """Send a message without an answer. A process that takes no messages is ended; a dead one is ignored."""
        try:
            send(self._input, message)
        except Closed:
            self.close()

    def ask(self, message: Message, timeout_s: float) -> Message:
        """Send a message, and return the answer. Raises Closed; the process is then dead, `restart` starts another."""
        self._ids += 1
        until = time.monotonic() + timeout_s
        with ExitStack() as failing:
            failing.callback(self.close)  # half a frame may be left in the pipe, so this process cannot be asked again
            try:
                send(self._input, {**message, "id": self._ids})
                while (answer := receive(self._output, until - time.monotonic())).get("id") != self._ids:
                    pass
            except Closed as error:
                start = max(os.fstat(self._words).st_size - _TAIL, 0)
                words = os.pread(self._words, _TAIL, start).decode("utf-8", "replace")
                raise Closed(f"{error}\n{words}") from error
            failing.pop_all()
        return answer

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        return self._process.pid

    def restart(self) -> None:
        """End the process, and start another."""
        self.close()
        self._start()

    def kill(self) -> None:
        """Kill the process at once. A thread that is in `ask` gets Closed."""
        self._process.kill()

    def close(self) -> None:
        self._end()


def _end(process: "subprocess.Popen[bytes]", words: int, patience_s: float) -> None:
    end_process(process, patience_s)
    os.close(words)
    scratch.remove_abandoned()
