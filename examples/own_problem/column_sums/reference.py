"""Column sums: inputs, reference, and how exact an answer has to be. Runs in the judge's process."""

import torch

from ksflow.evaluation.judge import bounds

Data = tuple[torch.Tensor, ...]


def generate_input(rows: int, cols: int, seed: int) -> Data:
    """Normal values; the output is preallocated zeros. Change this: the same seed must give the same contents."""
    x = torch.randn(rows, cols, generator=torch.Generator().manual_seed(seed))
    return x, torch.zeros(cols)


def ref_kernel(data: Data) -> torch.Tensor:
    """The library's sum, written into the preallocated output. Change this: what a right answer is."""
    x, y = data
    return torch.sum(x, dim=0, out=y)


def oracle(data: Data) -> bounds.Row:
    """The sum in fp64, and how far honest float32 arithmetic may be from it. Change this: `bounds` has other forms."""
    return bounds.reduction(data[0], dim=0, kind="sum")
