"""What `kernel.hip` beside it computes: a sum of vectors, a product of matrices, sums by atomic additions."""

import torch

N = 256


def generate_input(n: int, seed: int, device: str = "cpu") -> tuple[torch.Tensor, ...]:
    """Small whole numbers, so that every right answer is exact."""
    generator = torch.Generator(device=device).manual_seed(seed)
    a, b = (torch.randint(-8, 9, (n,), generator=generator).float() for _ in range(2))
    return a, b, torch.zeros(2 * n + 16)


def ref_kernel(data: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """The three, one after the other."""
    a, b, out = data
    bins = torch.zeros(16).index_add_(0, torch.arange(N) * 7 % 16, a)
    out.copy_(torch.cat([a + b, (a[:64].view(16, 4) @ b[:64].view(4, 16)).flatten(), bins]))
    return out


def oracle(data: tuple[torch.Tensor, ...]) -> dict[str, object]:
    """The same."""
    expected = ref_kernel((*data[:2], torch.zeros_like(data[2]))).double()
    return {"expected": expected, "magnitude": expected.abs() + 1, "terms": 1}
