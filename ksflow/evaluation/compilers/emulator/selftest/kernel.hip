#include <hip/hip_runtime.h>
// launch: sum [1] [256] (a, b, out)
// launch: product [1] [64] (a, b, out)
// launch: count [1] [256] (a, out)
typedef float Rows __attribute__((ext_vector_type(4)));

extern "C" __global__ void sum(const float *a, const float *b, float *out) {
  out[threadIdx.x] = a[threadIdx.x] + b[threadIdx.x];
}

extern "C" __global__ void product(const float *a, const float *b, float *out) {
  int column = threadIdx.x % 16, group = threadIdx.x / 16;
  Rows rows = {0, 0, 0, 0};
  rows = __builtin_amdgcn_mfma_f32_16x16x4f32(a[column * 4 + group], b[group * 16 + column], rows, 0, 0, 0);
  for (int row = 0; row < 4; ++row) out[256 + (4 * group + row) * 16 + column] = rows[row];
}

extern "C" __global__ void count(const float *a, float *out) {
  __shared__ int bins[16];
  if (threadIdx.x < 16) bins[threadIdx.x] = 0;
  __syncthreads();
  atomicAdd(&bins[threadIdx.x * 7 % 16], (int)a[threadIdx.x]);
  __syncthreads();
  if (threadIdx.x < 16) out[512 + threadIdx.x] = bins[threadIdx.x];
}
