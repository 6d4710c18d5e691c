// 384 fused multiply-adds of floats a turn, in as many chains as there are registers for.
#include <cstdint>

#if defined(__AVX512F__)
constexpr int WIDTH = 16, CHAINS = 24;
#else
constexpr int WIDTH = 8, CHAINS = 12;
#endif
typedef float Vector __attribute__((vector_size(WIDTH * 4)));

extern "C" void custom_kernel(const float *x, float *y, int64_t n, int64_t turns, const int64_t *strides) {
  Vector sum[CHAINS] = {}, value = Vector{} + x[0], one = Vector{} + x[1];
  for (Vector &chain : sum) asm volatile("" : "+v"(chain));  // for all the compiler knows, they differ
  for (int64_t turn = 0; turn < turns; ++turn)
#pragma GCC unroll 4
    for (int pass = 0; pass < 384 / (WIDTH * CHAINS); ++pass)
#pragma GCC unroll 24
      for (int j = 0; j < CHAINS; ++j) sum[j] = sum[j] * one + value;
  double total = 0;
  for (int j = 0; j < CHAINS; ++j)
    for (int lane = 0; lane < WIDTH; ++lane) total += sum[j][lane];
  y[0] = (float)total;
}
