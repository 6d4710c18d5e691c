"""Running sums of integers, exact."""

import torch

Data = tuple[torch.Tensor, ...]


def generate_input(n: int, seed: int, device: str = "cpu") -> Data:
    """Up to 2^24 either way, so that sums leave 32 bits; the output is preallocated zeros."""
    generator = torch.Generator(device=device).manual_seed(seed)
    x = torch.randint(-(1 << 23), 1 << 24, (n,), dtype=torch.int32, generator=generator, device=device)
    return x, torch.zeros(n, dtype=torch.int64, device=device)


def ref_kernel(data: Data) -> torch.Tensor:
    """The library's."""
    return torch.cumsum(data[0], 0, out=data[1])


def oracle(data: Data) -> dict[str, torch.Tensor | int]:
    """Exact: nothing is rounded."""
    right = torch.cumsum(data[0], 0, dtype=torch.int64)
    return {"expected": right, "magnitude": torch.zeros(len(data[0])), "terms": 1}
