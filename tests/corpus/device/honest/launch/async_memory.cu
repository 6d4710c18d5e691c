// expect: accept
// problem: norm
// Takes and frees device memory in every call, in the order of the stream.
#include "work.cuh"

extern "C" void custom_kernel(const float *x, const float *w, float *out, int64_t rows, int64_t cols, const int64_t *,
                              void *stream) {
  float *work;
  size_t bytes = rows * cols * sizeof(float);
  cudaMallocAsync(&work, bytes, (cudaStream_t)stream);
  norm_rows<<<rows, 256, 0, (cudaStream_t)stream>>>(x, w, work, rows, cols);
  cudaMemcpyAsync(out, work, bytes, cudaMemcpyDeviceToDevice, (cudaStream_t)stream);
  cudaFreeAsync(work, (cudaStream_t)stream);
}
