// expect: accept
// problem: mean
// sample: yes
// One float for a million additions: the worst order that there is, and right as far as float32 goes.
#include <cstdint>

extern "C" void custom_kernel(const float *x, float *out, int64_t rows, int64_t cols, const int64_t *) {
  for (int64_t i = 0; i < rows; i++) {
    float sum = 0;
    for (int64_t j = 0; j < cols; j++) sum += x[i * cols + j];
    out[i] = sum / cols;
  }
}
