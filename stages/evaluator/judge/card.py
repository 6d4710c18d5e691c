"""What is to be known of a GPU before anything is made on it."""

import glob
import os
from dataclasses import dataclass

import torch

_LEAST_CACHE = 32 << 20
_LAST_LEVEL = {"gfx942": 256 << 20, "gfx950": 256 << 20}
"""What the driver does not tell: behind the L2 of each of their dies is a cache for all."""
_DEVICES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/kfd")
_AMD_DEVICES = "/dev/dri/renderD*"
_AMD_FOLDERS = ("/sys/class/kfd", "/sys/devices/virtual/kfd", "/sys/class/drm", "/sys/dev/char", "/sys/devices/pci*")


@dataclass(frozen=True)
class Card:
    """One GPU."""

    name: str
    uuid: str
    memory: int
    """In bytes."""
    cache: int
    """In bytes: what must be written to empty it."""
    files: tuple[str, ...]
    """What a box needs of /dev."""
    folders: tuple[str, ...] = ()
    """Where else AMD's runtime reads what there is."""


_EMULATED = Card("emulated GPU", "emulated", 1 << 30, 1 << 20, ())


def card(platform: str) -> Card:
    """The first GPU that this process sees; `platform` as for `open_driver`."""
    if platform == "emulated":
        return _EMULATED
    found = torch.cuda.get_device_properties(0)
    march = str(getattr(found, "gcnArchName", "")).partition(":")[0]
    cache = max(int(getattr(found, "L2_cache_size", 0)), _LAST_LEVEL.get(march, _LEAST_CACHE))
    return Card(found.name, str(getattr(found, "uuid", found.name)), found.total_memory, cache, _files(), _folders())


def _files() -> tuple[str, ...]:
    cards = [f"/dev/{name}" for name in os.listdir("/dev") if name.startswith("nvidia") and name[6:].isdigit()]
    renderers = glob.glob(_AMD_DEVICES) if os.path.exists("/dev/kfd") else []
    return tuple(sorted(path for path in [*cards, *_DEVICES, *renderers] if os.path.exists(path)))


def _folders() -> tuple[str, ...]:
    if not os.path.exists("/dev/kfd"):
        return ()
    return tuple(path for pattern in _AMD_FOLDERS for path in sorted(glob.glob(pattern)))
