"""Environment of child processes, and their end with this process."""

import ctypes
import os
import signal
from collections.abc import Callable, Mapping

from ksflow.home import PACKAGE

ISOLATION = "KSFLOW_ISOLATION"  # names the best isolation level of kernels, for tests
_PASSED_ON = (
    *("PATH", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "TMPDIR", "TZ", ISOLATION),
    *("CUDA_HOME", "CUDA_PATH", "ROCM_PATH", "HIP_PATH", "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
    *("ROCR_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "HF_HOME", "HF_HUB_OFFLINE"),
)  # environment variables passed on: no key, no token, no home
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_FIXED = {
    **dict.fromkeys(THREADS, "1"),
    "OMP_WAIT_POLICY": "PASSIVE",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONNOUSERSITE": "1",
}
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def child_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Return a child's environment."""
    return {**base_environment(), **_FIXED, **extra}


def base_environment() -> dict[str, str]:
    """Return the environment of a child that reads foreign files and is not timed."""
    passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return {**passed, "PYTHONPATH": str(PACKAGE.parent), "PYTHONUTF8": "1"}


def end_with_this_process(by: signal.Signals) -> Callable[[], None]:
    """Return a function for a child to call before exec: it ends when this process does, even if that has just
    ended."""
    parent = os.getpid()

    def prepare() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, int(by), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return prepare
