// expect: accept
// problem: row_norm
// Vector instructions, chosen at run time by what the machine has.
#include <immintrin.h>

#include <cmath>
#include <cstdint>

__attribute__((target("avx2,fma"))) static float wide(const float *x, int64_t n) {
  __m256 sum = _mm256_setzero_ps(), other = _mm256_setzero_ps();
  int64_t j = 0;
  for (; j + 16 <= n; j += 16) {
    __m256 a = _mm256_loadu_ps(x + j), b = _mm256_loadu_ps(x + j + 8);
    sum = _mm256_fmadd_ps(a, a, sum);
    other = _mm256_fmadd_ps(b, b, other);
  }
  float parts[8], total = 0;
  _mm256_storeu_ps(parts, _mm256_add_ps(sum, other));
  for (float part : parts) total += part;
  for (; j < n; j++) total += x[j] * x[j];
  return total;
}

static float narrow(const float *x, int64_t n) {
  float total = 0;
  for (int64_t j = 0; j < n; j++) total += x[j] * x[j];
  return total;
}

extern "C" void custom_kernel(const float *x, float *out, int64_t rows, int64_t cols, const int64_t *) {
  static auto best = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? wide : narrow;
  for (int64_t i = 0; i < rows; i++) out[i] = sqrtf(best(x + i * cols, cols));
}
