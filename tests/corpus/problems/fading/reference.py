"""A recurrence that forgets a tenth with every step."""

import torch

from ksflow.evaluation.judge import bounds

Data = tuple[torch.Tensor, ...]


def generate_input(rows: int, cols: int, seed: int, device: str = "cpu") -> Data:
    """Normal values; the output is preallocated zeros."""
    generator = torch.Generator(device=device).manual_seed(seed)
    x = torch.randn((rows, cols), generator=generator, device=device)
    return x, torch.zeros((rows, cols), device=device)


def ref_kernel(data: Data) -> torch.Tensor:
    """Step by step."""
    x, out = data
    state = torch.zeros(len(x))
    for t in range(x.shape[1]):
        state = 0.9 * state + x[:, t]
        out[:, t] = state
    return out


def oracle(data: Data) -> bounds.Row:
    """fp64; each step rounds the state, and what it is off by fades as the state does."""
    x = data[0].double()
    expected, size = torch.zeros_like(x), torch.zeros_like(x)
    state, sizes = (torch.zeros(len(x), dtype=torch.float64) for _ in range(2))
    for t in range(x.shape[1]):
        state = 0.9 * state + x[:, t]
        sizes = 0.9 * sizes + state.abs()
        expected[:, t], size[:, t] = state, sizes
    return {"expected": expected, "magnitude": size, "terms": 1}
