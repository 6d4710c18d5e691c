# expect: reject
# problem: gauss
# Imports the judge's half of the harness and changes it, in the hope that it is the one that judges.
import importlib
import types

for name in ("tolerance", "check", "cases", "timing", "statistics", "session", "comparison", "sandboxed"):
    try:
        module = importlib.import_module(f"ksflow.evaluation.judge.{name}")
    except ImportError:
        continue
    for key, value in list(vars(module).items()):
        if isinstance(value, types.FunctionType):
            setattr(module, key, lambda *_, **__: True)


def custom_kernel(data):
    return data[2].zero_()
