// expect: harmless
// problem: norm
// Takes as much pinned memory of the host as it gets.
#include "work.cuh"

extern "C" void custom_kernel(const float *x, const float *w, float *out, int64_t rows, int64_t cols, const int64_t *,
                              void *stream) {
  static bool done;
  void *place;
  for (size_t size = 1ull << 34; !done && size > 1 << 20;)
    if (cudaHostAlloc(&place, size, cudaHostAllocDefault)) cudaGetLastError(), size /= 2;
  done = true;
  norm_rows<<<rows, 256, 0, (cudaStream_t)stream>>>(x, w, out, rows, cols);
}
