"""`python -m ksflow worker FOLDER`: judges the jobs in a folder. Needs Python, torch and the folder; no network.

The command and its processes; what one of them does is in `worker_loop`. Standard library only: the
judge's processes import torch.
"""

import contextlib
import os
import re
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

from ksflow.errors import ConfigError, boolean
from ksflow.processes import ending
from ksflow.remote.job_store import JobStore, folder_path
from ksflow.remote.worker_loop import RESTART, Options, Worker, say
from ksflow.sandbox.levels import LOWEST_FLOOR

_USAGE = (
    "python -m ksflow worker FOLDER [target=NAME] [once=true] [devices=0,1] [idle_minutes=N] [profile=true] "
    "[sanitize=false] [isolation_floor=LEVEL]"
)


def main(words: list[str]) -> int:
    """The verb `worker`; the exit code. ConfigError."""
    folder, options = _arguments(words)
    environment = dict(os.environ)
    try:
        spool = JobStore(folder)
        spool.make()
        alone = len(options.devices) == 1
        status = _serve(spool, options, options.devices[0]) if alone else _fleet(spool, options)
    except OSError as error:
        raise ConfigError(f"the folder {folder} cannot be used: {error}") from error
    if status == RESTART:
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)
    return status


def _serve(spool: JobStore, options: Options, device: str, parent: int = 0) -> int:
    """One worker in this process. It ends after the job at hand; asked twice at once (KeyboardInterrupt)."""
    with tempfile.TemporaryDirectory(prefix="ksflow-worker-") as references:
        worker = Worker(spool, options, Path(references), device)
        worker.parent = parent

        def asked(_: int) -> None:
            if worker.stop:
                return worker.abandon()
            worker.stop = True
            say("ends after the job at hand; Ctrl-C again abandons it")

        with ending.handled(asked):
            return worker.run()


def _fleet(spool: JobStore, options: Options) -> int:
    """A process for each device. Signals are passed on; without this process they end after the job at hand."""
    parent = os.getpid()
    pids: list[int] = []
    for device in options.devices:
        pid = os.fork()
        if pid == 0:
            os.setpgid(0, 0)  # else Ctrl-C would reach it twice
            os._exit(_guarded(lambda device=device: _serve(spool, options, device, parent)))  # type: ignore[misc]
        pids.append(pid)

    def forward(number: int) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    with ending.handled(forward):
        statuses = [abs(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])) for pid in pids]
    return RESTART if RESTART in statuses else max(statuses)


def _guarded(work: Callable[[], int]) -> int:
    """The entry of a forked process: its exit code, whatever happens."""
    try:
        return work()
    except KeyboardInterrupt:
        return 130
    except (ConfigError, OSError) as error:
        say(str(error))
        return 2
    except BaseException:  # a fork must never go on as its parent  # noqa: BLE001
        traceback.print_exc()
        return 1


def _arguments(words: list[str]) -> tuple[Path, Options]:
    if not words or "=" in words[0].rpartition("/")[2]:
        raise ConfigError(f"which folder? {_USAGE}")
    folder = folder_path(words[0]).resolve()
    if not folder.is_dir():
        raise ConfigError(f"no folder {folder}: make it, or name the one of evaluator.folder; {_USAGE}")
    settings = dict(word.partition("=")[::2] for word in words[1:])
    once, profile, sanitize = (
        boolean(name, settings.pop(name, usual))
        for name, usual in (("once", "false"), ("profile", "false"), ("sanitize", "true"))
    )
    target, devices, idle = settings.pop("target", ""), settings.pop("devices", ""), settings.pop("idle_minutes", "")
    floor = settings.pop("isolation_floor", LOWEST_FLOOR)
    if settings or not re.fullmatch(r"(\d+(,\d+)*)?", devices):
        raise ConfigError(f"cannot read {' '.join(words[1:])}; {_USAGE}")
    try:
        idle_s = float(idle) * 60 if idle else None
    except ValueError as error:
        raise ConfigError(f"idle_minutes={idle} is not a number; {_USAGE}") from error
    return folder, Options(target, once, tuple(devices.split(",")), idle_s, profile, sanitize, floor)
