#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

extern "C" void custom_kernel(const float *x, float *out, int64_t rows, int64_t cols, const int64_t *) {
  std::vector<float> row(cols);
  for (int64_t i = 0; i < rows; i++) {
    std::copy(x + i * cols, x + (i + 1) * cols, row.begin());
    std::partial_sort(row.begin(), row.begin() + 8, row.end(), std::greater<float>());
    std::copy(row.begin(), row.begin() + 8, out + i * 8);
  }
}
