#include <cmath>
#include <cstdint>
#include <cuda_runtime.h>

__host__ __device__ inline float step(float x, float last) { return x + 0.5f * last / sqrtf(1 + last * last); }

__global__ void chain(const float *x, float *out, int64_t n) {
  extern __shared__ float row[];
  for (int64_t t = threadIdx.x; t < n; t += blockDim.x) row[t] = x[t];
  __syncthreads();
  if (!threadIdx.x)
    for (int64_t t = 1; t < n; ++t) row[t] = step(row[t], row[t - 1]);
  __syncthreads();
  for (int64_t t = threadIdx.x; t < n; t += blockDim.x) out[t] = row[t];
}
