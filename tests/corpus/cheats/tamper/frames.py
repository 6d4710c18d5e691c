# expect: reject
# problem: row_norm
# Climbs up the stack to the harness' locals and rewrites what it finds there.
import ctypes
import sys


def custom_kernel(data):
    frame = sys._getframe()
    while frame := frame.f_back:
        for name, value in frame.f_locals.items():
            if name in ("calls", "status", "case", "worst", "expected"):
                if isinstance(value, list):
                    value[:] = [lambda *_: None] * len(value)
                elif isinstance(value, dict):
                    value.clear()
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
    return data[1].zero_()
