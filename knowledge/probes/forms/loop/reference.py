"""Every element of y is v * turns * each, which x[2] says."""

import torch


def generate_input(
    turns: int, seed: int, out: int = 1, each: float = 1, device: str = "cpu", **_: object
) -> tuple[torch.Tensor, ...]:
    """(v, 1, what must come out, 0)."""
    value = 1 + seed % 3
    x = torch.tensor([value, 1, value * turns * each, 0], dtype=torch.float32, device=device)
    return x, torch.zeros(out, dtype=torch.float32, device=device)


def ref_kernel(data: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """What a loop would have summed up."""
    x, y = data
    return y.fill_(x[2])


def property_check(data: tuple[torch.Tensor, ...], output: torch.Tensor) -> str:
    """Empty when all of the loop was done, everywhere."""
    want = float(data[0][2])
    off = (output.double() - want).abs()
    if bool((off <= 1e-3 * want).all()):
        return ""
    return f"the loop was not done as it should: got {float(output.flatten()[int(off.argmax())]):.8g}, not {want:.8g}"
