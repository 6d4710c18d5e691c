"""What the processes that judge, compile and run kernels see of this one's environment."""

import os
from collections.abc import Mapping

from ksflow.home import PACKAGE

ISOLATION = "KSFLOW_ISOLATION"
"""Names the best level at which kernels are held, for tests."""
_PASSED_ON = (
    *("PATH", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "TMPDIR", "TZ", ISOLATION),
    *("CUDA_HOME", "CUDA_PATH", "ROCM_PATH", "HIP_PATH", "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
    *("ROCR_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"),
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


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """What a child process sees."""
    passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return {**passed, **_FIXED, "PYTHONPATH": str(PACKAGE.parent), **extra}
