"""q4_0 weights times a q8_0 vector: inputs, reference, allowed error. Runs in the judge's process."""

import torch

from ksflow.evaluation.judge import bounds

BLOCK = 32
Data = tuple[torch.Tensor, ...]


def generate_input(rows: int, cols: int, seed: int, scale: float = 0.02) -> Data:
    """Random digits; scales are `scale` times a number in ±[0.5, 1.5), of the vector positive. A scale below 6e-5 is a
    subnormal fp16."""
    gen = torch.Generator().manual_seed(seed)

    def packed(codes: torch.Tensor, signs: torch.Tensor) -> torch.Tensor:
        factors = (torch.rand(*codes.shape[:-1], 1, generator=gen) + 0.5) * scale * signs
        return torch.cat([factors.half().view(torch.uint8), codes.view(torch.uint8)], dim=-1).flatten(-2)

    blocks = cols // BLOCK
    codes = torch.randint(0, 256, (rows, blocks, 16), generator=gen, dtype=torch.uint8)
    w = packed(codes, torch.randint(0, 2, (rows, blocks, 1), generator=gen) * 2 - 1)
    x = packed(torch.randint(-127, 128, (blocks, 32), generator=gen, dtype=torch.int8), torch.ones(blocks, 1))
    return w, x, torch.zeros(rows)


def weights(w: torch.Tensor) -> torch.Tensor:
    """Decode q4_0: the low halves of the 16 bytes are weights 0 to 15, the high halves 16 to 31, each minus 8."""
    blocks = w.view(len(w), -1, 18)
    scale, codes = blocks[..., :2].contiguous().view(torch.float16).float(), blocks[..., 2:]
    digits = torch.cat([codes & 15, codes >> 4], dim=-1).float() - 8
    return (scale * digits).view(len(w), -1)


def vector(x: torch.Tensor) -> torch.Tensor:
    """Decode q8_0: scale times int8."""
    blocks = x.view(-1, 34)
    scale = blocks[:, :2].contiguous().view(torch.float16).float()
    return (scale * blocks[:, 2:].contiguous().view(torch.int8)).flatten()


def ref_kernel(data: Data) -> torch.Tensor:
    """The product in float64, rounded once."""
    w, x, y = data
    return y.copy_(weights(w).double() @ vector(x).double())


def oracle(data: Data) -> bounds.Row:
    """The product in float64, and how far honest float32 sums may be from it. Decoded values are exact in float32."""
    row = bounds.matmul(weights(data[0]), vector(data[1]).unsqueeze(1))
    return {key: value.squeeze(1) if isinstance(value, torch.Tensor) else value for key, value in row.items()}
