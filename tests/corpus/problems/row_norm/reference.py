"""The Euclidean norm of every row."""

import torch

Data = tuple[torch.Tensor, ...]


def generate_input(rows: int, cols: int, seed: int, device: str = "cpu") -> Data:
    """Normal values; the output is preallocated zeros."""
    generator = torch.Generator(device=device).manual_seed(seed)
    x = torch.randn((rows, cols), generator=generator, device=device)
    return x, torch.zeros(rows, device=device)


def ref_kernel(data: Data) -> torch.Tensor:
    """The library's norm."""
    x, out = data
    return torch.linalg.vector_norm(x, dim=1, out=out)


def oracle(data: Data) -> dict[str, torch.Tensor | int]:
    """fp64; all terms are positive, so the sum's error is relative to the sum."""
    right = torch.linalg.vector_norm(data[0].double(), dim=1)
    return {"expected": right, "magnitude": right, "terms": data[0].shape[1]}
