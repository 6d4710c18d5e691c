"""Block-scaled fp8 matrix multiply, operands K-major: inputs, PyTorch reference, fp64 oracle.

Runs in the judge's process, never in a candidate's. Not covered: which bound decides (the judge
builds it from `oracle`), and timing.
"""

import torch

from ksflow.evaluation.judge import bounds

BLOCK = 128

Data = tuple[torch.Tensor, ...]


def generate_input(m: int, n: int, k: int, seed: int, device: str = "cpu") -> Data:
    """Draw one case; the order of the draws is part of the task (same seed, same problem).

    The numbers are those of the column-major variant `e4m3fn`: drawn k-first. The operands are then written
    with k contiguous; the scales stay as they were drawn.
    """
    gen = torch.Generator(device=device).manual_seed(seed)

    def draw(rows: int, cols: int, kind: torch.dtype) -> torch.Tensor:
        return torch.randn((rows, cols), dtype=kind, device=device, generator=gen)

    a = draw(k, m, torch.bfloat16).T.contiguous().to(torch.float8_e4m3fn)
    b = draw(k, n, torch.bfloat16).T.contiguous().to(torch.float8_e4m3fn)
    a_scale = draw(k // BLOCK, m, torch.float32)
    b_scale = draw(k // BLOCK, -(-n // BLOCK), torch.float32)
    c = torch.zeros((m, n), dtype=torch.bfloat16, device=device)
    return a, b, a_scale.T, b_scale.T, c


def dequantised(data: Data, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """a [m, k] and b [n, k] with their scales applied, in `dtype`."""
    a, b, a_scale, b_scale, _ = data
    return scaled(a, a_scale, dtype), scaled(b, b_scale.repeat_interleave(BLOCK, dim=0)[: len(b)], dtype)


def scaled(codes: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """fp8 codes [rows, k] times scale [rows, k / 128].

    A table of all 256 codes is several times faster than the library's conversion.
    """
    table = torch.arange(256, dtype=torch.uint8, device=codes.device).view(codes.dtype).to(dtype)
    values = table.index_select(0, codes.view(torch.uint8).reshape(-1).int()).view(len(codes), -1, BLOCK)
    values *= scale.to(dtype).unsqueeze(2)
    return values.view(codes.shape)


def ref_kernel(data: Data) -> torch.Tensor:
    """Dequantise to float32, multiply with the library, round once to bf16 into c."""
    a, b = dequantised(data, torch.float32)
    c = data[-1]
    c.copy_((a @ b.T).to(torch.bfloat16))
    return c


def oracle(data: Data) -> bounds.Row:
    """The product in fp64, and how far float32 accumulation in any order may be from it.

    The judge adds u_out·|expected| for the one rounding to the output: bf16 has 8 significant
    bits, so round-to-nearest errs by at most half of 2^-7 at 1.0: u_out = 2^-8 (2^-9 would fail
    the correctly rounded result itself). fp8 products need 8 bits and are exact in fp32, so
    float32 is the precision of the accumulation.
    """
    a, b = dequantised(data, torch.float64)
    return bounds.matmul(a, b.T)
