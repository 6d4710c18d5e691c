"""AMD's driver, as far as a library with its interface shows it without a GPU."""

import os
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from ksflow.stages.evaluator.box.driver import Hip, open_driver
from ksflow.stages.evaluator.judge.amdgpu import Amdgpu

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


@pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
@pytest.mark.parametrize("version", [60443483, 70051831, 70125424])
def test_shared_memory_is_joined_as_each_rocm_wants_it(
    version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runtime.c").write_text(RUNTIME)
    library = os.fspath(tmp_path / "libamdhip64.so")
    made = ["cc", "-shared", "-fPIC", f"-DVERSION={version}", "-o", library, os.fspath(tmp_path / "runtime.c")]
    subprocess.run(made, check=True, timeout=30)
    monkeypatch.setattr(Hip, "library", library)
    driver = open_driver("hip")
    assert driver.join(7, 8192) == 4096
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


def test_older_cards_say_it_in_bits(tmp_path: Path) -> None:
    table = card(tmp_path, "0000:c1:00.0") / "gpu_metrics"
    table.write_bytes(struct.pack("<HBB", 120, 1, 3) + bytes(108) + struct.pack("<Q", 1 << 0 | 1 << 36))
    assert Amdgpu("0000:c1:00.0", tmp_path).read() == {"throttled": ["power cap", "temperature"]}


@pytest.mark.parametrize("table", [b"", struct.pack("<HBB", 288, 1, 4) + bytes(284), counted(7, 0, 1, 0, 0, 0)[:50]])
def test_what_a_card_does_not_tell_is_not_made_up(tmp_path: Path, table: bytes) -> None:
    (card(tmp_path, "0000:c1:00.0", freq1_input=0) / "gpu_metrics").write_bytes(table)
    assert Amdgpu("0000:c1:00.0", tmp_path).read() == {"sm_mhz": 0}
    assert Amdgpu("0000:ff:00.0", tmp_path).read() == {"state": "cannot be read here"}
