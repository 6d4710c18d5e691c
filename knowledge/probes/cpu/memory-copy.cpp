// Copies n floats of its input with plain vector stores.
#include <cstdint>

typedef float Vector __attribute__((vector_size(64), aligned(4)));

extern "C" void custom_kernel(const float *x, float *y, int64_t n, int64_t turns, const int64_t *strides) {
  for (int64_t turn = 0; turn < turns; ++turn) {
    for (int64_t i = 0; i < n; i += 16) *(Vector *)(y + i) = *(const Vector *)(x + i);
    asm volatile("" : : "r"(x), "r"(y) : "memory");
  }
}
