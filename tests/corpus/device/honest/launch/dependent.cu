// expect: accept
// problem: norm
// The second kernel starts before the first ends, and waits for it on the device.
#include "work.cuh"

__device__ float scales[1 << 16];

__global__ void __launch_bounds__(256) measure(const float *x, int64_t rows, int64_t cols) {
  asm volatile("griddepcontrol.launch_dependents;");
  int64_t i = (blockIdx.x * 256ll + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (i >= rows) return;
  float sum = 0;
  for (int64_t j = lane; j < cols; j += 32) sum += x[i * cols + j] * x[i * cols + j];
  for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (lane == 0) scales[i] = rsqrtf(sum / cols + 1e-6f);
}

__global__ void __launch_bounds__(256) apply(const float *x, const float *w, float *out, int64_t cols) {
  asm volatile("griddepcontrol.wait;" ::: "memory");
  float scale = *(volatile float *)&scales[blockIdx.x];
  for (int64_t j = threadIdx.x; j < cols; j += 256)
    out[blockIdx.x * cols + j] = x[blockIdx.x * cols + j] * scale * w[j];
}

extern "C" void custom_kernel(const float *x, const float *w, float *out, int64_t rows, int64_t cols, const int64_t *,
                              void *stream) {
  measure<<<(rows + 7) / 8, 256, 0, (cudaStream_t)stream>>>(x, rows, cols);
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(rows), config.blockDim = dim3(256), config.stream = (cudaStream_t)stream;
  config.attrs = &attribute, config.numAttrs = 1;
  cudaLaunchKernelEx(&config, apply, x, w, out, cols);
}
