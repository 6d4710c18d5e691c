"""Occupancy: how many warps or waves of a kernel fit on a multiprocessor at once, from its compiler's figures.

NVIDIA: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability", and the allocation rules of
`cuda_occupancy.h`: registers by 256 for a warp, warps by 4 for a block, shared memory by 128 bytes and 1 KiB of the
system's own for each block. AMD: "AMD Instinct MI200/MI300/CDNA4 Instruction Set Architecture" and LLVM's
AMDGPUBaseInfo: 512 VGPRs for each lane of a SIMD by 8, at most 8 waves on each of 4 SIMDs, at most 16 workgroups of
more than one wave on a compute unit, LDS by 512 bytes (gfx950: 1280).
"""

from dataclasses import dataclass

_REGISTERS, _REGISTER_UNIT, _WARP_UNIT, _WARP = 65536, 256, 4, 32
_SHARED_UNIT, _SHARED_OWN = 128, 1024
_VGPRS, _VGPR_UNIT, _WAVES, _SIMDS, _WAVE, _GROUPS = 512, 8, 8, 4, 64, 16
_SM = {"80": (64, 32, 164), "86": (48, 16, 100), "89": (48, 24, 100), "90": (64, 32, 228), "100": (64, 32, 228)}
"""Compute capability -> most warps, most blocks, KiB of shared memory of a multiprocessor."""
_CU = {"gfx90a": (64 << 10, 512), "gfx942": (64 << 10, 512), "gfx950": (160 << 10, 1280)}
"""Architecture -> bytes of LDS of a compute unit, and its allocation unit."""


@dataclass(frozen=True)
class Occupancy:
    """Occupancy of one kernel with one block size."""

    warps: int  # on a multiprocessor, or waves on a SIMD
    most: int
    limited_by: str  # the scarce resource: `registers`, `shared`, `blocks` or `warps`

    @property
    def fraction(self) -> float:
        """The share of the most possible warps."""
        return self.warps / self.most


def occupancy(march: str, threads: int, registers: int, shared: int) -> Occupancy | None:
    """Return the occupancy of blocks of so many threads, registers for each, and bytes of shared memory; None for an
    unknown chip."""
    if cu := _CU.get(march.partition(":")[0]):
        lds, unit = cu
        most, each, waves = _WAVES, 1, _up(threads, _WAVE)
        fits = {
            "registers": min(_VGPRS // (_up(max(registers, 1), _VGPR_UNIT) * _VGPR_UNIT), _WAVES),
            "shared": _on_simd(lds // (_up(max(shared, 1), unit) * unit), waves),
            "blocks": _on_simd(_GROUPS, waves) if waves > 1 else _WAVES,
            "warps": _WAVES,
        }
    elif sm := _SM.get(march.removeprefix("sm_").rstrip("af")):
        most, blocks, kib = sm
        each = _up(threads, _WARP)
        by_registers = _REGISTERS // (_up(max(registers, 1) * _WARP, _REGISTER_UNIT) * _REGISTER_UNIT)
        fits = {
            "registers": by_registers // _WARP_UNIT * _WARP_UNIT // each,
            "shared": (kib << 10) // (_up(shared, _SHARED_UNIT) * _SHARED_UNIT + _SHARED_OWN),
            "blocks": blocks,
            "warps": most // each,
        }
    else:
        return None
    scarce = min(fits, key=lambda name: fits[name])
    return Occupancy(fits[scarce] * each, most, "warps" if fits[scarce] == fits["warps"] else scarce)


def _on_simd(groups: int, waves: int) -> int:
    return min(_up(groups * waves, _SIMDS), _WAVES)


def _up(value: int, unit: int) -> int:
    return -(-value // unit)
