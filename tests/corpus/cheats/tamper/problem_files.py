# expect: reject
# problem: cumsum
# runs: 2
# Overwrites the problem, so that zeros are what its oracle expects.
import os

TEXT = """
import torch

def generate_input(n, seed, device="cpu"):
    return torch.zeros(n, dtype=torch.int32), torch.zeros(n, dtype=torch.int64)

def ref_kernel(data):
    return data[1]

def oracle(data):
    return {"expected": data[1] * 0, "magnitude": torch.zeros(len(data[1])), "terms": 1}
"""

for name in ("@PROBLEM@/reference.py", "@PROBLEM@/@MARK@.py"):
    try:
        with open(name, "w") as file:
            file.write(TEXT)
    except OSError:
        pass
    try:
        os.replace("@PROBLEM@/@MARK@.py", "@PROBLEM@/reference.py")
    except OSError:
        pass


def custom_kernel(data):
    return data[1].zero_()
