// Two passes over each row, which stays in the first cache.
#include <bit>
#include <cmath>
#include <cstdint>

enum { library, polynomial };
constexpr int EXP = library;  // tune: library polynomial | exp: the second one can be vectorised
constexpr int SUMS = 1;       // tune: 1 4 16 | sums: partial sums of squares, which do not wait for each other

static inline float exponential(float x) {
  if constexpr (EXP == library) return std::exp(x);
  x = x < -87.0f ? -87.0f : x;
  x = x > 87.0f ? 87.0f : x;
  float n = x * 1.44269504f + 12582912.0f;  // rounded to a whole number
  n -= 12582912.0f;
  float r = x - n * 0.693359375f + n * 2.12194440e-4f, p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  return (p * r * r + r + 1.0f) * std::bit_cast<float>((static_cast<int32_t>(n) + 127) << 23);
}

extern "C" void custom_kernel(const float *x, const float *weight, float *y, int64_t rows, int64_t cols,
                              const int64_t *) {
  for (int64_t i = 0; i < rows; i++, x += cols, y += cols) {
    float sums[SUMS] = {}, sum = 0;
    int64_t j = 0;
    for (; j + SUMS <= cols; j += SUMS)
      for (int u = 0; u < SUMS; u++) sums[u] += x[j + u] * x[j + u];
    for (; j < cols; j++) sum += x[j] * x[j];
    for (int u = 0; u < SUMS; u++) sum += sums[u];
    float scale = 2.0f / std::sqrt(sum / cols + 1e-5f);
    for (j = 0; j < cols; j++) y[j] = x[j] * scale * weight[j] / (1.0f + exponential(-x[j]));
  }
}
