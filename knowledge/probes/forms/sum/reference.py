"""The elements of y together are the sum of x, `turns` times."""

import torch

_turns: dict[tuple[int, int], int] = {}


def generate_input(n: int, turns: int, seed: int, out: int = 1, device: str = "cpu", **_: object) -> tuple[torch.Tensor, ...]:
    """Floats that are 1, 2 or 3, and room for partial sums."""
    gen = torch.Generator(device=device).manual_seed(seed)
    x = torch.randint(1, 4, (n,), device=device, generator=gen, dtype=torch.uint8).float()
    _turns[n, out] = turns
    return x, torch.zeros(out, dtype=torch.float32, device=device)


def ref_kernel(data: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """All of it in the first element."""
    x, y = data
    y.zero_()[0] = float(x.sum(dtype=torch.float64)) * _turns[x.numel(), y.numel()]
    return y


def property_check(data: tuple[torch.Tensor, ...], output: torch.Tensor) -> str:
    """Empty when the sum is right."""
    want = float(data[0].sum(dtype=torch.float64)) * _turns[data[0].numel(), output.numel()]
    got = float(output.sum(dtype=torch.float64))
    return "" if abs(got - want) <= 1e-3 * want else f"the sum is {got:.9g}, not {want:.9g}"
