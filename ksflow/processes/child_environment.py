"""Processes that this one starts: what they see of its environment, and that they end when it does."""

import ctypes
import os
import signal
from collections.abc import Callable, Mapping

from ksflow.home import PACKAGE

ISOLATION = "KSFLOW_ISOLATION"
"""Names the best level at which kernels are held, for tests."""
_PASSED_ON = (
    *("PATH", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "TMPDIR", "TZ", ISOLATION),
    *("CUDA_HOME", "CUDA_PATH", "ROCM_PATH", "HIP_PATH", "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
    *("ROCR_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "HF_HOME", "HF_HUB_OFFLINE"),
)
"""All that they get of it. No key, no token, no home."""
_FIXED = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONNOUSERSITE": "1",
}
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def child_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """What a child process sees."""
    return {**base_environment(), **_FIXED, **extra}


def base_environment() -> dict[str, str]:
    """The same where foreign files are read, not timed."""
    passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return {**passed, "PYTHONPATH": str(PACKAGE.parent), "PYTHONUTF8": "1"}


def end_with_this_process(by: signal.Signals) -> Callable[[], None]:
    """What a child calls before it becomes another program: it ends when this process does, or has just done so."""
    parent = os.getpid()

    def prepare() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, int(by), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return prepare
