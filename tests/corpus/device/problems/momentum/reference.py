"""m = 0.9 * m + g, in place: the momentum of an optimiser."""

import torch

Data = tuple[torch.Tensor, ...]


def generate_input(n: int, seed: int, device: str = "cpu") -> Data:
    """Normal values."""
    generator = torch.Generator(device=device).manual_seed(seed)
    return tuple(torch.randn(n, generator=generator, device=device) for _ in range(2))


def ref_kernel(data: Data) -> torch.Tensor:
    """PyTorch's, rounded twice."""
    g, m = data
    return m.mul_(0.9).add_(g)


def oracle(data: Data) -> dict[str, torch.Tensor | int]:
    """fp64; the two roundings are all there is."""
    g, m = (tensor.double() for tensor in data)
    return {"expected": 0.9 * m + g, "magnitude": m.abs() + g.abs(), "terms": 2}
