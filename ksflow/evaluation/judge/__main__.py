"""The judge's process. `client.py` starts it with an environment of its own; it ends when its input does.

With `--gpu=PLATFORM` (cuda, hip, emulated) it judges on the first visible GPU. `--loop=FILE`: the library that calls
native kernels on a CPU, which is copied. `--cores=N`: how many cores a kernel has; `--shared`: the judge's among them.
Zygotes are separate programs: they hold no secret, and their address space reveals nothing of the judge's. One has
torch, the other next to nothing.
"""

import os
import queue
import signal
import sys
import threading
from typing import Any

from ksflow.evaluation.judge.spinner import IdleSpinner
from ksflow.evaluation.processes import core_pinning, scratch, wire
from ksflow.evaluation.sandbox import linux, zygote

_REQUESTS, _ANSWERS = 0, 1
_WITH_TORCH = ("ksflow.evaluation.sandbox.runners.interpreted", "ksflow.evaluation.sandbox.runners.torch_kernel")
"""Imported before a sandbox starts, which has no access to our files."""
_GPU, _LOOP, _CORES, _SHARED = "--gpu=", "--loop=", "--cores=", "--shared"


def main() -> None:
    """Start the zygotes, then answer requests."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.umask(0o022)
    linux.set_dumpable(False)
    core_pinning.use_all_cores()
    gpu, file, number = (
        next((word.removeprefix(name) for word in sys.argv[1:] if word.startswith(name)), "")
        for name in (_GPU, _LOOP, _CORES)
    )
    count = int(number or 1)
    light, heavy = zygote.spawn(threads=count), zygote.spawn(*_WITH_TORCH, threads=count)
    spinner = IdleSpinner()
    import torch

    torch.set_num_threads(1)
    linux.keep_freed_memory()
    from ksflow.evaluation.judge.requests import CorePinning, RequestHandler

    for each in (light, heavy):
        zygote.wait(each)
    loop = f"/proc/self/fd/{linux.sealed_copy(file)}" if file else ""
    cores = CorePinning(os.sched_getaffinity(0), count, _SHARED in sys.argv)
    handler = RequestHandler(light, heavy, spinner, gpu, loop, cores)
    requests: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(requests,), daemon=True).start()
    while True:
        while requests.empty() and handler.prepare():
            pass
        answer = handler.answer(requests.get())
        if answer is not None:
            tell(_ANSWERS, answer)


def tell(fd: int, answer: dict[str, Any]) -> None:
    """Send an answer; if it holds NaN or infinity, a `harness-error` instead."""
    try:
        wire.send(fd, answer)
    except ValueError as error:
        reason = f"the judge's own answer: {error}"
        fault = {"verdict": "harness-error", "reason": reason, "timings": [], "evidence": {}}
        wire.send(fd, {**fault, "id": answer["id"]})


def _read(requests: "queue.SimpleQueue[dict[str, Any]]") -> None:
    """Read requests; exit, and with this process its sandboxes, when the sender is gone."""
    try:
        while True:
            requests.put(wire.receive(_REQUESTS))
    except wire.Closed:
        scratch.remove_folders()  # exit handlers do not run
        os._exit(0)


if __name__ == "__main__":
    main()
