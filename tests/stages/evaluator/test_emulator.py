"""HIP kernels run on the CPU: right ones pass the judge, wrong ones fail it, and what cannot be emulated is named."""

import ctypes
import dataclasses
import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from ksflow.evaluation.compilers.cpp import compile_kernel
from ksflow.evaluation.compilers.emulator import DEVICE_HEADERS, emulate_kernel
from ksflow.home import shipped_path
from ksflow.kernels.hardware import target
from ksflow.kernels.problem.loader import load
from ksflow.records import Arg, Case, Evaluation, Kernel, Problem, Verdict
from ksflow.stages.evaluator.local import LocalEvaluator

SEEDS = shipped_path("seeds", "fp8_gemm", "gpu")
MATRIX, NAIVE = "02_mfma.hip", "01_naive.hip"


def hip(text: str) -> Kernel:
    """A kernel of this source."""
    return Kernel("hip", {"kernel.hip": text})


def seed(name: str) -> str:
    """A seed's source."""
    return (SEEDS / name).read_text()


def gemm(tests: str, variant: str = "e4m3fnuz", first: int = 0, last: int | None = None) -> Problem:
    """fp8_gemm with some of the cases of a set, the smallest of which is timed."""
    found = load("fp8_gemm", cases=tests, variant=variant)
    cases = (found.tests if tests == "cpu" else found.benchmarks)[first:last]
    return dataclasses.replace(found, tests=cases, benchmarks=cases[:1])


def judged(evaluator: LocalEvaluator, problem: Problem, text: str, march: str = "gfx942") -> Evaluation:
    """What the CPU's judge says of an emulated kernel."""
    return evaluator(problem, emulate_kernel(problem, hip(text), march), ())


# -- seeds -----------------------------------------------------------------------------------------


def test_the_matrix_seed_is_right_around_its_tiles(evaluator: LocalEvaluator) -> None:
    result = judged(evaluator, gemm("cpu"), seed(MATRIX))

    assert result.accepted, result


def test_the_naive_seed_is_right(evaluator: LocalEvaluator) -> None:
    result = judged(evaluator, gemm("cpu", last=3), seed(NAIVE))

    assert result.accepted, result


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "variant", "march"),
    [
        pytest.param(NAIVE, "e4m3fnuz", "gfx942", marks=pytest.mark.soak),
        (MATRIX, "e4m3fnuz", "gfx942"),
        (MATRIX, "e4m3fn", "gfx950"),
    ],
)
def test_seeds_are_right_with_either_format_and_many_columns(
    evaluator: LocalEvaluator, name: str, variant: str, march: str
) -> None:
    for problem in (gemm("cpu", variant), gemm("tests", variant, last=1), gemm("tests", variant, 4, 5)):
        result = judged(evaluator, problem, seed(name), march)

        assert result.accepted, result


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"MT = 32": "MT = 16"},
        {"PREFETCH = 1": "PREFETCH = 0", "BN = 128": "BN = 64"},
        {"WM = 2;": "WM = 4;", "BM = 128": "BM = 256"},
        {"WN = 2;": "WN = 4;", "WM = 2;": "WM = 1;"},
    ],
)
def test_the_matrix_seed_is_right_with_other_tunables(evaluator: LocalEvaluator, changes: dict[str, str]) -> None:
    text = seed(MATRIX)
    for before, after in changes.items():
        assert before in text
        text = text.replace(before, after)

    result = judged(evaluator, gemm("cpu"), text)

    assert result.accepted, result


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("+ 4 * set;", "+ 8 * set;"),
        ("    __syncthreads();\n    if (PREFETCH", "    if (PREFETCH"),
    ],
    ids=["rows of the result", "barrier"],
)
def test_a_wrong_layout_and_a_missing_barrier_publish_sign(evaluator: LocalEvaluator, right: str, wrong: str) -> None:
    text = seed(MATRIX)
    assert text.count(right) == 1

    result = judged(evaluator, gemm("cpu", last=2), text.replace(right, wrong))

    assert result.verdict is Verdict.INCORRECT


@pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="needs ziglang, which compiles for AMD's chips")
@pytest.mark.parametrize(
    ("name", "march", "fnuz"),
    [(NAIVE, "gfx90a", 1), (NAIVE, "gfx942", 1), (MATRIX, "gfx942", 1), (MATRIX, "gfx942", 0), (MATRIX, "gfx950", 0)],
)
def test_seeds_compile_for_their_chips_without_rocm(tmp_path: Path, name: str, march: str, fnuz: int) -> None:
    flags = ["-x", "hip", "--cuda-device-only", f"--offload-arch={march}", "-nogpulib", "-nogpuinc", "-std=c++20"]
    made = tmp_path / "kernel.s"
    command = [sys.executable, "-m", "ziglang", "clang", *flags, f"-I{DEVICE_HEADERS}", f"-DE4M3FNUZ={fnuz}", "-O3"]

    subprocess.run([*command, "-S", str(SEEDS / name), "-o", str(made)], check=True)

    text = made.read_text()
    assert "s_swappc" not in text  # the indices are registers, not calls
    assert ".vgpr_spill_count: 0" in text
    assert ("v_mfma" in text) is (name == MATRIX)


# -- small kernels ---------------------------------------------------------------------------------

HEAD = "#include <hip/hip_runtime.h>\n"
LANES = """// launch: lanes [1] [128] (a, out)
extern "C" __global__ void lanes(const float *a, float *out) {
  int t = threadIdx.x;
  float x = a[t];
  for (int by = 32; by; by /= 2) x += __shfl_xor(x, by);
  out[t] = x;                                        // the sum over the wave
  float y = 0;
  if (t % 64 < 32) y = __shfl(a[t], 5);              // half of the wave
  else y = __shfl_down(a[t], 1, 16);
  out[128 + t] = y;
  out[256 + t] = __popcll(__ballot(a[t] > 64));
  out[384 + t] = __builtin_amdgcn_readfirstlane(t);
  out[512 + t] = __int_as_float(__builtin_amdgcn_update_dpp(0, __float_as_int(a[t]), 0x111, 15, 15, true));
  out[640 + t] = (float)__shfl_up((double)a[t], 3);
}
"""
BLOCKS = """// workspace: w float32 4 * n
// launch: fill [2, 3] [8, 4, 2] (w, n)
// launch: turn [cdiv(n, T)] [T] shared 4 * T (w, out, n)
// dispatch: if n >= 200: T=32
#define T 64
extern "C" {
__global__ void fill(float *w, int n) {
  int block = blockIdx.y * gridDim.x + blockIdx.x;
  int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  for (int i = block * 64 + thread; i < n; i += 384) w[i] = i;
}
__global__ void turn(const float *w, float *out, int n) {
  extern __shared__ float turned[];
  __shared__ int count;
  if (threadIdx.x == 0) count = 0;
  __syncthreads();
  turned[T - 1 - threadIdx.x] = w[blockIdx.x * T + threadIdx.x];
  atomicAdd(&count, 1);
  __syncthreads();
  out[blockIdx.x * T + threadIdx.x] = turned[threadIdx.x] + 1000 * count;
}
}
"""


WORDS = """// launch: words [1] [128] shared 512 (a, out)
#include <type_traits>
#define N 128
using F4 = __attribute__((ext_vector_type(4))) float;
HIP_DYNAMIC_SHARED(float, row)
static __constant__ float table[2] = {1, 2};
template <int SIZE> __device__ float turned(float x) {
  __shared__ alignas(16) float values[SIZE];
  values[threadIdx.x] = x;
  __syncthreads();
  return values[SIZE - 1 - threadIdx.x];
}
extern "C" __global__ void __launch_bounds__(N, 1) words(const float *__restrict__ a, float *__restrict__ out) {
  static_assert(std::is_same<decltype(a[0]), const float &>::value);
  F4 v = {1, 2, 3, 4};
  float4 f = *(const float4 *)a + make_float4(1, 2, 3, 4) * 2.f;
  asm volatile("s_waitcnt vmcnt(0)" ::: "memory");
  __builtin_amdgcn_sched_barrier(0);
  row[threadIdx.x] = __expf(0) + min(3, 4u);
  __syncthreads();
  out[threadIdx.x] = turned<N>(a[threadIdx.x]) + table[1] + v[3] + f.w + row[N - 1 - threadIdx.x];
}
"""


def small(n: int = 128) -> Problem:
    """One input and one output, with no reference: for running, not for judging."""
    cases = tuple(Case(f"n{size}", {"n": size}, 1) for size in dict.fromkeys((n, 256)))
    load_from = load("fp8_gemm")
    args = (Arg("a", "float32", "in"), Arg("out", "float32", "out"))
    return dataclasses.replace(load_from, args=args, dims=("n",), tests=cases, benchmarks=cases, defines={})


def ran(text: str, a: np.ndarray, outputs: int, n: int = 128, march: str = "gfx942") -> np.ndarray:
    """What a kernel writes, run in this process."""
    problem = small(n)
    built = compile_kernel(problem, emulate_kernel(problem, hip(HEAD + text), march), target.detect())
    assert built.artefact, built.log
    out = np.zeros(outputs, np.float32)
    pointers = [ctypes.c_void_p(x.ctypes.data) for x in (a, out)]
    ctypes.CDLL(built.artefact).custom_kernel(*pointers, ctypes.c_int64(n), None)
    return out


def test_lanes_exchange_values_also_in_branches() -> None:
    a = np.arange(128, dtype=np.float32)

    total, branch, votes, first, shifted, up = ran(LANES, a, 768).reshape(6, 128)

    lane, wave = np.arange(128) % 64, np.arange(128) // 64
    assert (total == np.where(wave == 0, a[:64].sum(), a[64:].sum())).all()
    down = np.where(lane % 16 == 15, a, a + 1)
    assert (branch == np.where(lane < 32, 64 * wave + 5, down)).all()
    assert (votes == np.where(wave == 0, 0, 63)).all()
    assert (first == 64 * wave).all()
    assert (shifted == np.where(lane % 16 == 0, 0, a - 1)).all()
    assert (up == np.where(lane < 3, a, a - 3)).all()


def test_words_of_hip_mean_what_they_do_on_the_device() -> None:
    a = np.arange(128, dtype=np.float32)

    assert (ran(WORDS, a, 128) == a[::-1] + 2 + 4 + (3 + 8) + (1 + 3)).all()


@pytest.mark.parametrize(("n", "block"), [(128, 64), (256, 32)])
def test_a_recipe_of_two_launches_runs_with_the_values_of_its_case(n: int, block: int) -> None:
    out = ran(BLOCKS, np.zeros(1, np.float32), n, n)

    expected = np.arange(n).reshape(-1, block)[:, ::-1].reshape(-1) + 1000 * block
    assert (out == expected).all()


@pytest.mark.parametrize(("march", "dtype"), [("gfx942", torch.float8_e4m3fnuz), ("gfx950", torch.float8_e4m3fn)])
def test_conversions_round_as_the_format_of_the_chip(march: str, dtype: torch.dtype) -> None:
    text = """// launch: convert [1] [256] (a, out)
__global__ void convert(const float *a, float *out) {
  int codes = __builtin_amdgcn_cvt_pk_fp8_f32(0, a[threadIdx.x], 0, true);
  out[threadIdx.x] = __builtin_amdgcn_cvt_f32_fp8(codes, 3);
}
"""
    a = torch.cat([torch.randn(128), torch.randn(64) * 60, torch.arange(64) / 1024])

    out = ran(text, a.numpy(), 256, march=march)

    expected = a.to(dtype).float()
    inside = ~expected.isnan()
    assert torch.equal(torch.from_numpy(out)[inside], expected[inside])


# name, M, N, K, C type of an operand's elements, of the result's
MATRICES = [
    ("f32_32x32x8f16", 32, 32, 8, "_Float16", "float"),
    ("f32_16x16x16f16", 16, 16, 16, "_Float16", "float"),
    ("f32_16x16x4f32", 16, 16, 4, "float", "float"),
    ("f32_32x32x2f32", 32, 32, 2, "float", "float"),
    ("f32_16x16x16bf16_1k", 16, 16, 16, "bf16", "float"),
    ("f32_16x16x8_xf32", 16, 16, 8, "float", "float"),
    ("i32_16x16x32_i8", 16, 16, 32, "signed char", "int"),
    ("i32_32x32x16_i8", 32, 32, 16, "signed char", "int"),
    ("f32_32x32x16_fp8_fp8", 32, 32, 16, "fp8", "float"),
    ("f32_16x16x32_bf8_bf8", 16, 16, 32, "bf8", "float"),
    ("f32_16x16x32_bf16", 16, 16, 32, "bf16", "float"),
    ("f64_16x16x4f64", 16, 16, 4, "double", "double"),
]


def matrix_kernel(index: int) -> str:
    """Multiplies a[M, K] with b[K, N], whose elements it places in lanes as AMD's documents draw them."""
    name, m, n, k, kind, total = MATRICES[index]
    depth, results = m * k // 64, m * n // 64
    rows = "8 * (r / 4) + 4 * (lane / 32) + r % 4" if m == 32 else "4 * (lane / 16) + r"
    if total == "double":
        rows = "4 * r + lane / 16"
    store = {
        "bf16": ("unsigned short", "__float_as_uint(x) >> 16"),
        "fp8": ("unsigned char", "__builtin_amdgcn_cvt_pk_fp8_f32(x, x, 0, false)"),
        "bf8": ("unsigned char", "__builtin_amdgcn_cvt_pk_bf8_f32(x, x, 0, false)"),
    }
    element, convert = store.get(kind, (kind, "x"))
    return f"""
__global__ void multiply{index}(const float *a, float *out) {{
  struct Operand {{ {element} of[{depth}]; }} x, y;
  struct Result {{ {total} of[{results}]; }} sums = {{}};
  int lane = threadIdx.x;
  auto made = [](float x) {{ return ({element})({convert}); }};
  for (int d = 0; d < {depth}; ++d) {{
    int k = {depth} * (lane / {m}) + d;
    x.of[d] = made(a[lane % {m} * {k} + k]), y.of[d] = made(a[{m * k} + k * {n} + lane % {n}]);
  }}
  sums = __builtin_amdgcn_mfma_{name}(x, y, sums, 0, 0, 0);
  for (int r = 0; r < {results}; ++r) out[{1024 * index} + ({rows}) * {n} + lane % {n}] = sums.of[r];
}}
"""


@pytest.mark.slow
def test_matrix_instructions_multiply() -> None:
    indices = range(len(MATRICES))
    launches = "".join(f"// launch: multiply{index} [1] [64] (a, out)\n" for index in indices)
    a = np.random.default_rng(3).integers(-3, 4, 2048).astype(np.float32)

    out = ran(launches + "".join(map(matrix_kernel, indices)), a, 1024 * len(MATRICES)).reshape(-1, 1024)

    for index, (name, m, n, k, *_) in enumerate(MATRICES):
        expected = a[: m * k].reshape(m, k) @ a[m * k : m * k + k * n].reshape(k, n)
        assert (out[index, : m * n].reshape(m, n) == expected).all(), name


def copying(read: str, write: str) -> str:
    """A softmax that is none, of which only where it reads and writes is looked at."""
    return f"""// launch: copy [1] [64] (x, y, rows, cols)
__global__ void copy(const float *x, float *y, int rows, int cols) {{
  int n = rows * cols;
  for (int i = threadIdx.x; i < n; i += 64) {{
    float value = x[{read}];
    y[{write}] = value > 0 ? value : 0;
  }}
}}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("read", "write", "said"),
    [
        ("i", "i", ""),
        ("i", "i + 24", "y: touches memory 92 bytes past its end"),
        ("i", "i - 1", "y: touches memory 4 bytes before it"),
        ("i + 4096", "i", "x: touches memory 16380 bytes past its end"),
        ("i + 16", "i", "x: touches memory 60 bytes past its end"),
    ],
)
def test_what_lies_beyond_the_arguments_is_not_touched(read: str, write: str, said: str) -> None:
    found = load("softmax")
    problem = dataclasses.replace(found, tests=found.tests[:1], benchmarks=found.tests[:1])
    built = compile_kernel(problem, emulate_kernel(problem, hip(copying(read, write)), "gfx942"), target.detect())
    assert built.artefact, built.log
    call = "import ctypes, sys; one = (ctypes.c_int64 * 4)(1, 1, 1, 1)\n"
    call += "ctypes.CDLL(sys.argv[1]).custom_kernel(bytes(4096), bytes(4096), one[0], one[1], one)"

    done = subprocess.run([sys.executable, "-c", call, built.artefact], capture_output=True, text=True, check=False)

    assert (done.returncode == 0) == (not said)
    assert said in done.stderr


# -- what does not go ------------------------------------------------------------------------------

BODY = "// launch: run [1] [128] (a, out)\n__global__ void run(const float *a, float *out) {{ {} }}\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('extern "C" void custom_kernel() {}', "launches itself"),
        (BODY.format("__builtin_amdgcn_no_such(1);"), "__builtin_amdgcn_no_such"),
        (BODY.format('asm volatile("v_nop");'), "inline assembly"),
        (BODY.format("") + "#include <hip/hip_fp8.h>\n", "hip/hip_fp8.h"),
        (BODY.format("") + "// require: n < 100\n", "n < 100 does not hold"),
        (BODY.format("").replace("[128]", "[128] pdl"), "`pdl` is for CUDA"),
    ],
)
def test_what_cannot_be_emulated_is_named(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        emulate_kernel(small(), hip(text), "gfx942")


def test_only_hip_is_emulated() -> None:
    with pytest.raises(ValueError, match="only HIP"):
        emulate_kernel(small(), Kernel("cuda", {"kernel.cu": ""}), "sm_90a")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("if (threadIdx.x < 64) __syncthreads(); else { out[0] = 1; __syncthreads(); }", "not all threads arrive"),
        (
            "float s = 0; if (threadIdx.x < 8) s = __builtin_amdgcn_mfma_f32_4x4x1f32(s, s, Four{}, 0, 0, 0)[0];",
            "not all 64 lanes of a wave arrive at __builtin_amdgcn_mfma_f32_4x4x1f32",
        ),
        ("volatile char x[70000]; for (int i = 0; i < 70000; ++i) x[i] = 1;", "more than 65536 bytes of stack"),
    ],
    ids=["barrier", "matrix", "stack"],
)
def test_threads_that_go_apart_end_with_a_reason(body: str, reason: str) -> None:
    typedef = "typedef float Four __attribute__((ext_vector_type(4)));\n"
    call = "import ctypes, sys; ctypes.CDLL(sys.argv[1]).custom_kernel(bytes(4096), bytes(4096), 128, None)"
    problem = small()
    kernel = emulate_kernel(problem, hip(HEAD + typedef + BODY.format(body)), "gfx942")
    built = compile_kernel(problem, kernel, target.detect())
    assert built.artefact, built.log

    done = subprocess.run([sys.executable, "-c", call, built.artefact], capture_output=True, text=True, check=False)

    assert done.returncode != 0
    assert reason in done.stderr
