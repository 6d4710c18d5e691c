"""The module's own forward, with its parameters as inputs."""

import torch

from ksflow.evaluation.judge import bounds

Data = tuple[torch.Tensor, ...]


def generate_input(rows: int, cols: int, seed: int) -> Data:
    """Activations and weights as the model has them."""
    dice = torch.Generator().manual_seed(seed)
    x, weight = torch.randn(rows, cols, generator=dice), 0.5 + 1.5 * torch.rand(cols, generator=dice)
    return x, weight, torch.zeros(rows, cols)


def _gate(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * weight * torch.sigmoid(x) * 2.0


def ref_kernel(data: Data) -> torch.Tensor:
    """`Gate.forward(x, times=2.0)`."""
    x, weight, y = data
    return y.copy_(_gate(x, weight))


def oracle(data: Data) -> bounds.Row:
    """In float64; what is added up is a row of squares."""
    exact = _gate(data[0].double(), data[1].double())
    return {"expected": exact, "magnitude": exact.abs(), "terms": data[0].shape[1]}
