"""A GPU driver's interface through ctypes: shared memory, the default stream, events, device code. Imports no torch.

`Driver` calls libcuda, `HipDriver` calls libamdhip64 under the same method names; `emulated_driver` needs no GPU;
`open_driver` selects one. A process has one context, on device 0 of the visible ones (CUDA_VISIBLE_DEVICES,
HIP_VISIBLE_DEVICES). The HIP half follows the public interface and has not run on a chip.
"""

import ctypes
import importlib.util
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from ksflow.evaluation.sandbox.tensor_maps import tensor_map

_POSIX_FILE = 1
_PINNED, _DEVICE = 1, 1
_READ_WRITE = 3
_REGISTER = 3  # for every context, and with a device address
_AT_LEAST = 0
_NOT_READY = 600  # status of both drivers while work is pending
_SHARED_LIMIT = 8
"""The function attribute with the limit of a block's dynamic shared memory, by default 48 KiB less the kernel's static
shared memory."""
_BY_NUMBER = 70_100_000  # HIP's version 7.1, as HIP encodes it

Pointer = int
Work = Callable[[], None]
_Value = TypeVar("_Value", ctypes.c_int, ctypes.c_float, ctypes.c_size_t, ctypes.c_ulonglong, ctypes.c_void_p)


class DriverError(Exception):
    """A driver call failed; the text has the driver's name of the error."""


_PROPERTIES = struct.pack("=iiiiQ8x", _PINNED, _POSIX_FILE, _DEVICE, 0, 0)
"""Properties of shared memory (CUmemAllocationProp): type, kind of handle, location."""
_ACCESS = struct.pack("=iii", _DEVICE, 0, _READ_WRITE)  # access of the first device to shared memory (CUmemAccessDesc)
_LAUNCH = struct.Struct("=7I4xQQI4x")
"""CUlaunchConfig: grid, block, dynamic shared memory, stream, address and number of attributes."""
_EARLY = ctypes.create_string_buffer(struct.pack("=i4xi60x", 6, 1), 72)
"""The attribute (CUlaunchAttribute) that lets a launch begin before the previous launch on the stream has ended
(PROGRAMMATIC_STREAM_SERIALIZATION). A later launch without it waits for both."""


def early_launch(shape: Sequence[int], shared: int, stream: int = 0) -> bytes:
    """Return the CUlaunchConfig of a kernel that may begin before the previous one on the stream has ended."""
    return _LAUNCH.pack(*shape, shared, stream, ctypes.addressof(_EARLY), 1)


class Driver:
    """CUDA's driver. All sizes in bytes; pointers and handles are integers. Methods raise DriverError."""

    library = "libcuda.so.1"
    prefix = "cu"
    names: ClassVar[dict[str, str]] = {
        "MemHostRegister": "MemHostRegister_v2",
        "MemHostGetDevicePointer": "MemHostGetDevicePointer_v2",
        "MemAlloc": "MemAlloc_v2",
        "MemFree": "MemFree_v2",
        "MemcpyDtoHAsync": "MemcpyDtoHAsync_v2",
        "StreamWaitValue32": "StreamWaitValue32_v2",
        "StreamWriteValue32": "StreamWriteValue32_v2",
    }  # function of the interface -> symbol in the library
    wait_tail: tuple[ctypes.c_uint, ...] = ()
    beside_host: ClassVar[bool] = True
    """Whether the device executes a process' queued work while that process is stopped."""

    def __init__(self) -> None:
        self._allowed: dict[int | None, int] = {}
        try:
            self._library = ctypes.CDLL(self._path())
        except OSError as error:
            raise DriverError(f"{self.library} cannot be loaded: {error}") from error
        self.call("Init", ctypes.c_uint(0))
        self._attach()

    def _path(self) -> str:
        return self.library

    def _attach(self) -> None:
        """Set the primary context, which torch and the runtime use too."""
        device = self._get(ctypes.c_int, "DeviceGet", 0)
        self.call("CtxSetCurrent", self._get(ctypes.c_void_p, "DevicePrimaryCtxRetain", device))

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the driver."""
        if status := getattr(self._library, self.prefix + self.names.get(name, name))(*arguments):
            raise DriverError(f"{name}: {self._text(status)}")

    def _get(self, kind: type[_Value], name: str, *arguments: Any) -> _Value:
        """Return the value that a call writes through its first argument."""
        value = kind()
        self.call(name, ctypes.byref(value), *arguments)
        return value

    def _text(self, status: int) -> str:
        name, text = ctypes.c_char_p(), ctypes.c_char_p()
        self._library.cuGetErrorName(status, ctypes.byref(name))
        self._library.cuGetErrorString(status, ctypes.byref(text))
        return f"{(name.value or b'?').decode()}, {(text.value or b'').decode()}"

    def address(self) -> str:
        """Return the device's PCI address: `0000:c1:00.0`."""
        text = ctypes.create_string_buffer(32)
        self.call("DeviceGetPCIBusId", text, ctypes.c_int(len(text)), ctypes.c_int(0))
        return text.value.decode()

    def granularity(self) -> int:
        """Return the number of bytes of which sizes of shared memory are multiples."""
        return self._get(ctypes.c_size_t, "MemGetAllocationGranularity", _PROPERTIES, 0).value

    def share_memory(self, size: int) -> tuple[Pointer, int]:
        """Allocate device memory; return its pointer, and a file descriptor by which another process can map it."""
        none = ctypes.c_ulonglong(0)
        handle = self._get(ctypes.c_ulonglong, "MemCreate", ctypes.c_size_t(size), _PROPERTIES, none)
        file = self._get(ctypes.c_int, "MemExportToShareableHandle", handle, _POSIX_FILE, none)
        return self._map(handle, size), file.value

    def map_shared(self, file: int, size: int) -> Pointer:
        """Map another process' shared memory."""
        handle = self._get(ctypes.c_ulonglong, "MemImportFromShareableHandle", self._file(file), _POSIX_FILE)
        return self._map(handle, size)

    def _file(self, number: int) -> Any:
        """Return a descriptor in the form that the import takes."""
        return ctypes.c_void_p(number)

    def unmap_shared(self, pointer: Pointer, size: int) -> None:
        """Unmap shared memory, which is freed when no process maps it."""
        self.call("MemUnmap", ctypes.c_ulonglong(pointer), ctypes.c_size_t(size))
        self.call("MemAddressFree", ctypes.c_ulonglong(pointer), ctypes.c_size_t(size))

    def _map(self, handle: ctypes.c_ulonglong, size: int) -> Pointer:
        amount, nothing, none = ctypes.c_size_t(size), ctypes.c_size_t(0), ctypes.c_ulonglong(0)
        pointer = self._get(ctypes.c_ulonglong, "MemAddressReserve", amount, nothing, none, none)
        self.call("MemMap", pointer, amount, nothing, handle, none)
        self.call("MemSetAccess", pointer, amount, _ACCESS, ctypes.c_size_t(1))
        self.call("MemRelease", handle)  # the mapping keeps the memory alive
        return pointer.value

    def allocate(self, size: int) -> Pointer:
        """Allocate private device memory."""
        return self._get(ctypes.c_ulonglong, "MemAlloc", ctypes.c_size_t(max(size, 1))).value

    def map_host(self, address: int, size: int) -> Pointer:
        """Register host memory and return its device pointer."""
        pointer = ctypes.c_void_p(address)
        self.call("MemHostRegister", pointer, ctypes.c_size_t(size), ctypes.c_uint(_REGISTER))
        return self._get(ctypes.c_ulonglong, "MemHostGetDevicePointer", pointer, ctypes.c_uint(0)).value

    def unmap_host(self, address: int) -> None:
        """Undo `map_host`."""
        self.call("MemHostUnregister", ctypes.c_void_p(address))

    def submit(self, call: Work) -> None:
        """Make a call that queues work on the stream."""
        call()

    def wait(self, pointer: Pointer, value: int) -> None:
        """Hold the stream until the word at `pointer` is at least `value`."""
        number, at_least = ctypes.c_uint(value), ctypes.c_uint(_AT_LEAST)
        self.call("StreamWaitValue32", None, ctypes.c_ulonglong(pointer), number, at_least, *self.wait_tail)

    def write(self, pointer: Pointer, value: int) -> None:
        """Write a word after all previous work on the stream."""
        self.call("StreamWriteValue32", None, ctypes.c_ulonglong(pointer), ctypes.c_uint(value), ctypes.c_uint(0))

    def clear(self, pointer: Pointer, size: int) -> None:
        """Queue a write of zeros."""
        self.call("MemsetD8Async", ctypes.c_ulonglong(pointer), ctypes.c_ubyte(0), ctypes.c_size_t(size), None)

    def copy_out(self, pointer: Pointer, address: int, size: int) -> None:
        """Queue a copy of device memory to registered host memory."""
        self.call("MemcpyDtoHAsync", ctypes.c_void_p(address), ctypes.c_ulonglong(pointer), ctypes.c_size_t(size), None)

    def synchronize(self) -> None:
        """Wait for all work in this context."""
        self.call("CtxSynchronize")

    def event(self) -> ctypes.c_void_p:
        """Return a new event that records time."""
        return self._get(ctypes.c_void_p, "EventCreate", ctypes.c_uint(0))

    def record(self, event: ctypes.c_void_p) -> None:
        self.call("EventRecord", event, None)

    def is_reached(self, event: ctypes.c_void_p) -> bool:
        """Return whether all work before the event's record is done. Raises DriverError if it failed."""
        status = getattr(self._library, self.prefix + "EventQuery")(event)
        if status not in (0, _NOT_READY):
            raise DriverError(f"EventQuery: {self._text(status)}")
        return not status

    def elapsed_us(self, before: ctypes.c_void_p, after: ctypes.c_void_p) -> float:
        """Return the µs between two recorded events."""
        return self._get(ctypes.c_float, "EventElapsedTime", before, after).value * 1e3

    def load(self, code: bytes) -> ctypes.c_void_p:
        """Load a module from a cubin or a code object."""
        return self._get(ctypes.c_void_p, "ModuleLoadData", code)

    def function(self, module: ctypes.c_void_p, name: str, shared: int) -> ctypes.c_void_p:
        """Return a kernel that may use at least `shared` bytes of dynamic shared memory."""
        function = self._get(ctypes.c_void_p, "ModuleGetFunction", module, name.encode())
        if shared > self._allowed.get(function.value, 0):
            self._allowed[function.value] = shared
            self.call("FuncSetAttribute", function, _SHARED_LIMIT, ctypes.c_int(shared))
        return function

    def parameters(self, function: ctypes.c_void_p) -> list[int] | None:
        """Return the size of each parameter, None if the driver does not report it."""
        if not hasattr(self._library, "cuFuncGetParamInfo"):
            return None
        sizes: list[int] = []
        offset, size = ctypes.c_size_t(), ctypes.c_size_t()
        while not self._library.cuFuncGetParamInfo(
            function, ctypes.c_size_t(len(sizes)), ctypes.byref(offset), ctypes.byref(size)
        ):
            sizes.append(size.value)
        return sizes

    def tensor_map(self, pointer: Pointer, described: Mapping[str, Any]) -> ctypes.Array[ctypes.c_char]:
        """Return the encoded `tensor_map` of a device array for bulk copies; CUDA only."""
        descriptor, arguments = tensor_map(pointer, described)
        self.call("TensorMapEncodeTiled", *arguments)
        return descriptor

    def launch(
        self, function: ctypes.c_void_p, shape: Sequence[int], shared: int, arguments: Any, pdl: bool = False
    ) -> None:
        """Launch a kernel on the default stream. shape: grid and block. arguments: an array of addresses. pdl: the
        kernel may begin before the previous one has ended; CUDA only.
        """
        if pdl:
            self.call("LaunchKernelEx", early_launch(shape, shared), function, arguments, None)
            return
        sizes = [ctypes.c_uint(size) for size in shape]
        self.call(self.launcher, function, *sizes, ctypes.c_uint(shared), None, arguments, None)

    launcher = "LaunchKernel"


class HipDriver(Driver):
    """AMD's driver, by HIP's names."""

    library = "libamdhip64.so"
    prefix = "hip"
    names: ClassVar[dict[str, str]] = {
        "MemHostRegister": "HostRegister",
        "MemHostUnregister": "HostUnregister",
        "MemHostGetDevicePointer": "HostGetDevicePointer",
        "MemAlloc": "Malloc",
        "MemFree": "Free",
        "CtxSynchronize": "DeviceSynchronize",
        "EventCreate": "EventCreateWithFlags",
    }
    wait_tail = (ctypes.c_uint(0xFFFFFFFF),)
    launcher = "ModuleLaunchKernel"

    def _path(self) -> str:
        """Return the path of torch's own library, if there is one: a process must not load two."""
        torch = importlib.util.find_spec("torch")
        folders = (torch.submodule_search_locations or []) if torch else []
        own = [str(path) for folder in folders if (path := Path(folder, "lib", self.library)).is_file()]
        return (*own, self.library)[0]

    def _attach(self) -> None:
        self.call("SetDevice", 0)

    def _file(self, number: int) -> Any:
        """Return the address of the descriptor up to ROCm 7.0, then its number."""
        version = self._get(ctypes.c_int, "RuntimeGetVersion").value
        return super()._file(number) if version >= _BY_NUMBER else ctypes.byref(ctypes.c_int(number))

    def _text(self, status: int) -> str:
        describe = self._library.hipGetErrorString
        describe.restype = ctypes.c_char_p
        return str((describe(status) or b"?").decode())

    def function(self, module: ctypes.c_void_p, name: str, shared: int) -> ctypes.c_void_p:
        return self._get(ctypes.c_void_p, "ModuleGetFunction", module, name.encode())

    def parameters(self, function: ctypes.c_void_p) -> list[int] | None:
        return None


def open_driver(platform: str) -> Driver:
    """Return the driver of a platform: `cuda`, `hip`, or `emulated`."""
    if platform == "emulated":
        from ksflow.evaluation.sandbox.emulated_driver import Emulated

        return Emulated()
    return HipDriver() if platform == "hip" else Driver()


def torch_device(platform: str) -> str:
    """Return torch's device for a platform."""
    return "cpu" if platform == "emulated" else "cuda"
