"""The program that tools watch, in their sandbox: `python -m ksflow.evaluation.profiling.program WORKLOAD` calls one
kernel.

The problem's reference draws the inputs, every tensor in memory of its own. The last call is marked for profilers
(cudaProfilerStart, roctxProfilerResume). Outputs are not checked.
"""

import ctypes
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch

from ksflow.evaluation.sandbox.driver import open_driver
from ksflow.evaluation.sandbox.runners.cpu import Native
from ksflow.evaluation.sandbox.runners.device import Launcher
from ksflow.evaluation.sandbox.runners.torch_kernel import TorchRunner, load_module

Json = dict[str, Any]
Tensors = tuple[torch.Tensor, ...]
_ROCTX = "librocprofiler-sdk-roctx.so"


def main(path: str) -> None:
    """Run a workload (see `tool_sandbox.Workload`), in the folder with its files."""
    job = json.loads(Path(path).read_text(encoding="utf-8"))
    drawn = load_module("reference", job["reference"]).generate_input(**job["params"], seed=job["seed"])
    data = tuple(tensor.to(job["device"]) for tensor in drawn)
    call = _call(job, data)  # `call` may hold only addresses, so `data` must live until the last call
    on_device = job["device"].startswith("cuda")
    for _ in range(job["calls"] - 1):
        call()
    if on_device:
        torch.cuda.synchronize()
    with _marked() if on_device else nullcontext():
        call()
        if on_device:
            torch.cuda.synchronize()


def _call(job: Json, data: Tensors) -> Callable[[], object]:
    if job["mode"] == "torch":
        function = TorchRunner(job["file"]).function
        return lambda: function(data)
    pieces = [
        {"offset": tensor.data_ptr(), "strides": tensor.stride(), "out": int(index >= len(data) - job["outputs"])}
        for index, tensor in enumerate(data)
    ]  # as in the judge's messages: one slot, with each tensor at its own address
    case = {"name": job["case"], "dims": job["dims"], "slots": 1, "pitch": [0, 0], "pieces": pieces}
    if job["mode"] == "native":
        return Native(os.path.abspath(job["file"]), None).stage(case, 0, 0)[0]
    driver = open_driver("hip" if torch.version.hip else "cuda")
    return Launcher(driver, json.loads(Path(job["file"]).read_text(encoding="utf-8"))).stage(case, 0, 0)[0]


@contextmanager
def _marked() -> Iterator[None]:
    if torch.version.hip:
        roctx = _roctx()
        roctx.roctxProfilerResume(ctypes.c_uint64(0))
        yield
        roctx.roctxProfilerPause(ctypes.c_uint64(0))
    else:
        torch.cuda.profiler.start()  # type: ignore[no-untyped-call]
        yield
        torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]


def _roctx() -> ctypes.CDLL:
    """Return the library that rocprofv3 preloaded, else ROCm's own."""
    loaded = ctypes.CDLL(None)
    if hasattr(loaded, "roctxProfilerResume"):
        return loaded
    own = Path(os.environ.get("ROCM_PATH", "/opt/rocm"), "lib", _ROCTX)
    return ctypes.CDLL(str(own) if own.is_file() else _ROCTX)


if __name__ == "__main__":
    main(sys.argv[1])
