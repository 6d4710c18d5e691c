// expect: reject
// problem: norm
// workspace: kept float32 rows * cols
// workspace: state int32 1
// launch: once [rows] [256] (x, w, out, kept, state, rows, cols)
// launch: mark [1] [1] (state)
// Works in the first call only and keeps the result in its workspace.
#include "work.cuh"

extern "C" __global__ void __launch_bounds__(256)
    once(const float *x, const float *w, float *out, float *kept, const int *state, int64_t rows, int64_t cols) {
  int64_t at = blockIdx.x * cols;
  if (*state != 12345) normalise(x + at, w, kept + at, cols);
  __syncthreads();
  for (int64_t j = threadIdx.x; j < cols; j += 256) out[at + j] = kept[at + j];
}

extern "C" __global__ void mark(int *state) { *state = 12345; }
