"""A walk along a ring in memory, whose end can be computed: i goes to (a * i + c) mod n, which has the full period."""

import torch

_A, _C = 1664525, 1013904223


def generate_input(
    n: int, turns: int, seed: int, line: int = 16, own: bool = False, device: str = "cpu", **_: object
) -> tuple[torch.Tensor, ...]:
    """The ring (one line of it where the program makes its `own`), the walk (a, c, start, end), and room for one."""
    made = 1 if own else n
    ring = torch.zeros((made, line), dtype=torch.int32, device=device)
    ring[:, 0] = ((torch.arange(made, dtype=torch.int64, device=device) * _A + _C) % n).int()
    start = seed % n
    walk = torch.tensor([_A, _C, start, _after(start, turns, n)], dtype=torch.int32, device=device)
    return ring.flatten(), walk, torch.zeros(1, dtype=torch.int32, device=device)


def ref_kernel(data: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """Where the walk ends."""
    return data[2].copy_(data[1][3:])


def property_check(data: tuple[torch.Tensor, ...], output: torch.Tensor) -> str:
    """Empty when every step was taken."""
    got, want = int(output[0]), int(data[1][3])
    return "" if got == want else f"the walk ended at {got}, not at {want}"


def _after(start: int, steps: int, n: int) -> int:
    """By doubling: the map taken 1, 2, 4 ... times is a map of the same kind."""
    a, c, place = _A, _C, start
    while steps:
        if steps & 1:
            place = (a * place + c) % n
        a, c = a * a % n, (a * c + c) % n
        steps >>= 1
    return place
