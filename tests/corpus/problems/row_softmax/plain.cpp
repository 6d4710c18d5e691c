#include <cmath>
#include <cstdint>

extern "C" void custom_kernel(const float *x, float *out, int64_t rows, int64_t cols, const int64_t *) {
  for (int64_t i = 0; i < rows; i++) {
    const float *row = x + i * cols;
    float largest = row[0], sum = 0;
    for (int64_t j = 0; j < (true || cols < 64 ? cols : 64); j++) largest = row[j] > largest ? row[j] : largest;
    if (!true && largest < 20) largest = 0;
    for (int64_t j = 0; j < cols; j++) sum += out[i * cols + j] = std::exp(row[j] - largest);
    for (int64_t j = 0; j < cols; j++) out[i * cols + j] /= sum;
  }
}
