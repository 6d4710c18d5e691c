"""The drivers, as far as a library with their interface shows them without a GPU."""

import base64
import ctypes
import os
import shutil
import struct
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from ksflow.evaluation.judge.gpu_state import Amdgpu
from ksflow.evaluation.sandbox.driver import _EARLY, _LAUNCH, Driver, HipDriver, open_driver
from ksflow.evaluation.sandbox.runners.device import Launcher
from ksflow.records import Json

RUNTIME = """
#include <stdio.h>
static int descriptor;
int hipInit(unsigned flags) { return 0; }
int hipSetDevice(int device) { return 0; }
int hipRuntimeGetVersion(int *version) { *version = VERSION; return 0; }
int hipMemImportFromShareableHandle(void *handle, void *file, int type) {
  descriptor = VERSION >= 70100000 ? (int)(long)file : *(int *)file;
  return 0;
}
int hipMemAddressReserve(long *at, long size, long alignment, void *hint, long flags) { return *at = 4096, 0; }
int hipMemMap(void *at, long size, long offset, void *handle, long flags) { return 0; }
int hipMemSetAccess(void *at, long size, void *access, long count) { return descriptor != 7; }
int hipMemRelease(void *handle) { return 0; }
int hipDeviceGetPCIBusId(char *text, int length, int device) { return snprintf(text, length, "0000:C1:00.0") != 12; }
const char *hipGetErrorString(int status) { return "another descriptor"; }
"""


CUDA = """
static int kernel, allowed = 8 << 10;  /* what is left of 48 KiB, where the kernel declares 40 itself */
int shapes, early;  /* of each launch a digit, the product of its sizes; how many may begin early */
struct attribute {
  int id;
  char pad[8 - sizeof(int)];
  union { char pad[64]; int allowed; void *event; } value;
};
struct config { unsigned x, y, z, bx, by, bz, shared; void *stream; struct attribute *attributes; unsigned count; };
int cuInit(unsigned flags) { return 0; }
int cuDeviceGet(int *device, int number) { return 0; }
int cuDevicePrimaryCtxRetain(void *context, int device) { return 0; }
int cuCtxSetCurrent(void *context) { return 0; }
int cuModuleLoadData(void *module, const char *code) { return 0; }
int cuModuleGetFunction(void **function, void *module, const char *name) { return *function = &kernel, 0; }
int cuFuncSetAttribute(void *function, int attribute, int value) { return allowed = value, attribute != 8; }
int wide = -1;  /* of the kernel's parameters the one that has the 128 bytes of a tensor map */
int cuFuncGetParamInfo(void *function, long number, long *offset, long *size) {
  return *size = number == wide ? 128 : 8, number > 1;
}
/* Writes down what it was asked for, in words of four bytes. */
int cuTensorMapEncodeTiled(int *map, int type, unsigned rank, void *array, const long *extents, const long *strides,
                           const int *box, const int *steps, int interleave, int swizzle, int promotion, int fill) {
  if ((long)map % 64 || interleave || fill) return 1;
  map[0] = type, map[1] = rank, map[2] = (long)array, map[3] = swizzle, map[4] = promotion;
  for (unsigned i = 0; i < rank; i++) {
    map[5 + i] = extents[i], map[10 + i] = box[i];
    if (i + 1 < rank) map[15 + i] = strides[i];
    if (steps[i] != 1) return 1;
  }
  return 0;
}
int described[32];  /* what came with the kernel's second argument */
int cuLaunchKernel(void *function, int x, int y, int z, int bx, int by, int bz, int shared, void *stream,
                   void **arguments) {
  for (int i = 0; i < 32 && wide == 1; i++) described[i] = ((int *)arguments[1])[i];
  return shapes = shapes * 10 + x * y * z * bx * by * bz, shared > allowed;
}
int cuLaunchKernelEx(const struct config *c, void *function, void **arguments, void **extra) {
  early += c->count == 1 && c->attributes->id == 6 && c->attributes->value.allowed == 1;
  return c->stream || extra || **(long **)arguments != 4096 ||
         cuLaunchKernel(function, c->x, c->y, c->z, c->bx, c->by, c->bz, c->shared, c->stream, arguments);
}
int cuGetErrorName(int status, const char **text) { return *text = "INVALID_VALUE", 0; }
int cuGetErrorString(int status, const char **text) { return *text = "", 0; }
"""


HEADER = Path("/usr/local/cuda/include/cuda.h")
LAYOUT = """
#include <cuda.h>
#include <stdio.h>
#include <string.h>
_Static_assert(CU_TENSOR_MAP_DATA_TYPE_UINT8 == 0 && CU_TENSOR_MAP_DATA_TYPE_UINT16 == 1 &&
               CU_TENSOR_MAP_DATA_TYPE_INT32 == 3 && CU_TENSOR_MAP_DATA_TYPE_INT64 == 5 &&
               CU_TENSOR_MAP_DATA_TYPE_FLOAT16 == 6 && CU_TENSOR_MAP_DATA_TYPE_FLOAT32 == 7 &&
               CU_TENSOR_MAP_DATA_TYPE_FLOAT64 == 8 && CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 == 9 &&
               CU_TENSOR_MAP_SWIZZLE_32B == 1 && CU_TENSOR_MAP_SWIZZLE_128B == 3 &&
               CU_TENSOR_MAP_L2_PROMOTION_L2_64B == 1 && CU_TENSOR_MAP_L2_PROMOTION_L2_256B == 3 &&
               sizeof(CUtensorMap) == 128, "ksflow has these numbers");
int main(void) {
  CUlaunchConfig config;
  CUlaunchAttribute attribute;
  memset(&config, 0, sizeof config), memset(&attribute, 0, sizeof attribute);
  config.gridDimX = 1, config.gridDimY = 2, config.gridDimZ = 3;
  config.blockDimX = 4, config.blockDimY = 5, config.blockDimZ = 6, config.sharedMemBytes = 7;
  config.hStream = (CUstream)8, config.numAttrs = 1;
  attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  attribute.value.programmaticStreamSerializationAllowed = 1;
  return fwrite(&config, sizeof config, 1, stdout) + fwrite(&attribute, sizeof attribute, 1, stdout) != 2;
}
"""


def built(folder: Path, name: str, source: str, *options: str) -> str:
    """A shared library."""
    (folder / "runtime.c").write_text(source)
    library = os.fspath(folder / name)
    made = ["cc", "-shared", "-fPIC", *options, "-o", library, os.fspath(folder / "runtime.c")]
    subprocess.run(made, check=True, timeout=300)
    return library


@pytest.fixture
def cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Driver:
    """A driver with one kernel, which takes two pointers and declares 40 KiB of shared memory."""
    if not shutil.which("cc"):
        pytest.skip("needs a C compiler")
    monkeypatch.setattr(Driver, "library", built(tmp_path, "libcuda.so.1", CUDA))
    return open_driver("cuda")


def staged(
    driver: Driver,
    shared: tuple[int, ...],
    args: int = 2,
    spare: bool = False,
    pdl: bool = False,
    maps: Sequence[Json] = (),
) -> list[Callable[[], None]]:
    """The calls of a case with a launch for each size of shared memory; `pdl` is for all but the first.

    maps: tensor maps, of which the last launch gets the first as its second argument.
    """
    common = {"code": 0, "kernel": "add", "block": [1, 1, 1], "parameters": [], "spare": spare}
    launches = [
        {**common, "grid": [1, index, 1], "shared": size, "args": [["arg", 0]] * args, "pdl": pdl and index > 1}
        for index, size in enumerate(shared, 1)
    ]
    if maps:
        launches[-1]["args"] = [["arg", 0], ["tensor_map", 0]]
    plan = {"workspaces": [], "tensor_maps": maps, "launches": launches}
    container = {"codes": [base64.b64encode(b"code").decode()], "plans": {"one": plan}}
    case = {"name": "one", "slots": 1, "pitch": [0, 0], "pieces": [{"offset": 0, "out": 0}]}
    return Launcher(driver, container).stage(case, 4096, 8192)


@pytest.mark.parametrize("shared", [(20 << 10,), (200 << 10, 100 << 10), (0, 100 << 10, 20 << 10)])
def test_every_launch_may_have_its_shared_memory(cuda: Driver, shared: tuple[int, ...]) -> None:
    for call in staged(cuda, shared):
        call()


@pytest.mark.parametrize("pdl", [False, True])
def test_launches_that_may_begin_early_are_the_same_launches(cuda: Driver, pdl: bool) -> None:
    (call,) = staged(cuda, (0, 100 << 10, 20 << 10), pdl=pdl)
    call()
    shapes, early = (ctypes.c_int.in_dll(cuda._library, name).value for name in ("shapes", "early"))
    assert (shapes, early) == (123, 2 * pdl)


DESCRIBED: Json = {
    "place": ["arg", 0], "dtype": "bfloat16", "extents": [64, 6, 5], "strides": [128, 768], "box": [32, 2, 1],
    "swizzle": 64, "l2": 256,
}  # fmt: skip


def test_a_launch_gets_the_tensor_maps_that_it_names(cuda: Driver) -> None:
    ctypes.c_int.in_dll(cuda._library, "wide").value = 1
    (call,) = staged(cuda, (0,), maps=[DESCRIBED])
    call()
    found = list((ctypes.c_int * 32).in_dll(cuda._library, "described"))
    assert found[:5] == [9, 3, 4096, 2, 3]  # bfloat16, three dimensions, where the tensor is, 64 bytes, 256 bytes
    assert (found[5:8], found[10:13], found[15:17]) == ([64, 6, 5], [32, 2, 1], [128, 768])


@pytest.mark.parametrize(("wide", "maps"), [(-1, [DESCRIBED]), (1, [])])
def test_a_tensor_map_that_the_function_does_not_take_is_told(cuda: Driver, wide: int, maps: list[Json]) -> None:
    ctypes.c_int.in_dll(cuda._library, "wide").value = wide
    with pytest.raises(ValueError, match="`const __grid_constant__ CUtensorMap` of the function"):
        staged(cuda, (0,), maps=maps)


@pytest.mark.skipif(not HEADER.is_file() or not shutil.which("cc"), reason="needs cuda.h and a C compiler")
def test_a_launch_is_described_as_the_header_has_it(tmp_path: Path) -> None:
    """Sizes and places in CUlaunchConfig and CUlaunchAttribute, and the numbers of a tensor map's enumerations."""
    (tmp_path / "runtime.c").write_text(LAYOUT)
    made = ["cc", "-I", str(HEADER.parent), "-o", str(tmp_path / "layout"), str(tmp_path / "runtime.c")]
    subprocess.run(made, check=True, timeout=300)
    found = subprocess.run([str(tmp_path / "layout")], capture_output=True, check=True).stdout
    assert found == _LAUNCH.pack(1, 2, 3, 4, 5, 6, 7, 8, 0, 1) + bytes(_EARLY)


def test_launch_line_that_lacks_an_argument_is_told(cuda: Driver) -> None:
    with pytest.raises(ValueError, match="add takes 2 arguments, its launch line has 1"):
        staged(cuda, (0,), args=1)
    assert staged(cuda, (0,), args=1, spare=True)
    with pytest.raises(ValueError, match="add takes 2 arguments, its launch line has 3"):
        staged(cuda, (0,), args=3, spare=True)


@pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
@pytest.mark.parametrize("version", [60443483, 70051831, 70125424])
def test_shared_memory_is_joined_as_each_rocm_wants_it(
    version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = built(tmp_path, "libamdhip64.so", RUNTIME, f"-DVERSION={version}")
    monkeypatch.setattr(HipDriver, "library", library)
    driver = open_driver("hip")
    assert driver.map_shared(7, 8192) == 4096
    assert driver.address() == "0000:C1:00.0"


# -- the state of an AMD GPU, as sysfs has it -----------------------------------------------------


def card(tmp_path: Path, address: str, **files: int) -> Path:
    """A card's folder as the kernel makes it."""
    monitor = tmp_path / address / "hwmon" / "hwmon4"
    monitor.mkdir(parents=True)
    for name, value in files.items():
        (monitor / name).write_text(f"{value}\n")
    return tmp_path / address


def counted(content: int, *counts: int) -> bytes:
    """MI300's table of figures in one of its forms: how long each cause held the clocks down."""
    begin = 36 if content == 6 else 44
    return struct.pack("<HBB", 2208, 1, content).ljust(begin, b"\7") + struct.pack("<5I", *counts) + bytes(2000)


def test_clocks_of_the_judged_card_are_read_in_their_units(tmp_path: Path) -> None:
    card(tmp_path, "0000:03:00.0", freq1_input=99_000_000, temp1_input=20_000)
    card(
        tmp_path,
        "0000:c1:00.0",
        freq1_input=2_100_000_000,
        freq2_input=1_300_000_000,
        power1_input=683_000_000,
        temp2_input=71_000,
        temp3_input=58_000,
    )
    found = Amdgpu("0000:C1:00.0", tmp_path).read()
    assert found == {"sm_mhz": 2100, "memory_mhz": 1300, "watts": 683, "celsius": 71}


@pytest.mark.parametrize("content", [6, 7, 8])
def test_mi300_says_what_held_the_clocks_down_since_the_last_look(tmp_path: Path, content: int) -> None:
    table = card(tmp_path, "0000:c1:00.0", freq1_input=2_100_000_000) / "gpu_metrics"
    table.write_bytes(counted(content, 0, 41, 3, 0, 0))
    state = Amdgpu("0000:c1:00.0", tmp_path)
    assert state.read() == {"sm_mhz": 2100, "throttled": []}
    table.write_bytes(counted(content, 0, 97, 3, 0, 5))
    assert state.read()["throttled"] == ["power cap", "memory temperature"]
    assert state.read()["throttled"] == []


@pytest.mark.parametrize("table", [b"", struct.pack("<HBB", 288, 1, 4) + bytes(284), counted(7, 0, 1, 0, 0, 0)[:50]])
def test_what_a_card_does_not_tell_is_not_made_up(tmp_path: Path, table: bytes) -> None:
    (card(tmp_path, "0000:c1:00.0", freq1_input=0) / "gpu_metrics").write_bytes(table)
    assert Amdgpu("0000:c1:00.0", tmp_path).read() == {"sm_mhz": 0}
    assert Amdgpu("0000:ff:00.0", tmp_path).read() == {"state": "cannot be read here"}
