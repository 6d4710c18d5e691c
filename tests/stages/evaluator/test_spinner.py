"""What keeps the sandboxes' core awake takes nothing from who works on it."""

import os
import signal
import subprocess
import sys
import time

from ksflow.judge.spinner import IdleSpinner

_BUSY = "import os; os.sched_setaffinity(0, {%d})\nwhile True: pass"


def _cpu_s(pid: int) -> float:
    return time.clock_gettime((~pid << 3) | 2)


def test_a_spinner_leaves_the_core_to_who_works_there_and_rests_where_told() -> None:
    core = max(os.sched_getaffinity(0))
    spinner = IdleSpinner()
    spinner.pin(core)
    with subprocess.Popen([sys.executable, "-c", _BUSY % core], start_new_session=True) as worker:
        try:
            with spinner.spinning():
                while _cpu_s(worker.pid) < 1:
                    time.sleep(0.05)
                # The worker's group of the scheduler is another one, so that priorities alone decide nothing.
                assert _cpu_s(spinner.pid) < 0.2 * _cpu_s(worker.pid)
                worker.kill()
                worker.wait()
                awake_s = _cpu_s(spinner.pid)
                while _cpu_s(spinner.pid) < awake_s + 0.1:
                    time.sleep(0.05)
                with spinner.resting():
                    _settle(spinner)
                    at_rest_s = _cpu_s(spinner.pid)
                    time.sleep(0.2)
                    assert _cpu_s(spinner.pid) == at_rest_s
                while _cpu_s(spinner.pid) < at_rest_s + 0.1:
                    time.sleep(0.05)
            with spinner.resting():
                _settle(spinner)
            _settle(spinner)
        finally:
            worker.kill()
            os.kill(spinner.pid, signal.SIGKILL)
            os.waitpid(spinner.pid, 0)


def _settle(spinner: IdleSpinner) -> None:
    """Wait until it is stopped."""
    while True:
        with open(f"/proc/{spinner.pid}/stat") as stat:
            if stat.read().rpartition(")")[2].split()[0] == "T":
                return
        time.sleep(0.01)
