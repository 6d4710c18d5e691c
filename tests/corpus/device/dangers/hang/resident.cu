// expect: harmless
// problem: norm
// Right, but leaves a kernel behind that never ends, on a stream of its own.
#include "work.cuh"

__device__ volatile int never;

__global__ void stay() {
  while (!never) __nanosleep(1000);
}

extern "C" void custom_kernel(const float *x, const float *w, float *out, int64_t rows, int64_t cols, const int64_t *,
                              void *stream) {
  static cudaStream_t side;
  if (!side) {
    cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking);
    stay<<<8, 32, 0, side>>>();
  }
  norm_rows<<<rows, 256, 0, (cudaStream_t)stream>>>(x, w, out, rows, cols);
}
