"""A program that launches AMD code objects through /dev/kfd, by Linux' own interface: no HIP, no ROCm, no package.

It runs under rocjitsu, which plays the device, as a file of its own beside `order.json` (launches, sizes),
`kernel.json` (a device container) and `memory.bin` (the tensors, which it writes back; then it makes `done`).
Covered: the launches of one case, one after the other; arguments by the ABI of code objects 5 and 6. NOT covered:
events, printf, what only a real device needs to run.
"""

import base64
import ctypes
import fcntl
import json
import mmap
import os
import struct
import time
from collections.abc import Sequence
from typing import Any

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_WRITE, _READ = 1, 2
_GET_VERSION, _CREATE_QUEUE, _APERTURES, _ACQUIRE_VM, _ALLOCATE, _MAP = 0x01, 0x02, 0x14, 0x15, 0x16, 0x18
_APERTURE = struct.Struct("=6QII")
_OWN_MEMORY = 1 << 31 | 1 << 30 | 1 << 26 | 1 << 2
"""This process's, which the device may write to and execute, coherent."""
_QUEUES = (("=4Q6I3Q4I", (0,) * 7), ("=4Q6I3Q2I", (0,) * 5))
"""A queue's description as Linux has it since 2024, and before."""
_AQL, _WHOLE, _PRIORITY = 2, 100, 7
_PACKET = struct.Struct("=6H5I4Q")
_SLOTS, _DOORBELLS = 64, 8192
_WRITTEN, _BASES, _READ_SO_FAR = 56, 64, 128
"""Where a queue's descriptor has the numbers of packets, and where local and private memory begin."""
_DISPATCH, _INVALID = 2 | 1 << 8 | 2 << 9 | 2 << 11, 1
"""A packet's header: a kernel, after all before it, which sees and shows all memory; nothing yet."""
_SIZES = {"int": 4, "arg": 8, "workspace": 8}
_STALE = b"\xff"
"""What workspaces are filled with: NaN in every float format."""
_LOOK_S = 0.0005


class Gpu:
    """The device, with one queue."""

    def __init__(self) -> None:
        self._kfd = os.open("/dev/kfd", os.O_RDWR | os.O_CLOEXEC)
        self._count = 0
        self._regions: list[mmap.mmap] = []
        self._ask(_GET_VERSION, _READ, "=II", 0, 0)
        apertures = ctypes.create_string_buffer(_APERTURE.size)
        self._ask(_APERTURES, _READ | _WRITE, "=QII", ctypes.addressof(apertures), 1, 0)
        local, _, private, _, _, _, self._id, _ = _APERTURE.unpack(apertures.raw)
        self._ask(_ACQUIRE_VM, _WRITE, "=II", 0, self._id)
        size = _SLOTS * _PACKET.size
        self._ring, ring = self.memory(size, struct.pack("=H62x", _INVALID) * _SLOTS)
        self._about, about = self.memory(mmap.PAGESIZE, struct.pack("=8xQ8xI", ring, _SLOTS))
        struct.pack_into("=II", self._about, _BASES, local >> 32, private >> 32)
        struct.pack_into("=I", self._about, _READ_SO_FAR + 8, _READ_SO_FAR)
        first = (ring, about + _WRITTEN, about + _READ_SO_FAR, 0, size, self._id, _AQL, _WHOLE, _PRIORITY, 0)
        answers = (self._ask(_CREATE_QUEUE, _READ | _WRITE, layout, *first, *rest)[3] for layout, rest in _QUEUES)
        offset = next(filter(None, answers), 0)  # one that does not know the request does nothing
        place = ctypes.c_uint64(offset & ~(_DOORBELLS - 1))
        bells = _LIBC.mmap(None, ctypes.c_size_t(_DOORBELLS), 3, mmap.MAP_SHARED, self._kfd, place)
        if not offset or bells == ctypes.c_void_p(-1).value:
            raise OSError(f"the device makes no queue: {os.strerror(ctypes.get_errno())}")
        self._bell = ctypes.c_uint64.from_address(bells + offset % _DOORBELLS)

    def _ask(self, number: int, direction: int, layout: str, *values: int) -> tuple[int, ...]:
        """One request; the values as the device leaves them."""
        words = bytearray(struct.pack(layout, *values))
        fcntl.ioctl(self._kfd, direction << 30 | len(words) << 16 | ord("K") << 8 | number, words, True)
        return struct.unpack(layout, words)

    def memory(self, size: int, content: bytes = b"") -> tuple[mmap.mmap, int]:
        """Memory with this at its beginning, and its address, which is the same for both."""
        size = -(-max(size, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
        region = mmap.mmap(-1, size)
        region[: len(content)] = content
        self._regions.append(region)  # the device knows the address alone
        address = ctypes.addressof(ctypes.c_char.from_buffer(region))
        asked = (address, size, 0, address, self._id, _OWN_MEMORY)
        handle = self._ask(_ALLOCATE, _READ | _WRITE, "=4QII", *asked)[2]
        devices = ctypes.c_uint32(self._id)
        self._ask(_MAP, _READ | _WRITE, "=QQII", handle, ctypes.addressof(devices), 1, 0)
        return region, address

    def launch(self, descriptor: int, launch: dict[str, Any], arguments: bytes, until: float) -> None:
        """Run a kernel to its end. TimeoutError when that takes too long."""
        fixed, private = (ctypes.c_uint32.from_address(descriptor + place).value for place in (0, 4))
        _, address = self.memory(len(arguments), arguments)
        signal, done = self.memory(64, struct.pack("=qq", 1, 1))
        grid = [length * threads for length, threads in zip(launch["grid"], launch["block"], strict=True)]
        shape = (*launch["block"], 0, *grid, private, fixed + launch["shared"])
        at = self._count % _SLOTS * _PACKET.size
        _PACKET.pack_into(self._ring, at, _INVALID, 3, *shape, descriptor, address, 0, done)
        struct.pack_into("=H", self._ring, at, _DISPATCH)
        struct.pack_into("=Q", self._about, _WRITTEN, self._count + 1)
        self._bell.value, self._count = self._count, self._count + 1
        while struct.unpack_from("=q", signal, 8)[0] > 0:
            if time.monotonic() > until:
                raise TimeoutError(f"{launch['kernel']} does not end")
            time.sleep(_LOOK_S)


def load(gpu: Gpu, code: bytes) -> dict[str, int]:
    """Kernel -> the address of its descriptor, once the code object's segments lie in memory."""
    programs, sections = struct.unpack_from("=QQ", code, 32)
    program_size, programs_count, section_size, sections_count = struct.unpack_from("=4H", code, 54)
    headers = [struct.unpack_from("=II6Q", code, programs + n * program_size) for n in range(programs_count)]
    segments = [(offset, place, size, room) for kind, _, offset, place, _, size, room, _ in headers if kind == 1]
    memory, base = gpu.memory(max(place + room for _, place, _, room in segments))
    for offset, place, size, _ in segments:
        memory[place : place + size] = code[offset : offset + size]
    tables = [struct.unpack_from("=II4QIIQQ", code, sections + n * section_size) for n in range(sections_count)]
    symbols: list[tuple[str, int]] = []
    for _, kind, _, _, offset, size, link, *_ in tables:
        if kind == 11:  # the dynamic symbols
            for at in range(offset, offset + size, 24):
                name, _, value, _ = struct.unpack_from("=IIQQ", code, at)
                start = tables[link][4] + name
                symbols.append((code[start : code.index(b"\0", start)].decode(), value))
    for _, kind, _, place, offset, size, *_ in tables:
        if kind == 4 and place:  # relocations
            for where, what, addend in struct.iter_unpack("=QQq", code[offset : offset + size]):
                if what & 0xFFFFFFFF not in (3, 13):
                    raise ValueError(f"the code object has a relocation of kind {what & 0xFFFFFFFF}")
                value = symbols[what >> 32][1] if what & 0xFFFFFFFF == 3 else 0
                struct.pack_into("=q", memory, where, base + value + addend)
    return {name.removesuffix(".kd"): base + value for name, value in symbols if name.endswith(".kd")}


def arguments(launch: dict[str, Any], places: dict[str, list[int]]) -> bytes:
    """The block of a launch's arguments: its own, each aligned to its size, then those that compilers add."""
    values = [value if kind == "int" else places[kind][value] for kind, value in launch["args"]]
    sizes: Sequence[int] = launch["parameters"] or [_SIZES[kind] for kind, _ in launch["args"]]
    if len(sizes) < len(values) or (len(sizes) > len(values) and not launch["spare"]):
        raise ValueError(f"{launch['kernel']} takes {len(sizes)} arguments, its launch line has {len(values)}")
    block = b""
    for value, size in zip([*values, *[0] * (len(sizes) - len(values))], sizes, strict=True):
        block += bytes(-len(block) % size) + value.to_bytes(size, "little", signed=value < 0)
    block += bytes(-len(block) % 8)
    dimensions = max([1, *(n + 1 for n in range(3) if launch["grid"][n] * launch["block"][n] > 1)])
    added = struct.pack("=3I6H40xH54xI", *launch["grid"], *launch["block"], 0, 0, 0, dimensions, launch["shared"])
    return block + added.ljust(256, b"\0")


def main() -> None:
    """Do what is ordered."""
    with open("order.json", encoding="utf-8") as file, open("kernel.json", encoding="utf-8") as other:
        order, codes = json.load(file), json.load(other)["codes"]
    until = time.monotonic() + order["deadline_s"]
    gpu = Gpu()
    with open("memory.bin", "r+b") as file:
        tensors = [gpu.memory(size, file.read(size)) for size in order["tensors"]]
        rooms = [gpu.memory(size, _STALE * size) for size in order["workspaces"]]
        places = {"arg": [address for _, address in tensors], "workspace": [address for _, address in rooms]}
        loaded: dict[int, dict[str, int]] = {}
        for launch in order["launches"]:
            index = launch["code"]
            kernels = loaded.get(index) or loaded.setdefault(index, load(gpu, base64.b64decode(codes[index])))
            gpu.launch(kernels[launch["kernel"]], launch, arguments(launch, places), until)
        file.seek(0)
        for (memory, _), size in zip(tensors, order["tensors"], strict=True):
            file.write(memory[:size])
    with open("done", "w", encoding="utf-8"):
        """Whoever ordered it knows now that it came to its end."""


if __name__ == "__main__":
    main()
