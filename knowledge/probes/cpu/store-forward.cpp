// A value goes through memory and back: n = 1 as it was stored, n = 2 stored in two halves and read as one.
#include <cstdint>

extern "C" void custom_kernel(const float *x, float *y, int64_t n, int64_t turns, const int64_t *strides) {
  alignas(64) volatile uint32_t half[2] = {0, 0};
  volatile uint64_t *whole = (volatile uint64_t *)half;
  uint32_t add = (uint32_t)x[0], sum = 0;
  *whole = 0;
  if (n == 1)
    for (int64_t turn = 0; turn < turns; ++turn) {
      *whole = (uint64_t)sum + add;
      sum = (uint32_t)*whole;
    }
  else
    for (int64_t turn = 0; turn < turns; ++turn) {
      half[0] = sum + add;
      half[1] = 0;
      sum = (uint32_t)*whole;
    }
  y[0] = (float)sum;
}
