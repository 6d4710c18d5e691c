"""What is to be known of a GPU before anything is made on it."""

import os
from dataclasses import dataclass

import torch

_LEAST_CACHE = 32 << 20
_DEVICES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/kfd", "/dev/dri")


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


_EMULATED = Card("emulated GPU", "emulated", 1 << 30, 1 << 20, ())


def card(platform: str) -> Card:
    """The first GPU that this process sees; `platform` as for `open_driver`."""
    if platform == "emulated":
        return _EMULATED
    found = torch.cuda.get_device_properties(0)
    cache = max(int(getattr(found, "L2_cache_size", 0)), _LEAST_CACHE)
    return Card(found.name, str(getattr(found, "uuid", found.name)), found.total_memory, cache, _files())


def _files() -> tuple[str, ...]:
    cards = [f"/dev/{name}" for name in os.listdir("/dev") if name.startswith("nvidia") and name[6:].isdigit()]
    return tuple(sorted(path for path in [*cards, *_DEVICES] if os.path.exists(path)))
