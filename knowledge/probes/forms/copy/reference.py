"""y is x."""

import torch


def generate_input(n: int, seed: int, device: str = "cpu", **_: object) -> tuple[torch.Tensor, ...]:
    """Random floats, and room for them."""
    gen = torch.Generator(device=device).manual_seed(seed)
    x = torch.rand(n, dtype=torch.float32, device=device, generator=gen)
    return x, torch.zeros_like(x)


def ref_kernel(data: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """A copy."""
    x, y = data
    return y.copy_(x)


def property_check(data: tuple[torch.Tensor, ...], output: torch.Tensor) -> str:
    """Empty when it is a copy."""
    return "" if torch.equal(data[0], output) else "the copy is not a copy"
