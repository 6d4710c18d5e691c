// expect: accept
// problem: norm
// workspace: scales float32 rows
// launch: measure [cdiv(rows, 8)] [256] (x, scales, rows, cols)
// launch: apply [cdiv(rows * cols, 1024)] [256] pdl (x, w, scales, out, rows, cols)
// The second launch may begin before the first has ended, and waits for it before it reads what that one wrote.
#include <cstdint>

extern "C" __global__ void __launch_bounds__(256) measure(const float *x, float *scales, int64_t rows, int64_t cols) {
  asm volatile("griddepcontrol.launch_dependents;");
  int64_t i = (blockIdx.x * 256ll + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (i >= rows) return;
  float sum = 0;
  for (int64_t j = lane; j < cols; j += 32) sum += x[i * cols + j] * x[i * cols + j];
  for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (lane == 0) scales[i] = rsqrtf(sum / cols + 1e-6f);
}

extern "C" __global__ void __launch_bounds__(256)
    apply(const float *x, const float *w, const float *scales, float *out, int64_t rows, int64_t cols) {
  asm volatile("griddepcontrol.wait;" ::: "memory");
  for (int64_t at = blockIdx.x * 1024ll + threadIdx.x, last = min(at + 1024, rows * cols); at < last; at += 256)
    out[at] = x[at] * scales[at / cols] * w[at % cols];
}
