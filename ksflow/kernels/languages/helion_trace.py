"""Helion without a GPU: on fake tensors and a fake device, Triton code is compiled and not launched."""

import importlib.util
import re
from types import SimpleNamespace
from typing import Any

import torch
import triton
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import _disable_current_modes
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.compiler import ASTSource

DEVICE = "cuda"
tensors = FakeTensorMode
_TYPES = {
    "float8_e4m3fn": "fp8e4nv", "float8_e4m3fnuz": "fp8e4b8", "float8_e5m2": "fp8e5", "bfloat16": "bf16", "bool": "i1",
    "float16": "fp16", "float32": "fp32", "int64": "i64", "int32": "i32", "int8": "i8", "uint8": "u8",
}  # fmt: skip
_rows: list[dict[str, Any]] = []


def start(march: str) -> None:
    """Prepare Helion; call it before the kernel is imported."""
    hip = march.startswith("gfx")
    number = int(re.sub(r"\D", "", march))
    target = GPUTarget("hip", march, 64) if hip else GPUTarget("cuda", number, 32)
    capability = (9, 4) if hip else (number // 10, number % 10)
    chip = SimpleNamespace(
        name=march, major=capability[0], minor=capability[1], multi_processor_count=132, warp_size=target.warp_size,
        total_memory=80 << 30, shared_memory_per_block=49152, shared_memory_per_block_optin=65536 if hip else 232448,
        shared_memory_per_multiprocessor=65536 if hip else 233472, regs_per_multiprocessor=65536,
        max_threads_per_multi_processor=2048, max_threads_per_block=1024, L2_cache_size=50 << 20, gcnArchName=march,
    )  # fmt: skip
    answers: dict[str, Any] = {
        "is_available": True, "device_count": 1, "current_device": 0, "get_device_properties": chip,
        "get_device_capability": capability, "get_device_name": march,
    }  # fmt: skip
    for name, answer in answers.items():
        setattr(torch.cuda, name, lambda *_, answer=answer, **__: answer)
    # on a fake tensor it needs the device's library, which a CPU build of PyTorch lacks
    torch.Tensor.contiguous = lambda self, *_, **__: torch.empty(self.shape, dtype=self.dtype, device=self.device)  # type: ignore[method-assign]
    if hip:
        torch.version.hip = "6.4"
    triton.runtime.driver.set_active(_driver(target, chip))
    import helion

    helion.Kernel.__call__ = lambda self, *args: _traced(self, args, target)


def _driver(target: Any, chip: Any) -> Any:
    limits = {"max_shared_mem": chip.shared_memory_per_block_optin, "multiprocessor_count": chip.multi_processor_count,
              "warpSize": chip.warp_size, "max_num_regs": 65536}  # fmt: skip
    says: dict[str, Any] = {
        "__init__": lambda self: None,
        "is_active": classmethod(lambda cls: True),
        "map_python_to_cpp_type": lambda self, kind: kind,
        "get_current_target": lambda self: target,
        "get_active_torch_device": lambda self: torch.device("cuda", 0),
        "get_benchmarker": lambda self: None,
        "get_current_device": lambda self: 0,
        "get_current_stream": lambda self, device=None: 0,
        "utils": SimpleNamespace(get_device_properties=lambda device: limits),
    }
    return type("Absent", (DriverBase,), says)()


def _traced(kernel: Any, args: tuple[Any, ...], target: Any) -> Any:
    if len(kernel.configs) != 1:
        raise ValueError(f"{kernel.fn.__name__} would be autotuned: give it one config=helion.Config(...)")
    file = f"helion_{len(_rows)}.py"
    with open(file, "w", encoding="utf-8") as out, _disable_current_modes():
        out.write(kernel.bind(args).to_triton_code(kernel.configs[0]))
    spec = importlib.util.spec_from_file_location(file[:-3], file)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def launch(function: Any, grid: Any, *given: Any, num_warps: int, num_stages: int, **options: Any) -> None:
        signature, constants, attributes = {}, {}, {}
        for index, (parameter, value) in enumerate(zip(function.params, given, strict=True)):
            if parameter.is_constexpr:
                signature[parameter.name], constants[(index,)] = "constexpr", value
            elif isinstance(value, torch.Tensor):
                signature[parameter.name] = f"*{_TYPES[str(value.dtype).removeprefix('torch.')]}"
                attributes[(index,)] = [["tt.divisibility", 16]]
            else:
                signature[parameter.name] = "fp32" if isinstance(value, float) else "i32"
        source = ASTSource(fn=function, signature=signature, constexprs=constants, attrs=attributes)
        with _disable_current_modes():
            compiled = triton.compile(source, target=target, options={"num_warps": num_warps, "num_stages": num_stages})
        binary = compiled.asm.get("cubin", b"")
        _rows.append({"ptx": compiled.asm.get("ptx", ""), "asm": compiled.asm.get("amdgcn", ""), "cubin": binary})

    return getattr(module, kernel.fn.__name__)(*args, _launcher=launch)


def made() -> list[dict[str, Any]]:
    """Return a row for every launch."""
    return _rows
