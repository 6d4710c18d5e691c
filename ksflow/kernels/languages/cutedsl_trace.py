"""CuTe DSL without a GPU: `cute.compile` compiles for the ordered architecture, and nothing is launched."""

import os
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

DEVICE = "cpu"
tensors = nullcontext
_compiled: list[Any] = []


class _Silent:
    """A compiled function that does nothing when called."""

    def __init__(self, made: Any) -> None:
        self._made = made

    def __call__(self, *_: Any, **__: Any) -> None: ...

    def __getattr__(self, name: str) -> Any:
        return getattr(self._made, name)


def start(march: str) -> None:
    """Prepare CuTe DSL; call it before the kernel is imported."""
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
    """Return the PTX and binary of every compiled function, if known."""
    return [{"ptx": str(one.__ptx__ or ""), "cubin": one.__cubin__ or b""} for one in _compiled]
