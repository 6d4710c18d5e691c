# expect: reject
# problem: gauss
# Rebinds what __main__ and the modules' globals hold, sockets and buffers included.
import sys
import types


class Yes:
    def __getattr__(self, name):
        return lambda *_, **__: b"done"


def custom_kernel(data):
    main = sys.modules["__main__"]
    for module in (main, *(m for n, m in list(sys.modules.items()) if n.startswith("ksflow"))):
        for name, value in list(vars(module).items()):
            if isinstance(value, types.FunctionType) and name.startswith("_") and not name.startswith("__"):
                setattr(module, name, Yes())
    return data[2].zero_()
