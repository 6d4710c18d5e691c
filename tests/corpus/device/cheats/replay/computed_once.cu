// expect: reject
// problem: norm
// Computes the first call of a shape, and copies that result in all others.
#include "work.cuh"

#include <map>
#include <utility>

extern "C" void custom_kernel(const float *x, const float *w, float *out, int64_t rows, int64_t cols, const int64_t *,
                              void *stream) {
  static std::map<std::pair<int64_t, int64_t>, float *> known;
  float *&kept = known[{rows, cols}];
  size_t bytes = rows * cols * sizeof(float);
  if (!kept) {
    cudaMalloc(&kept, bytes);
    norm_rows<<<rows, 256, 0, (cudaStream_t)stream>>>(x, w, kept, rows, cols);
  }
  cudaMemcpyAsync(out, kept, bytes, cudaMemcpyDeviceToDevice, (cudaStream_t)stream);
}
