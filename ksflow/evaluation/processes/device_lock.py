"""Sharing of GPUs by the processes of this machine: the files that a sandbox needs, and a lock for each. Imports no
torch.

Judging a kernel, and inspecting it with a vendor's tool, both take the whole device: either holds its lock.
"""

import contextlib
import glob
import os
import pwd
from collections.abc import Iterator
from pathlib import Path

from ksflow import home
from ksflow.errors import strip_controls
from ksflow.evaluation.processes.deadline import locked_within

PATIENCE_S = 1800.0  # default wait for a device
_SHOWN = 120  # characters of a command line
_DEVICES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/kfd")
_AMD_DEVICES = "/dev/dri/renderD*"
_AMD_FOLDERS = ("/sys/class/kfd", "/sys/devices/virtual/kfd", "/sys/class/drm", "/sys/dev/char", "/sys/devices/pci*")


class DeviceBusy(RuntimeError):
    """Another process holds the device's lock, and did not release it in time."""


def nvidia_cards() -> list[str]:
    """Return the files below /dev of this machine's NVIDIA GPUs, one for each."""
    return [f"/dev/{name}" for name in os.listdir("/dev") if name.startswith("nvidia") and name[6:].isdigit()]


def device_files(card: str = "") -> tuple[str, ...]:
    """Return the files below /dev by which programs access this machine's GPUs; of NVIDIA's only `card`, if given."""
    cards = [card] if card else nvidia_cards()
    renderers = glob.glob(_AMD_DEVICES) if os.path.exists("/dev/kfd") else []
    return tuple(sorted(path for path in [*cards, *_DEVICES, *renderers] if os.path.exists(path)))


def runtime_folders() -> tuple[str, ...]:
    """Return the folders below /sys in which AMD's runtime lists GPUs; empty without an AMD GPU."""
    if not os.path.exists("/dev/kfd"):
        return ()
    return tuple(path for pattern in _AMD_FOLDERS for path in sorted(glob.glob(pattern)))


def lock_file(uuid: str) -> str:
    """Return the path of a device's lock file."""
    return f"/tmp/ksflow-device-{uuid}.lock"


@contextlib.contextmanager
def lock_device(uuid: str, patience_s: float = PATIENCE_S) -> Iterator[None]:
    """Hold the machine-wide lock of the device with this UUID. Raises DeviceBusy after a while, which names the holder.

    The lock is on a file, created if missing: the holder's end releases it, and the kernel knows the holder. Every user
    of this machine can lock it, because a device serves one process at a time; so every user can also block others. If
    this user cannot open the file, a file in the user's own cache is locked, which only excludes this user's processes.
    """
    file = lock_file(uuid)
    try:
        lock = _opened(file)
    except OSError:
        file = str(home.cache(os.path.basename(file)))
        os.makedirs(os.path.dirname(file), exist_ok=True)
        lock = _opened(file)
    try:
        if not locked_within(lock, patience_s):
            raise DeviceBusy(
                f"{_holder(lock) or 'another process'} holds {file} for {patience_s:g} s: end it (fuser -v {file})"
            )
        yield
    finally:
        os.close(lock)


def _opened(file: str) -> int:
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        return os.open(file, flags)
    except FileNotFoundError:
        made = os.open(file, flags | os.O_CREAT, 0o666)
        with contextlib.suppress(PermissionError):  # another user has made it meanwhile
            os.fchmod(made, 0o666)
        return made


def _holder(lock: int) -> str:
    """Return the process, command and user that hold the lock of an open file; "" if not visible."""
    status = os.fstat(lock)
    inode = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    with contextlib.suppress(FileNotFoundError, ValueError):
        for line in home.text_of(Path("/proc/locks")).splitlines():
            _, kind, _, _, pid, where, *_ = line.split()
            if kind != "FLOCK" or where != inode or int(pid) <= 0:
                continue
            words = home.text_of(Path("/proc", pid, "cmdline")).replace("\0", " ").strip()
            uid = os.stat(f"/proc/{pid}").st_uid
            return f"process {pid} ({strip_controls(words)[:_SHOWN]}, user {_name(uid)})"
    return ""


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
