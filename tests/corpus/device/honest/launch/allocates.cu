// expect: accept
// problem: norm
// time: host
// Takes device memory in every call and frees it, which waits for the device.
#include "work.cuh"

extern "C" void custom_kernel(const float *x, const float *w, float *out, int64_t rows, int64_t cols, const int64_t *,
                              void *stream) {
  float *work;
  cudaMalloc(&work, rows * cols * sizeof(float));
  norm_rows<<<rows, 256, 0, (cudaStream_t)stream>>>(x, w, work, rows, cols);
  cudaMemcpyAsync(out, work, rows * cols * sizeof(float), cudaMemcpyDeviceToDevice, (cudaStream_t)stream);
  cudaFree(work);
}
