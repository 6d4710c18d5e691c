#include <cstdint>

extern "C" void custom_kernel(const float *x, float *out, int64_t rows, int64_t cols, const int64_t *) {
  for (int64_t i = 0; i < rows; i++) {
    float state = 0;
    for (int64_t t = 0; t < cols; t++) out[i * cols + t] = state = 0.9f * state + x[i * cols + t];
  }
}
