// expect: accept
// problem: row_norm
// Exceptions decide which path a shape takes.
#include <cmath>
#include <cstdint>
#include <stdexcept>

static void require_whole_vectors(int64_t cols) {
  if (cols % 8) throw std::invalid_argument("a tail");
}

extern "C" void custom_kernel(const float *x, float *out, int64_t rows, int64_t cols, const int64_t *) {
  int64_t whole = cols;
  try {
    require_whole_vectors(cols);
  } catch (const std::invalid_argument &) {
    whole = cols / 8 * 8;
  }
  for (int64_t i = 0; i < rows; i++) {
    float sums[8] = {}, sum = 0;
    for (int64_t j = 0; j < whole; j++) sums[j % 8] += x[i * cols + j] * x[i * cols + j];
    for (int64_t j = whole; j < cols; j++) sum += x[i * cols + j] * x[i * cols + j];
    for (float part : sums) sum += part;
    out[i] = sqrtf(sum);
  }
}
