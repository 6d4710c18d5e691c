"""How processes of this machine share its GPUs: the files that a sandbox needs, and a lock for each. Imports no torch.

Judging a kernel, and looking at it with a vendor's tool, both take the whole device: who does either holds its lock.
"""

import contextlib
import glob
import os
from collections.abc import Iterator

from ksflow.processes.deadline import locked_within

PATIENCE_S = 1800.0
"""How long a device is waited for unless told otherwise."""
_DEVICES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/kfd")
_AMD_DEVICES = "/dev/dri/renderD*"
_AMD_FOLDERS = ("/sys/class/kfd", "/sys/devices/virtual/kfd", "/sys/class/drm", "/sys/dev/char", "/sys/devices/pci*")


class DeviceBusy(RuntimeError):
    """Another process holds the device's lock, and did not release it in time."""


def device_files() -> tuple[str, ...]:
    """The files below /dev through which programs reach this machine's GPUs."""
    cards = [f"/dev/{name}" for name in os.listdir("/dev") if name.startswith("nvidia") and name[6:].isdigit()]
    renderers = glob.glob(_AMD_DEVICES) if os.path.exists("/dev/kfd") else []
    return tuple(sorted(path for path in [*cards, *_DEVICES, *renderers] if os.path.exists(path)))


def runtime_folders() -> tuple[str, ...]:
    """The folders below /sys in which AMD's runtime reads which GPUs there are; none where there is no AMD GPU."""
    if not os.path.exists("/dev/kfd"):
        return ()
    return tuple(path for pattern in _AMD_FOLDERS for path in sorted(glob.glob(pattern)))


def lock_file(uuid: str) -> str:
    """The file whose lock is the device's."""
    return f"/tmp/ksflow-device-{uuid}.lock"


@contextlib.contextmanager
def lock_device(uuid: str, patience_s: float = PATIENCE_S) -> Iterator[None]:
    """Hold the lock of the device with this UUID, alone on this machine. Raises DeviceBusy after a while.

    It is a lock on a file, which every user of this machine can lock, made where it is not there: its holder's end
    releases it, and the kernel knows who holds it.
    """
    file = lock_file(uuid)
    try:
        lock = os.open(file, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        lock = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        with contextlib.suppress(OSError):
            os.fchmod(lock, 0o666)
    try:
        if not locked_within(lock, patience_s):
            raise DeviceBusy(f"another process holds {file} for {patience_s:g} s: end it (fuser -v {file})")
        yield
    finally:
        os.close(lock)
