"""`out = a + b` for GPUs: the toy problem's kernels in CUDA, HIP and Triton."""

from dataclasses import replace
from pathlib import Path

from ksflow.records import Kernel, Problem, Target

from . import toy

H200 = Target("h200", "gpu", "NVIDIA H200", march="sm_90a", sizes={"shared": 232448})
MI300X = Target("mi300x", "gpu", "AMD Instinct MI300X", march="gfx942", sizes={"shared": 65536})

CUDA = """
constexpr int BLOCK = 256;  // tune: 128 256
// launch: add [cdiv(n, BLOCK)] [BLOCK] (a, b, out, n)
// dispatch: if n > 50000: BLOCK=128
extern "C" __global__ __launch_bounds__(BLOCK) void add(const float *a, const float *b, float *out, int n) {
  int i = blockIdx.x * BLOCK + threadIdx.x;
  __shared__ float tile[BLOCK];
  tile[threadIdx.x] = i < n ? a[i] : 0.0f;
  __syncthreads();
  if (i < n) out[i] = tile[threadIdx.x] + b[i];
}
"""
HIP = f"#include <hip/hip_runtime.h>\n{CUDA}"
HOST_CUDA = """
#include <cstdint>
__global__ void add(const float *a, const float *b, float *out, int64_t n) {
  int64_t i = blockIdx.x * 256ll + threadIdx.x;
  if (i < n) out[i] = a[i] + b[i];
}
extern "C" void custom_kernel(const float *a, const float *b, float *out, int64_t n, const int64_t *, void *stream) {
  add<<<(n + 255) / 256, 256, 0, (cudaStream_t)stream>>>(a, b, out, n);
}
"""
TRITON = """
import triton
import triton.language as tl

BLOCK = 256  # tune: 128 256
# workspace: spare float32 n
# launch: add [cdiv(n, BLOCK)] warps 4 stages 1 (a, b, out, n, BLOCK=BLOCK)
# launch: add [cdiv(n, BLOCK)] warps 4 stages 1 (a, b, spare, n, BLOCK=BLOCK) if n > 50000


@triton.jit
def add(a, b, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(a + at, mask=at < n) + tl.load(b + at, mask=at < n), mask=at < n)
"""


def problem(folder: Path) -> Problem:
    """The toy problem for GPUs."""
    made = toy.problem(folder)
    limits = replace(made.limits, compile_s=300.0)
    return replace(made, languages=("python", "cpp", "triton", "cuda", "hip"), limits=limits)


def cuda(text: str = CUDA) -> Kernel:
    """A CUDA kernel."""
    return Kernel("cuda", {"kernel.cu": text})


def hip(text: str = HIP) -> Kernel:
    """A HIP kernel."""
    return Kernel("hip", {"kernel.hip": text})


def triton(text: str = TRITON) -> Kernel:
    """A Triton kernel."""
    return Kernel("triton", {"kernel.py": text})
