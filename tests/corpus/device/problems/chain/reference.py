"""y[t] = x[t] + y[t - 1] / (2 * sqrt(1 + y[t - 1]^2)), from y[-1] = 0: each step waits for the one before it."""

import math

import torch

Data = tuple[torch.Tensor, ...]


def generate_input(n: int, seed: int, device: str = "cpu") -> Data:
    """Normal values; the output is preallocated zeros."""
    generator = torch.Generator(device=device).manual_seed(seed)
    return torch.randn(n, generator=generator, device=device), torch.zeros(n, device=device)


def ref_kernel(data: Data) -> torch.Tensor:
    """In fp64, rounded once."""
    return data[1].copy_(_chain(data[0]))


def oracle(data: Data) -> dict[str, torch.Tensor | int]:
    """fp64; a step halves the errors of the steps before it, so that the few roundings of a step are all there is."""
    expected = _chain(data[0])
    return {"expected": expected, "magnitude": expected.abs() + data[0].double().abs() + 1, "terms": 4}


def _chain(x: torch.Tensor) -> torch.Tensor:
    found, last = [], 0.0
    for value in x.tolist():
        last = value + 0.5 * last / math.sqrt(1 + last * last)
        found.append(last)
    return torch.tensor(found, dtype=torch.float64, device=x.device)
