"""A process of its own that runs foreign files: without this one's keys, and never longer than this one."""

import ctypes
import json
import os
import signal
import subprocess
import sys

from ksflow.home import PACKAGE
from ksflow.records import Json

PASSED_ON = (
    "PATH",
    "LANG",
    "LD_LIBRARY_PATH",
    "TMPDIR",
    "CUDA_HOME",
    "CUDA_PATH",
    "ROCM_PATH",
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
)
"""All that it gets of this process's environment."""
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def asked(module: str, order: Json, timeout_s: float) -> "subprocess.CompletedProcess[str]":
    """What a module answers to an order in JSON. Raises subprocess.TimeoutExpired."""
    passed = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    return subprocess.run(
        [sys.executable, "-P", "-m", module],
        input=json.dumps(order),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env={**passed, "PYTHONPATH": str(PACKAGE.parent)},
        preexec_fn=lambda: _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0),
    )
