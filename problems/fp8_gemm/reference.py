"""Block-scaled fp8 matrix multiply: inputs, PyTorch reference, fp64 oracle.

Runs in the judge's process, never in a candidate's. Not covered: which bound decides (the judge
builds it from `oracle`), and timing.
"""

import torch

BLOCK = 128
UPSTREAM_RTOL = 2e-2
UPSTREAM_ATOL = 1e-3

Data = tuple[torch.Tensor, ...]


def generate_input(
    m: int, n: int, k: int, seed: int, dtype: str = "float8_e4m3fn", device: str = "cpu"
) -> Data:
    """Draw one case; the order of the draws is part of the task (same seed, same problem).

    Every tensor is drawn k-first and transposed, which makes all operands column-major.
    """
    gen = torch.Generator(device=device).manual_seed(seed)
    fp8 = getattr(torch, dtype)

    def draw(rows: int, cols: int, kind: torch.dtype) -> torch.Tensor:
        return torch.randn((rows, cols), dtype=kind, device=device, generator=gen)

    a = draw(k, m, torch.bfloat16).to(fp8)
    b = draw(k, n, torch.bfloat16).to(fp8)
    a_scale = draw(k // BLOCK, m, torch.float32)
    b_scale = draw(k // BLOCK, -(-n // BLOCK), torch.float32)
    c = torch.zeros((m, n), dtype=torch.bfloat16, device=device)
    return a.T, b.T, a_scale.T, b_scale.T, c


def dequantised(data: Data, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """a [m, k] and b [n, k] with their scales applied, in `dtype`."""
    a, b, a_scale, b_scale, _ = data
    (m, k), n = a.shape, b.shape[0]
    a_full = a.to(dtype).reshape(m, k // BLOCK, BLOCK) * a_scale.to(dtype).unsqueeze(2)
    b_rows = b_scale.to(dtype).repeat_interleave(BLOCK, dim=0)[:n]
    b_full = b.to(dtype).reshape(n, k // BLOCK, BLOCK) * b_rows.unsqueeze(2)
    return a_full.reshape(m, k), b_full.reshape(n, k)


def ref_kernel(data: Data) -> torch.Tensor:
    """Dequantise to float32, multiply with the library, round once to bf16 into c."""
    a, b = dequantised(data, torch.float32)
    c = data[-1]
    c.copy_((a @ b.T).to(torch.bfloat16))
    return c


def oracle(data: Data) -> dict[str, torch.Tensor | int]:
    """The product in fp64 and |A||B|, the magnitude that accumulation errors grow with.

    The judge adds u_out·|expected| for the one rounding to the output: bf16 has 8 significant
    bits, so round-to-nearest errs by at most half of 2^-7 at 1.0: u_out = 2^-8 (2^-9 would fail
    the correctly rounded result itself). fp8 products need 8 bits and are exact in fp32, so
    float32 is the precision of the accumulation. The magnitude is good to 1e-5 in fp32.
    """
    a, b = dequantised(data, torch.float64)
    magnitude = a.abs().float() @ b.abs().float().T
    return {"expected": a @ b.T, "magnitude": magnitude.double(), "terms": a.shape[1]}


def upstream_check(data: Data, output: torch.Tensor) -> str:
    """The public leaderboard's rule against `ref_kernel`: "" when it passes, else why not."""
    expected = ref_kernel((*data[:-1], torch.zeros_like(data[-1]))).float()
    if output.shape != expected.shape:
        return f"shape {tuple(output.shape)}, expected {tuple(expected.shape)}"
    got = output.float()
    if not torch.equal(got.isnan(), expected.isnan()):
        return "NaN pattern differs"
    infinite = expected.isinf() | got.isinf()
    if not torch.equal(got[infinite], expected[infinite]):
        return "infinity pattern differs"
    excess = (got - expected).abs() - UPSTREAM_RTOL * expected.abs() - UPSTREAM_ATOL
    bad = (excess > 0) & ~infinite
    if not bad.any():
        return ""
    i, j = (int(x) for x in bad.nonzero()[0])
    return (
        f"{int(bad.sum())} of {bad.numel()} elements off, first at [{i}, {j}]: "
        f"got {got[i, j]:.6g}, expected {expected[i, j]:.6g}"
    )
