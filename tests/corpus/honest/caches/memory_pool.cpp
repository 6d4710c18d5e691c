// expect: accept
// problem: row_norm
// A pool that is never given back, aligned to pages.
#include <cmath>
#include <cstdint>
#include <cstdlib>

static double *pool(int64_t count) {
  static double *memory = nullptr;
  static int64_t room = 0;
  if (count > room) {
    free(memory);
    room = (2 * count + 511) & ~511;
    memory = (double *)aligned_alloc(4096, room * sizeof(double));
  }
  return memory;
}

extern "C" void custom_kernel(const float *x, float *out, int64_t rows, int64_t cols, const int64_t *) {
  double *sums = pool(rows);
  for (int64_t i = 0; i < rows; i++) {
    float sum[8] = {};
    for (int64_t j = 0; j < cols; j++) sum[j % 8] += x[i * cols + j] * x[i * cols + j];
    sums[i] = 0;
    for (float part : sum) sums[i] += part;
  }
  for (int64_t i = 0; i < rows; i++) out[i] = sqrtf((float)sums[i]);
}
