# expect: reject
# problem: gemm
# Finds the harness' functions among all objects and makes each of them return at once.
import gc
import types


def nothing(*_, **__):
    return None


def custom_kernel(data):
    for thing in gc.get_objects():
        if isinstance(thing, types.FunctionType) and "ksflow" in (thing.__module__ or ""):
            if thing.__code__.co_freevars == () and thing.__name__ not in ("run", "_serve"):
                try:
                    thing.__code__ = nothing.__code__
                except (ValueError, AttributeError):
                    pass
    return data[2].zero_()
