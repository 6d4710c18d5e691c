// The definition: a dot product of two rows of blocks for each element of y.
#include <stdint.h>
#include <string.h>

// flags: -fopenmp if NUM_THREADS > 1
constexpr int OFFSET = 0;  // tune: 0 1 | form: subtract 8 from each weight (0), or 8 times the sum of x (1)
constexpr int UNROLL = 1;  // tune: 1 2 4 | unroll: independent sums over the blocks of a row

static float half(const uint8_t *p) {
  _Float16 value;
  memcpy(&value, p, 2);
  return value;
}

static float vec_dot_q4_0_q8_0(long blocks, const uint8_t *w, const uint8_t *x) {
  float sum[UNROLL] = {};
  for (long b = 0; b < blocks; b++, w += 18, x += 34) {
    const int8_t *v = (const int8_t *)x + 2;
    int dot = 0, all = 0;
    for (int j = 0; j < 16; j++) {
      int low = w[2 + j] & 15, high = w[2 + j] >> 4;
      if (OFFSET) dot += low * v[j] + high * v[j + 16], all += v[j] + v[j + 16];
      else dot += (low - 8) * v[j] + (high - 8) * v[j + 16];
    }
    sum[b % UNROLL] += half(w) * half(x) * (dot - 8 * all);
  }
  for (int u = 1; u < UNROLL; u++) sum[0] += sum[u];
  return sum[0];
}

extern "C" void custom_kernel(const uint8_t *w, const uint8_t *x, float *y, long rows, long cols, const long *strides) {
#if NUM_THREADS > 1
#pragma omp parallel for num_threads(NUM_THREADS) schedule(static)
#endif
  for (long i = 0; i < rows; i++) y[i] = vec_dot_q4_0_q8_0(cols / 32, w + i * strides[0], x);
}
