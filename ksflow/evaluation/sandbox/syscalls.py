"""System call numbers (`syscalls.txt`) that the filter and the layers need, for the two supported machines."""

import platform
from functools import cache
from pathlib import Path
from typing import NamedTuple


class Machine(NamedTuple):
    """An architecture's constants for the system call filter."""

    column: int
    audit: int  # the kernel's name for it (AUDIT_ARCH_*)
    foreign: int | None  # numbers from here on belong to another ABI (x32)
    direct: int  # O_DIRECT, the flag of `open` for reading past the page cache


NEWEST = 469  # file_setattr, of Linux 6.17: newer calls are answered as on a kernel without them

_MACHINES = {
    "x86_64": Machine(0, 0xC000003E, 0x40000000, 0o40000),
    "aarch64": Machine(1, 0xC00000B7, None, 0o200000),
}


def machine() -> Machine:
    """Return this machine's constants. Raises OSError if it is not supported."""
    try:
        return _MACHINES[platform.machine()]
    except KeyError:
        raise OSError(f"no system call numbers for {platform.machine()}") from None


def numbers(*names: str) -> list[int]:
    """Return the numbers of the calls that exist on this machine."""
    table = _numbers()
    return [number for number in (table[name] for name in names) if number is not None]


@cache
def _numbers() -> dict[str, int | None]:
    column, table = machine().column, Path(__file__).with_name("syscalls.txt").read_text(encoding="utf-8")
    rows = (row.split() for row in table.splitlines() if not row.startswith("#"))
    return {name: int(columns[column]) if columns[column] != "-" else None for name, *columns in rows}
