"""Row softmax: inputs, PyTorch reference, fp64 oracle. Runs in the judge's process."""

import torch

from ksflow.evaluation.judge import bounds

C1 = 4  # problem.yaml's, which the judge multiplies with
UPSTREAM_RTOL = 1e-5
UPSTREAM_ATOL = 1e-7

Data = tuple[torch.Tensor, ...]


def generate_input(
    rows: int, cols: int, seed: int, scale: float = 1, shift: float = 0, device: str = "cpu"
) -> Data:
    """Normal values times `scale` plus `shift`; the output is preallocated zeros."""
    gen = torch.Generator(device=device).manual_seed(seed)
    x = torch.randn((rows, cols), dtype=torch.float32, device=device, generator=gen)
    return x.mul_(scale).add_(shift), torch.zeros((rows, cols), dtype=torch.float32, device=device)


def ref_kernel(data: Data) -> torch.Tensor:
    """The library's softmax, written into the preallocated output."""
    x, y = data
    return torch.softmax(x, dim=1, out=y)


def oracle(data: Data) -> bounds.Row:
    """fp64 softmax and how far honest float32 arithmetic may be from it."""
    return bounds.softmax(data[0], dim=1, c1=C1)


def upstream_check(data: Data, output: torch.Tensor) -> str:
    """A usual test suite's rule (allclose to the library): "" when it passes, else why not."""
    expected = ref_kernel((data[0], torch.zeros_like(data[1])))
    if output.shape != expected.shape:
        return f"shape {tuple(output.shape)}, expected {tuple(expected.shape)}"
    bad = ~torch.isclose(output, expected, rtol=UPSTREAM_RTOL, atol=UPSTREAM_ATOL)
    if not bad.any():
        return ""
    i, j = (int(v) for v in bad.nonzero()[0])
    return (
        f"{int(bad.sum())} of {bad.numel()} elements off, first at [{i}, {j}]: "
        f"got {output[i, j]:.6g}, expected {expected[i, j]:.6g}"
    )
