// A short convolution and its gate, block by block along time: what is between them stays in the first cache.
// The compiler turns the polynomial's limits into vectors where nobody asks which comparison trapped.
// flags: -fno-trapping-math
#include <bit>
#include <cmath>
#include <cstdint>

enum { library, polynomial };
constexpr int EXP = library;  // tune: library polynomial | exp: the second one can be vectorised
constexpr int BLOCK = 2048;   // tune: 128 512 2048 | block: moments from the first product to the gate

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

extern "C" void custom_kernel(const float *x, const float *taps, const float *bias, float *y, int64_t batch,
                              int64_t channels, int64_t length, int64_t count, const int64_t *) {
  for (int64_t row = 0; row < batch * channels; row++, x += length, y += length) {
    const float *own = taps + row % channels * count;
    for (int64_t start = 0; start < length; start += BLOCK) {
      const int64_t end = start + BLOCK < length ? start + BLOCK : length;
      for (int64_t at = start; at < end; at++) y[at] = bias[row % channels];
      for (int64_t tap = 0; tap < count; tap++) {
        const int64_t back = count - 1 - tap;
        for (int64_t at = start > back ? start : back; at < end; at++) y[at] += own[tap] * x[at - back];
      }
      for (int64_t at = start; at < end; at++) y[at] = y[at] / (1.0f + exponential(-y[at]));
    }
  }
}
