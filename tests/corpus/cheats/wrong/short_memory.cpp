// expect: reject
// problem: fading
// Starts anew 160 steps before each block of 32: what faded to less than 5e-8 of random values is of no account.
#include <algorithm>
#include <cstdint>

extern "C" void custom_kernel(const float *x, float *out, int64_t rows, int64_t cols, const int64_t *) {
  for (int64_t i = 0; i < rows; i++)
    for (int64_t block = 0; block < cols; block += 32) {
      float state = 0;
      for (int64_t t = std::max<int64_t>(block - 160, 0); t < std::min(block + 32, cols); t++) {
        state = 0.9f * state + x[i * cols + t];
        if (t >= block) out[i * cols + t] = state;
      }
    }
}
