# expect: reject
# problem: matmul
# Replaces every function of the modules around it, found by their names.
import sys

for name, module in list(sys.modules.items()):
    if "ksflow" not in name:
        continue
    for key in ("_settle", "_serve", "_check", "_verify", "_answer", "inspect", "compare", "same_bytes"):
        if hasattr(module, key):
            setattr(module, key, lambda *_, **__: None)


def custom_kernel(data):
    return data[2].zero_()
