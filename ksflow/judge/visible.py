"""What is to be known of a GPU before anything is made on it."""

from dataclasses import dataclass

import torch

from ksflow.processes.device_lock import device_files, runtime_folders

_LEAST_CACHE = 32 << 20
_LAST_LEVEL = {"gfx942": 256 << 20, "gfx950": 256 << 20}
"""What the driver does not tell: behind the L2 of each of their dies is a cache for all."""


@dataclass(frozen=True)
class GpuProperties:
    """One GPU."""

    name: str
    uuid: str
    memory: int
    """In bytes."""
    cache: int
    """In bytes: what must be written to empty it."""
    files: tuple[str, ...]
    """What a sandbox needs of /dev."""
    folders: tuple[str, ...] = ()
    """Where else AMD's runtime reads what there is."""


_EMULATED = GpuProperties("emulated GPU", "emulated", 1 << 30, 1 << 20, ())


def gpu_properties(platform: str) -> GpuProperties:
    """The first GPU that this process sees; `platform` as for `open_driver`."""
    if platform == "emulated":
        return _EMULATED
    found = torch.cuda.get_device_properties(0)
    march = str(getattr(found, "gcnArchName", "")).partition(":")[0]
    cache = max(int(getattr(found, "L2_cache_size", 0)), _LAST_LEVEL.get(march, _LEAST_CACHE))
    uuid = str(getattr(found, "uuid", found.name))
    return GpuProperties(found.name, uuid, found.total_memory, cache, device_files(), runtime_folders())
