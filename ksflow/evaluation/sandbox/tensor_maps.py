"""Tensor maps: descriptors of device arrays for CUDA's bulk copies."""

import ctypes
from collections.abc import Mapping
from typing import Any

TENSOR_MAP_BYTES = 128
_TENSOR_MAP_ALIGNMENT = 64
_ELEMENTS = {
    "float64": 8, "float32": 7, "float16": 6, "bfloat16": 9, "float8_e4m3fn": 0, "float8_e4m3fnuz": 0,
    "float8_e5m2": 0, "float8_e5m2fnuz": 0, "int64": 5, "int32": 3, "int16": 1, "int8": 0, "uint8": 0, "bool": 0,
}  # fmt: skip
"""dtype -> its number in CUtensorMapDataType; types without one are mapped as unsigned integers of their size."""


def tensor_map_numbers(described: Mapping[str, Any]) -> tuple[int, int, int]:
    """Return CUtensorMapDataType, CUtensorMapSwizzle and CUtensorMapL2promotion of a tensor map."""
    swizzle, promotion = (0, 32, 64, 128).index(described["swizzle"]), (0, 64, 128, 256).index(described["l2"])
    return _ELEMENTS[described["dtype"]], swizzle, promotion


def tensor_map(pointer: int, described: Mapping[str, Any]) -> tuple[ctypes.Array[ctypes.c_char], list[Any]]:
    """Return an aligned buffer for a CUtensorMap, and the arguments of cuTensorMapEncodeTiled.

    described: `dtype`, `extents`, `box`, `strides` (bytes, all but the first dimension's), `swizzle` and `l2` (bytes).
    """
    room = (ctypes.c_char * (TENSOR_MAP_BYTES + _TENSOR_MAP_ALIGNMENT))()
    descriptor = (ctypes.c_char * TENSOR_MAP_BYTES).from_buffer(room, -ctypes.addressof(room) % _TENSOR_MAP_ALIGNMENT)
    extents, strides, box = described["extents"], described["strides"], described["box"]
    rank, (kind, swizzle, promotion) = len(extents), tensor_map_numbers(described)
    return descriptor, [
        *(descriptor, ctypes.c_uint(kind), ctypes.c_uint(rank), ctypes.c_void_p(pointer)),
        *((ctypes.c_uint64 * rank)(*extents), (ctypes.c_uint64 * max(rank - 1, 1))(*strides)),
        *((ctypes.c_uint32 * rank)(*box), (ctypes.c_uint32 * rank)(*[1] * rank)),
        *map(ctypes.c_uint, (0, swizzle, promotion, 0)),  # not interleaved; elements outside of the array read as 0
    ]
