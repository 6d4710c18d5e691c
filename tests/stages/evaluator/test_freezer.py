"""A box that is frozen does nothing, whatever it has arranged for; a box that does more than its turn pays for it."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from ksflow.evaluation.judge.freezer import Freezer, GroupFreezer, SignalFreezer
from ksflow.evaluation.sandbox import cgroup, linux

BUSY = """
import signal, sys, threading
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
def burn():
    while True:
        pass
def rest():
    while True:
        threading.Event().wait(0.001)
for work in (burn, rest, rest, rest):
    threading.Thread(target=work, daemon=True).start()
print("ready", flush=True)
burn()
"""
_PATIENCE_S = 60.0
_HANDLING_S = 1e-3
"""For timers that expire: the kernel's own time."""


def _until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + _PATIENCE_S
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.0005)


@pytest.fixture
def busy() -> Iterator[int]:
    """A process with threads that run, threads that wait for a moment, and a timer."""
    with subprocess.Popen([sys.executable, "-S", "-c", BUSY], stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline()
        yield process.pid
        process.kill()


@pytest.fixture(params=["group", "signals"])
def freezer(busy: int, request: pytest.FixtureRequest) -> Iterator[Freezer]:
    parents = cgroup.parents() if request.param == "group" else None
    group = cgroup.Group(parents, 1 << 30, 64) if parents else None
    folder = group.make_freezable(busy) if group else None
    if request.param == "group" and folder is None:
        pytest.skip("no control group (v2) can be made here")
    made = GroupFreezer(folder) if folder else SignalFreezer(busy)
    yield made
    made.close()
    with contextlib.suppress(ProcessLookupError):
        os.kill(busy, 9)
    if group:
        group.remove()
        assert folder is not None
        assert not folder.exists()


def test_a_frozen_process_does_nothing_until_it_is_resumed(busy: int, freezer: Freezer) -> None:
    for _ in range(3):
        freezer.stop()
        _until(freezer.is_stopped)
        stood_s = linux.cpu_s(busy)
        end = time.monotonic() + 0.05
        while time.monotonic() < end:
            assert freezer.is_stopped()
        assert linux.cpu_s(busy) - stood_s < _HANDLING_S
        freezer.resume()
        stood_s = linux.cpu_s(busy)
        _until(lambda stood_s=stood_s: linux.cpu_s(busy) - stood_s > _HANDLING_S)  # type: ignore[misc]


def test_a_frozen_process_can_be_killed(busy: int, freezer: Freezer) -> None:
    freezer.stop()
    _until(freezer.is_stopped)
    os.kill(busy, 9)
    assert os.waitpid(busy, 0)[0] == busy
    assert freezer.is_stopped()
