"""Kernels for GPUs that are not here, through the real compilers: containers, figures, errors, the cache."""

import base64
import json
import re
import shutil
import struct
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ksflow.errors import ConfigError
from ksflow.evaluation import compilers
from ksflow.evaluation.compilers import BuildResult, hip, resources
from ksflow.evaluation.compilers import container as containers
from ksflow.evaluation.compilers.emulator import DEVICE_HEADERS
from ksflow.evaluation.compilers.occupancy import occupancy
from ksflow.records import Json, Kernel, Problem, Target

from . import gpu_toy
from .gpu_toy import CUDA, H200, HIP, MI300X, TRITON

needs_nvcc = pytest.mark.skipif(not shutil.which("nvcc"), reason="needs nvcc")


def test_a_constant_moved_by_the_half_precision_unit_is_no_matrix_instruction() -> None:
    text = "Function : f\n HFMA2.MMA R21, -RZ, RZ, 0, 0 ;\n HMMA.16816.F32 R4, R8, R2, R4 ;\n HGMMA.64x64x16.F32 R24 ;"
    assert resources.sass(text) == {"f": {"HGMMA": 1, "HMMA": 1}}


@pytest.fixture
def problem(tmp_path: Path) -> Problem:
    return gpu_toy.problem(tmp_path)


def build(problem: Problem, kernel: Kernel, target: Target) -> BuildResult:
    return compilers.build(problem, kernel, target)


def container(made: BuildResult) -> Json:
    assert made.mode == "strong", made
    assert not made.reason, made
    found = json.loads(Path(made.artefact).read_text())
    assert isinstance(found, dict)
    assert all(base64.b64decode(code).startswith(b"\x7fELF") for code in found["codes"])
    return found


@needs_nvcc
def test_cuda_variants_go_into_one_container(problem: Problem) -> None:
    made = build(problem, gpu_toy.cuda(), H200)
    found = container(made)
    assert found["version"] == 3
    assert found["platform"] == "cuda"
    assert len(found["codes"]) == 2
    assert found["plans"]["n65536"]["launches"] == [
        {
            "code": 1,
            "kernel": "add",
            "grid": [512, 1, 1],
            "block": [128, 1, 1],
            "shared": 0,
            "pdl": False,
            "args": [["arg", 0], ["arg", 1], ["arg", 2], ["int", 65536]],
            "parameters": [],
            "spare": False,
        }
    ]
    default, large = made.resources
    assert default["variant"] == {}
    assert large["variant"] == {"BLOCK": 128}
    assert (default["kernel"], default["target"], default["spill_bytes"]) == ("add", "sm_90a", 0)
    assert 2 * large["shared_bytes"] == default["shared_bytes"] == 4 * 256
    assert 0 < default["registers"] < 64
    assert default["occupancy"] == 1.0
    # other launches of the same code need no compiler
    again = build(problem, gpu_toy.cuda(CUDA.replace("[cdiv(n, BLOCK)]", "[cdiv(n, BLOCK) + 1]")), H200)
    assert again.cached
    assert again.artefact != made.artefact
    early = CUDA.replace("[BLOCK] (a", "[BLOCK] pdl (a")
    again = build(problem, gpu_toy.cuda(f"// launch: add [1] [BLOCK] (a, b, out, 1){early}"), H200)
    assert again.cached
    assert [launch["pdl"] for launch in container(again)["plans"]["n65536"]["launches"]] == [False, True]
    older = build(
        problem, gpu_toy.cuda(f"// launch: add [1] [BLOCK] (a, b, out, 1){early}"), replace(H200, march="sm_89")
    )
    assert older.reason == "launch: add: `pdl` needs sm_90 or later, not sm_89: leave it out"
    assert build(problem, gpu_toy.cuda(early), H200).reason.startswith("launch: add: the first launch of case n")


@pytest.mark.slow
@needs_nvcc
def test_what_is_launched_is_told_apart_without_what_debuggers_read(problem: Problem) -> None:
    def launched(text: str) -> bytes:
        return containers.strip_debug(Path(build(problem, gpu_toy.cuda(text), H200).artefact).read_bytes())

    unread = "const int PAD = 1;\n"
    first = launched(unread + CUDA)
    assert launched(unread.replace("1", "7") + CUDA) == first
    for old, new in (("b[i]", "b[i] * 2"), ("BLOCK = 256", "BLOCK = 128"), ("[BLOCK] (", "[BLOCK] shared 64 (")):
        assert launched(unread + CUDA.replace(old, new)) != first


@pytest.mark.slow
@needs_nvcc
def test_no_forged_header_hides_code(problem: Problem) -> None:
    code = base64.b64decode(container(build(problem, gpu_toy.cuda(), H200))["codes"][0])

    def launched(code: bytes) -> bytes:
        return containers.strip_debug(json.dumps({"codes": [base64.b64encode(code).decode()]}).encode())

    table, row_size, rows, names = (
        struct.unpack_from(form, code, at)[0] for form, at in (("<Q", 40), ("<H", 58), ("<H", 60), ("<H", 62))
    )
    headers = [struct.unpack_from("<IIQQQQ", code, table + row * row_size) for row in range(rows)]
    named = {code[headers[names][4] + h[0] :].split(b"\0")[0]: (row, *h[4:]) for row, h in enumerate(headers)}
    row, start, size = named[b".debug_line"]
    _, text, length = named[b".text.add"]

    def changed(code: bytes, at: int) -> bytes:
        return code[:at] + bytes([code[at] ^ 1]) + code[at + 1 :]

    assert launched(changed(code, start + size - 1)) == launched(code)
    assert launched(changed(code, text + length - 1)) != launched(code)
    forged = bytearray(code)
    struct.pack_into("<QQ", forged, table + row * row_size + 24, text, length)  # "debug" where the code is
    assert launched(changed(bytes(forged), text + length - 1)) != launched(bytes(forged))
    struct.pack_into("<QQ", forged, table + row * row_size + 24, 2**64 - 1, 2**64 - 1)
    assert launched(changed(bytes(forged), text)) != launched(bytes(forged))
    for place in (32, 40, 54, 58, 60, 62):  # nonsense is told apart by all of its bytes
        broken = code[:place] + b"\xff" * 8 + code[place + 8 :]
        assert launched(changed(broken, text)) != launched(broken)


@pytest.mark.slow
@needs_nvcc
def test_cuda_gets_tensor_maps(problem: Problem) -> None:
    taken = "const __grid_constant__ CUtensorMap a_map,"
    text = CUDA.replace("(a, b", "(a_map, b").replace("const float *a,", taken, 1).replace("a[i]", "0")
    text = f"// tensormap: a_map a float32 [n] box [min(BLOCK, 4 * cdiv(n, 4))]\n#include <cuda.h>\n{text}"
    made = build(problem, gpu_toy.cuda(text), H200)
    plan = container(made)["plans"]["n65536"]
    assert plan["launches"][0]["args"][0] == ["tensor_map", 0]
    assert plan["tensor_maps"] == [
        {
            "place": ["arg", 0],
            "dtype": "float32",
            "extents": [65536],
            "strides": [],
            "box": [128],
            "swizzle": 0,
            "l2": 0,
        }
    ]
    older = build(problem, gpu_toy.cuda(text), replace(H200, march="sm_89"))
    assert older.reason == "launch: add: a tensor map needs sm_90 or later, not sm_89: leave it out"


@pytest.mark.slow
@needs_nvcc
def test_cuda_in_host_mode_is_a_shared_object(problem: Problem) -> None:
    made = build(problem, gpu_toy.cuda(gpu_toy.HOST_CUDA), H200)
    assert made.mode == "host", made
    assert Path(made.artefact).read_bytes().startswith(b"\x7fELF")
    (row,) = made.resources
    assert row["registers"] > 0


@pytest.mark.slow
@needs_nvcc
@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("out[i] =", "out[i] = nothing +", r'^kernel.cu\(\d+\): error: identifier "nothing" is undefined$'),
        (
            "int i =",
            'asm("mma.bad;"); asm volatile("mma.bad;"); asm volatile("mma.bad;"); int i =',
            "^ptxas error: Unknown modifier '.bad'",
        ),
        ("int i =", "static_assert(BLOCK > 128); int i =", r"static assertion failed.* \(BLOCK=128\)$"),
        ("launch: add", "launch: sub", "launch: sub: the code has no kernel of this name, it has add"),
        ("[BLOCK] (a", "[BLOCK] shared 232000 (a", "needs 233024 bytes of shared memory; a block has at most 232448"),
        ("// dispatch", "// require: BLOCK * n < 1000\n// dispatch", r"^require: .* \(BLOCK=256, case n7\)$"),
    ],
)
def test_cuda_errors_are_a_line(problem: Problem, old: str, new: str, reason: str) -> None:
    kernel = gpu_toy.cuda(CUDA.replace(old, new))
    made = build(problem, kernel, H200)
    assert not made.artefact
    assert re.search(reason, made.reason), made.reason
    assert "ptxas info" not in made.log
    assert made.log.count("Unknown modifier") <= 1
    assert build(problem, kernel, H200).reason == made.reason


def test_hip_needs_no_rocm(problem: Problem) -> None:
    made = build(problem, gpu_toy.hip(), MI300X)
    found = container(made)
    assert found["platform"] == "hip"
    assert len(found["codes"]) == 2
    (launch,) = found["plans"]["n65536"]["launches"]
    assert launch["parameters"] == [8, 8, 8, 4]
    default, large = made.resources
    assert "parameters" not in default
    assert default["target"] == "gfx942"
    assert 2 * large["shared_bytes"] == default["shared_bytes"] == 4 * 256
    assert 0 < default["registers"] < 64
    assert default["agprs"] == default["scratch_bytes"] == 0
    assert "s_swappc_b64" not in default["instructions"]


def test_hip_has_the_standard_headers(problem: Problem) -> None:
    lines = "".join(f"#include <{name}>\n" for name in ("cstddef", "cstdint", "cmath", "algorithm", "type_traits"))
    made = build(problem, gpu_toy.hip(lines + gpu_toy.HIP), MI300X)
    assert not made.reason
    assert container(made)["codes"]


@pytest.fixture
def rocm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder laid out as ROCm is, behind a link, with zig's compiler in it and headers of its own."""
    real, root = tmp_path / "rocm-7.1.0", tmp_path / "rocm"
    shutil.copytree(DEVICE_HEADERS, real / "include")
    programs = {"clang++": f"clang -nogpulib -nogpuinc -I{root}/include", "ld.lld": "ld.lld"}
    for name, words in programs.items():
        program = real / "lib/llvm/bin" / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m ziglang {words} "$@"\n')
        program.chmod(0o755)
    (real / "bin").mkdir()
    (real / "bin/hipcc").write_text("#!/bin/sh\n")
    (real / "llvm").symlink_to("lib/llvm")
    root.symlink_to(real)
    monkeypatch.setenv("ROCM_PATH", str(root))
    hip.find.cache_clear()
    yield root
    hip.find.cache_clear()


def test_rocm_behind_links_compiles_in_a_box(problem: Problem, rocm: Path) -> None:
    made = build(problem, gpu_toy.hip(), MI300X)
    assert container(made)["platform"] == "hip"
    assert made.resources[0]["compiler"].startswith("ROCm clang version")


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (
            "#include <hip",
            "#include <rocwmma/rocwmma.hpp>\n#include <hip",
            "^rocwmma/rocwmma.hpp is not installed; install",
        ),
        ("#include <hip", '#include "tiles.h"\n#include <hip', "^kernel.hip:.* error: 'tiles.h' file not found$"),
        ("out[i] =", "out[i] = nothing +", "^kernel.hip:.* error: use of undeclared identifier 'nothing'$"),
        ("// launch:", "//", "^compile: host mode needs ROCm's hipcc"),
        ("[BLOCK] (a", "[BLOCK] pdl (a", r"^launch: add .*: `pdl` is for CUDA C\+\+ alone, not for hip: leave it out$"),
    ],
)
def test_hip_errors_are_a_line(problem: Problem, old: str, new: str, reason: str) -> None:
    made = build(problem, gpu_toy.hip(HIP.replace(old, new, 1)), MI300X)
    assert not made.artefact
    assert re.search(reason, made.reason), made.reason


@pytest.mark.slow
@pytest.mark.parametrize("target", [H200, MI300X], ids=["sm_90a", "gfx942"])
def test_triton_is_compiled_ahead_of_time(problem: Problem, target: Target) -> None:
    made = build(problem, gpu_toy.triton(), target)
    found = container(made)
    width = 32 if target is H200 else 64
    launches = found["plans"]["n65536"]["launches"]
    assert [launch["args"][2] for launch in launches] == [["arg", 2], ["workspace", 0]]
    assert launches[0]["code"] == launches[1]["code"]
    assert launches[0]["block"] == [4 * width, 1, 1]
    assert launches[0]["grid"] == [256, 1, 1]
    assert found["plans"]["n65536"]["workspaces"] == [4 * 65536]
    assert len(found["plans"]["n7"]["launches"]) == 1
    assert all(launch["spare"] for launch in launches)
    # two of scratch that no launch line has: AMD's driver reads them, and does not say how many there are
    assert [launch["parameters"] for launch in launches] == [[] if target is H200 else [8, 8, 8, 4, 8, 8]] * 2
    # n is a multiple of 16 in some cases only: wide loads there
    assert target is MI300X or len(found["codes"]) == 2
    assert found["plans"]["n30000"]["launches"][0]["code"] == launches[0]["code"]
    assert all(row["registers"] > 0 for row in made.resources)
    assert "occupancy" in made.resources[0]


@pytest.mark.parametrize(
    ("old", "new", "reason", "line"),
    [
        ("tl.program_id(0)", "tl.nothing(0)", "has no attribute 'nothing'", "at = tl.nothing(0) * BLOCK"),
        ("tl.arange(0, BLOCK)", "tl.arange(0, 100)", "power of 2", "at = "),
        (
            "import triton\n",
            "import triton\nraise OSError('sesame')\n",
            "^OSError: sesame",
            "kernel.py:3: raise OSError",
        ),
        ("import triton\n", "import triton\nx = = 3\n", "kernel.py:3: invalid syntax", "x = = 3"),
        ("launch: add", "launch: sub", "^launch: sub: the source has no such kernel; it has add$", ""),
        ("stages 1 (", "stages 1 pdl (", r"^launch: add .*; `pdl` is for CUDA C\+\+ alone$", ""),
        (", n, BLOCK=BLOCK)", ", BLOCK=BLOCK)", "^launch: add: no argument for n$", ""),
        (", BLOCK=BLOCK)", ")", "^launch: add: no value for the constexpr parameter BLOCK$", ""),
        (", BLOCK=BLOCK)", ", BLOCK=BLOCK, FAST=1)", "^launch: add: FAST is no constexpr parameter$", ""),
    ],
)
def test_triton_errors_are_a_line(problem: Problem, old: str, new: str, reason: str, line: str) -> None:
    made = build(problem, gpu_toy.triton(TRITON.replace(old, new, 1)), H200)
    assert not made.artefact
    assert re.search(reason, made.reason), made.reason
    assert line in made.log
    assert "site-packages" not in made.log


def test_what_a_source_writes_itself_is_not_trusted(problem: Problem) -> None:
    forged = "import os\nopen('made.json', 'w').write('{\"entries\": [3]}')\nos._exit(0)\n"
    made = build(problem, gpu_toy.triton(f"{TRITON}\n{forged}"), H200)
    assert not made.artefact
    assert made.reason.startswith("compile: the compiled file cannot be read")


def test_nothing_to_compile_in_pythons_host_mode(problem: Problem) -> None:
    text = TRITON.replace("# launch:", "#")
    assert build(problem, gpu_toy.triton(text), H200) == BuildResult()
    assert build(problem, Kernel("python", {"kernel.py": "x = 1"}), H200) == BuildResult()


def test_host_mode_needs_triton_too(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilers.triton, "find", lambda platform: None)
    with pytest.raises(ConfigError, match="triton is not installed: pip install"):
        build(problem, gpu_toy.triton(TRITON.replace("# launch:", "#")), H200)


def test_compile_time_is_limited(problem: Problem) -> None:
    short = replace(problem, limits=replace(problem.limits, compile_s=0.5))
    made = build(short, gpu_toy.triton(f"import time\ntime.sleep(60)\n{TRITON}"), H200)
    assert made.timed_out
    assert made.reason == "compile: took longer than 0.5 s"


def test_target_that_no_compiler_knows_is_a_sentence(problem: Problem) -> None:
    with pytest.raises(ConfigError, match=r"^target.march=gfx123: the compiler does not know it; [^\n]+$"):
        build(problem, gpu_toy.hip(), replace(MI300X, march="gfx123"))
    with pytest.raises(ConfigError, match=r"^target.march=sm_999: the compiler does not know it; [^\n]+$"):
        build(problem, gpu_toy.triton(), replace(H200, march="sm_999"))
    with pytest.raises(ConfigError, match="cuda kernels cannot be compiled for mi300x"):
        build(problem, gpu_toy.cuda(), MI300X)


@pytest.mark.parametrize(
    ("march", "threads", "registers", "shared", "expected"),
    [
        ("sm_90a", 256, 32, 0, (64, "warps")),
        ("sm_90a", 288, 160, 132160, (9, "registers")),
        ("sm_90a", 128, 64, 100 << 10, (8, "shared")),
        ("sm_90a", 32, 16, 0, (32, "blocks")),
        ("sm_80", 128, 255, 0, (8, "registers")),
        ("sm_89", 256, 32, 0, (48, "warps")),
        ("gfx942", 256, 102, 16 << 10, (4, "registers")),
        ("gfx942", 256, 238, 32 << 10, (2, "registers")),
        ("gfx942", 256, 128, 36 << 10, (1, "shared")),
        ("gfx950", 256, 64, 36 << 10, (4, "shared")),
        ("gfx90a", 64, 24, 0, (8, "warps")),
    ],
)
def test_occupancy(march: str, threads: int, registers: int, shared: int, expected: tuple[int, str]) -> None:
    found = occupancy(march, threads, registers, shared)
    assert found is not None
    assert (found.warps, found.limited_by) == expected
    assert occupancy("sm_70", threads, registers, shared) is None


def test_spills_are_read() -> None:
    log = (
        "ptxas info    : Compiling entry function 'gemm' for 'sm_90a'\n"
        "ptxas info    : Function properties for gemm\n"
        "    280 bytes stack frame, 94 bytes spill stores, 89 bytes spill loads\n"
        "ptxas info    : Used 255 registers, used 1 barriers, 8448 bytes smem\n"
    )
    assert resources.ptxas(log) == {
        "gemm": {"registers": 255, "stack_bytes": 280, "spill_bytes": 183, "shared_bytes": 8448}
    }
