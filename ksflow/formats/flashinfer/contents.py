"""Contents of FlashInfer's and SOL-ExecBench's inputs, as upstream draws them: SOL-ExecBench goes by the names, too."""

import math
import re
from collections.abc import Callable

import torch

_CLAMP = 2.0
_WHOLE = {torch.uint8: 128, torch.int8: 128, torch.int16: 1024, torch.int32: 1024, torch.int64: 1024}
_AROUND = 0.1
"""How far from their usual values norms' weights and biases are drawn: a kernel has to read them."""
_NORM = r"(?:.*(?:_norm|layernorm)|.*norm\d+|norm)"
Draw = Callable[[torch.Tensor], torch.Tensor]
"""Normal numbers in float32 -> contents."""
_BY_NAME: tuple[tuple[str, Draw], ...] = (
    (rf"{_NORM}_weight", lambda x: 1 + _AROUND * x),
    (rf"{_NORM}_bias", lambda x: _AROUND * x),
    (r"(?:rope_)?cos|cos_cached", lambda x: torch.cos(x.clamp(-math.pi, math.pi))),
    (r"(?:rope_)?sin|sin_cached", lambda x: torch.sin(x.clamp(-math.pi, math.pi))),
    (r"(?:.*_)?(?:rstd|std|variance|var)\d*", lambda x: x.abs() + 0.1),
    (r"A_cumsum", lambda x: _between(x, -0.1, 0.0).cumsum(-1)),
    (r"A_log", lambda x: _between(x, -5.0, -1.0)),
    (r"A", lambda x: _between(x, -1.0, -0.001)),
    (r"g", lambda x: _between(x, -5.0, 0.0)),
    (r"(?:attn|attention|routing)_weights", lambda x: x.softmax(-1)),
    (r"weight\d*|.*_(?:weights?|projs?|weight_matrix)\d*", lambda x: x / math.sqrt(x.shape[-1]) if x.ndim > 1 else x),
)
_BINARY = ("binary", "{0, 1}", "0 or 1", "1.0 for valid", "0.0 for masked")
_MASKS = ("x_mask", "text_mask", "aspect_ratio_mask", "drop_mask", "attention_mask")


def draw_contents(shape: list[int], dtype: torch.dtype) -> torch.Tensor:
    """Random contents as upstream draws them: normal, clamped where a type is narrow, small whole numbers."""
    if dtype is torch.bool:
        return torch.randint(0, 2, shape, device="cuda").bool()
    if not dtype.is_floating_point:
        least = -_WHOLE[dtype] if dtype.is_signed else 0
        return torch.randint(least, _WHOLE[dtype], shape, dtype=dtype, device="cuda")
    if dtype.itemsize == 1:
        return torch.randn(shape, device="cuda").clamp_(-_CLAMP, _CLAMP).to(dtype)
    contents: torch.Tensor = torch.randn(shape, dtype=dtype, device="cuda")
    return contents


def draw_named(name: str, shape: list[int], dtype: torch.dtype, description: str) -> torch.Tensor:
    """Random contents that are in the range that an input's name or description tells."""
    square = len(shape) > 1 and shape[-1] == shape[-2]
    if square and (
        name in ("attention_mask", "causal_mask") or ("attention mask" in description and "causal" in description)
    ):
        above = torch.ones(shape, dtype=torch.bool, device="cuda").triu(1)
        return torch.zeros(shape, dtype=dtype, device="cuda").masked_fill(above, torch.finfo(dtype).min)
    if name in _MASKS or (name.endswith("_mask") and any(word in description for word in _BINARY)):
        return torch.randint(0, 2, shape, device="cuda").to(dtype)
    normal = torch.randn(shape, device="cuda")
    if "softmax" in description and "output" in description:
        return normal.softmax(-1).to(dtype)
    draw = next((draw for names, draw in _BY_NAME if re.fullmatch(names, name)), None)
    return draw(normal).to(dtype) if draw else draw_contents(shape, dtype)


def _between(normal: torch.Tensor, low: float, high: float) -> torch.Tensor:
    return torch.empty_like(normal).uniform_(low, high)
