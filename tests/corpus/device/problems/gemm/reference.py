"""c = a @ b in float32."""

import torch

Data = tuple[torch.Tensor, ...]


def generate_input(m: int, n: int, k: int, seed: int, device: str = "cpu") -> Data:
    """Normal values; the output is preallocated zeros."""
    generator = torch.Generator(device=device).manual_seed(seed)
    a = torch.randn((m, k), generator=generator, device=device)
    b = torch.randn((k, n), generator=generator, device=device)
    return a, b, torch.zeros((m, n), device=device)


def ref_kernel(data: Data) -> torch.Tensor:
    """The library's product."""
    a, b, c = data
    return torch.mm(a, b, out=c)


def oracle(data: Data) -> dict[str, torch.Tensor | int]:
    """fp64; errors of float32 sums are relative to the sum of the terms' magnitudes."""
    a, b = data[0].double(), data[1].double()
    return {"expected": a @ b, "magnitude": a.abs() @ b.abs(), "terms": a.shape[1]}
