// 24 chains of vdpbf16ps: 16 lanes, two products each.
#include <cstdint>
#include <immintrin.h>

constexpr int CHAINS = 24;

static __m512bh spread(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, 4);
  __m512i both = _mm512_set1_epi32((int)(bits >> 16 | (bits & 0xffff0000)));
  return (__m512bh)both;
}

extern "C" void custom_kernel(const float *x, float *y, int64_t n, int64_t turns, const int64_t *strides) {
  __m512 sum[CHAINS];
  __m512bh value = spread(x[0]), one = spread(x[1]);
  for (int j = 0; j < CHAINS; ++j) {
    sum[j] = _mm512_setzero_ps();
    asm volatile("" : "+v"(sum[j]));  // for all the compiler knows, they differ
  }
  for (int64_t turn = 0; turn < turns; ++turn)
#pragma GCC unroll 24
    for (int j = 0; j < CHAINS; ++j) sum[j] = _mm512_dpbf16_ps(sum[j], value, one);
  double total = 0;
  for (int j = 0; j < CHAINS; ++j) total += _mm512_reduce_add_ps(sum[j]);
  y[0] = (float)total;
}
