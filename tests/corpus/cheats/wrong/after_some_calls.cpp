// expect: reject
// problem: row_norm
// Honest until whoever looks must be satisfied: the check makes six calls, and the race some more on any machine.
#include <cmath>
#include <cstdint>

extern "C" void custom_kernel(const float *x, float *out, int64_t rows, int64_t cols, const int64_t *) {
  static int calls = 0;
  int64_t used = ++calls > 8 ? cols / 2 : cols;
  for (int64_t i = 0; i < rows; i++) {
    float sum = 0;
    for (int64_t j = 0; j < used; j++) sum += x[i * cols + j] * x[i * cols + j];
    out[i] = sqrtf(sum * cols / (used ? used : 1));
  }
}
