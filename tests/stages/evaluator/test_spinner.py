"""What keeps the sandboxes' core awake takes nothing from who works on it."""

import os
import signal
import subprocess
import sys
import time

from ksflow.evaluation.judge.spinner import IdleSpinner
from ksflow.evaluation.sandbox.kill_others import is_running
from ksflow.evaluation.sandbox.linux import cpu_s

_BUSY = "import os; os.sched_setaffinity(0, {%d})\nwhile True: pass"


def test_a_spinner_leaves_the_core_to_who_works_there_and_rests_where_told() -> None:
    core = max(os.sched_getaffinity(0))
    spinner = IdleSpinner()
    spinner.pin((core,))
    with subprocess.Popen([sys.executable, "-c", _BUSY % core], start_new_session=True) as worker:
        try:
            with spinner.keep_awake():
                while cpu_s(worker.pid) < 1:
                    time.sleep(0.05)
                # The worker's group of the scheduler is another one, so that priorities alone decide nothing.
                assert cpu_s(spinner.pid) < 0.2 * cpu_s(worker.pid)
                worker.kill()
                worker.wait()
                awake_s = cpu_s(spinner.pid)
                while cpu_s(spinner.pid) < awake_s + 0.1:
                    time.sleep(0.05)
                with spinner.keep_awake(False):
                    _until_it_stops(spinner)
                    at_rest_s = cpu_s(spinner.pid)
                    time.sleep(0.2)
                    assert cpu_s(spinner.pid) == at_rest_s
                while cpu_s(spinner.pid) < at_rest_s + 0.1:
                    time.sleep(0.05)
            with spinner.keep_awake(False):
                _until_it_stops(spinner)
            _until_it_stops(spinner)
        finally:
            worker.kill()
            os.kill(spinner.pid, signal.SIGKILL)
            os.waitpid(spinner.pid, 0)


def _until_it_stops(spinner: IdleSpinner) -> None:
    while is_running(spinner.pid):
        time.sleep(0.01)
