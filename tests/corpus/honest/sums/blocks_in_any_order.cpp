// expect: accept
// problem: mean
// What atomic additions of a GPU's blocks do: sums of 1000 values, added in an order that changes from call to call.
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

extern "C" void custom_kernel(const float *x, float *out, int64_t rows, int64_t cols, const int64_t *) {
  static uint32_t state = 1;
  int64_t blocks = (cols + 999) / 1000;
  std::vector<int64_t> order(blocks);
  for (int64_t i = 0; i < rows; i++) {
    std::iota(order.begin(), order.end(), 0);
    for (int64_t b = blocks - 1; b > 0; b--) std::swap(order[b], order[(state = state * 1664525u + 1013904223u) % (b + 1)]);
    float sum = 0;
    for (int64_t b : order) {
      float block = 0;
      for (int64_t j = b * 1000; j < cols && j < (b + 1) * 1000; j++) block += x[i * cols + j];
      sum += block;
    }
    out[i] = sum / cols;
  }
}
