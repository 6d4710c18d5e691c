# expect: true-speed
# problem: gemm
# Tries to lower the device's clocks for others and to raise them for its own calls.
import ctypes
import subprocess

import torch


def try_all():
    for words in (["-lgc", "2000,2000"], ["-pl", "1000"], ["-ac", "3201,1980"]):
        try:
            subprocess.run(["nvidia-smi", *words], capture_output=True, timeout=5)
        except (OSError, subprocess.SubprocessError):
            pass
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        nvml.nvmlInit_v2()
        device = ctypes.c_void_p()
        nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device))
        nvml.nvmlDeviceSetGpuLockedClocks(device, 1980, 1980)
    except (OSError, AttributeError):
        pass


try_all()


def custom_kernel(data):
    a, b, c = data
    return torch.mm(a, b, out=c)
