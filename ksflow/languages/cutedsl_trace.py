"""CuTe DSL where there is no GPU: `cute.compile` compiles for the ordered architecture, and nothing is launched."""

import os
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

DEVICE = "cpu"
tensors = nullcontext
_compiled: list[Any] = []


class _Silent:
    """What was compiled, which does nothing when it is called."""

    def __init__(self, made: Any) -> None:
        self._made = made

    def __call__(self, *_: Any, **__: Any) -> None: ...

    def __getattr__(self, name: str) -> Any:
        return getattr(self._made, name)


def start(march: str) -> None:
    """To be called before the kernel is imported."""
    os.environ["CUTE_DSL_ARCH"] = march
    import torch
    from cutlass import cute

    plain = cute.compile

    def compile(*args: Any, options: str = "", **more: Any) -> _Silent:
        _compiled.append(plain(*args, options=f"{options} --keep-ptx --keep-cubin --dump-dir .".strip(), **more))
        return _Silent(_compiled[-1])

    cute.compile = compile
    torch.cuda.current_stream = lambda *_: SimpleNamespace(cuda_stream=0)  # type: ignore[assignment]


def made() -> list[dict[str, Any]]:
    """Of every function that was compiled the PTX and the binary, where they are known."""
    return [{"ptx": str(one.__ptx__ or ""), "cubin": one.__cubin__ or b""} for one in _compiled]
