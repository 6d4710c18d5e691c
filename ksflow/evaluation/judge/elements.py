"""The elements and the bytes of tensors: their size, and whether two tensors differ."""

import ctypes
import math
from collections.abc import Iterator, Sequence

import torch

_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_STEADY = 0.001
"""Two answers to the same inputs may differ by this share of the root mean square, or by one rounding of the type."""
_STEADY_ELEMENTS = 0.01  # share of elements that may differ, for integers
_STRIP = 1 << 24


def parts(tensor: torch.Tensor) -> torch.Tensor:
    """Return complex numbers as pairs of floats in one more dimension; other tensors unchanged."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def to_comparable(tensor: torch.Tensor) -> torch.Tensor:
    """Return complex numbers as pairs of floats and booleans as bytes (torch takes any byte but 0 for true)."""
    return tensor.view(torch.uint8) if tensor.dtype is torch.bool else parts(tensor)


def invalid_booleans(outputs: tuple[torch.Tensor, ...]) -> str:
    """Return which boolean output holds a byte other than 0 and 1, or ""."""
    for index, out in enumerate(outputs):
        if out.dtype is torch.bool and out.numel() and (byte := int(to_comparable(out).max())) > 1:
            return f"output {index} holds the byte {byte}, which is no truth value"
    return ""


def strips(*tensors: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """Yield tensors of one size in flat parts, to bound the memory of temporaries."""
    flat = [to_comparable(tensor).reshape(-1) for tensor in tensors]
    for start in range(0, flat[0].numel(), _STRIP):
        yield tuple(part[start : start + _STRIP] for part in flat)


def rms(tensor: torch.Tensor, *less: torch.Tensor) -> float:
    """Return the root mean square of the finite elements of `tensor - less`, in fp64; 0 if there is none."""
    total, count = 0.0, 0
    for part, *others in strips(tensor, *less):
        wide = part.double()
        for other in others:
            wide = wide - other.double()
        sound = wide[wide.isfinite()]
        total += float(sound.square().sum())
        count += sound.numel()
    return math.sqrt(total / count) if count else 0.0


def is_unsteady(first: Sequence[torch.Tensor], again: Sequence[torch.Tensor]) -> bool:
    """Return whether two answers to the same inputs differ by more than the order of additions explains."""
    for mine, theirs in zip(first, again, strict=True):
        if parts(mine).is_floating_point():
            share = max(_STEADY, torch.finfo(parts(mine).dtype).eps)
            if rms(parts(mine), parts(theirs)) > share * rms(parts(mine)):
                return True
        elif mine.numel() and float((mine != theirs).double().mean()) > _STEADY_ELEMENTS:
            return True
    return False


def same_bits(first: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors have the same shape, type and bits."""
    if first.shape != other.shape or first.dtype != other.dtype:
        return False
    return all(torch.equal(mine, theirs) for mine, theirs in strips(bits(first), bits(other)))


def is_constant(tensor: torch.Tensor) -> bool:
    """Return whether all elements are the same."""
    each = bits(tensor).view(-1, tensor.element_size())
    return all(bool((part.view(-1, each.shape[1]) == each[0]).all()) for (part,) in strips(each))


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor's bytes, flat."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def errors(exact: torch.Tensor, got: torch.Tensor) -> tuple[float, float]:
    """Return the largest absolute and the largest relative error of the elements that are finite in both."""
    least = torch.finfo(got.dtype).tiny if parts(got).is_floating_point() else 1
    absolute = relative = 0.0
    for pair in strips(got, exact):
        mine, theirs = (part.double() for part in pair)
        both = mine.isfinite() & theirs.isfinite()
        off, size = (mine - theirs).abs()[both], theirs.abs()[both]
        if off.numel():
            absolute = max(absolute, float(off.max()))
            relative = max(relative, float((off / size.clamp_min(least)).max()))
    return absolute, relative


def same_bytes(first: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two contiguous tensors of one size hold the same bytes. Many times faster than `torch.equal`."""
    if first.is_cuda:
        return torch.equal(first.view(torch.int64), other.view(torch.int64))  # slots are whole pages
    return not _memcmp(first.data_ptr(), other.data_ptr(), first.nbytes)


def is_filled(region: torch.Tensor, byte: int) -> bool:
    """Return whether every byte of a region equals `byte`. The region's size must be a multiple of a page."""
    if region.is_cuda:
        word = int.from_bytes(bytes([byte]) * 8, "little", signed=True)
        return all(int(edge) == word for edge in torch.aminmax(region.view(torch.int64)))
    return int(region[0]) == byte and not _memcmp(region.data_ptr(), region.data_ptr() + 1, region.nbytes - 1)


def number(value: float) -> float | str:
    """Return a value that JSON can hold: strings for NaN and infinity."""
    return value if math.isfinite(value) else str(value)
