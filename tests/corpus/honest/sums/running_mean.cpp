// expect: accept
// problem: mean
// A mean that is updated with every value, as in one-pass variances; four of them, and then their mean.
#include <cstdint>

extern "C" void custom_kernel(const float *x, float *out, int64_t rows, int64_t cols, const int64_t *) {
  for (int64_t i = 0; i < rows; i++) {
    const float *row = x + i * cols;
    float mean[4] = {};
    int64_t j = 0;
    for (; j + 4 <= cols; j += 4) {
      float share = 1.0f / (j / 4 + 1);
      for (int lane = 0; lane < 4; lane++) mean[lane] += (row[j + lane] - mean[lane]) * share;
    }
    float all = (mean[0] + mean[1] + mean[2] + mean[3]) * ((float)(j / 4) / cols);
    for (; j < cols; j++) all += row[j] / cols;
    out[i] = all;
  }
}
