// Whole blocks by vectors: x is laid out once for each call, and 8 times its sums starts the integer sums, so that the
// inner loop multiplies the codes as they are.
#include <immintrin.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { avx2, avx512 };

constexpr int FORM = avx2;   // tune: avx2 avx512 | form: one block in 32 bytes with maddubs, or two in 64 with VNNI
constexpr int ROWS = 1;      // tune: 1 2 4 8 | tile: rows that share the loads of x
constexpr int UNROLL = 1;    // tune: 1 2 4 | unroll: independent sums for each row
constexpr int PREFETCH = 0;  // tune: 0 256 512 1024 2048 | prefetch: bytes ahead in each row; 0 = none
constexpr int THREADS = NUM_THREADS;  // tune: NUM_THREADS 1 2 4 8 16 32 | threads: threads that share the rows
constexpr int CHUNK = 0;     // tune: 0 16 64 256 | threads: rows of a turn; 0 = one turn for each thread | if THREADS != 1
// flags: -fopenmp if NUM_THREADS > 1

#if defined(__AVX512VNNI__) && defined(__AVX512BW__) && defined(__AVX512VL__)
constexpr bool WIDE = true;
#else
constexpr bool WIDE = false;
#endif
static_assert(FORM != avx512 || WIDE, "FORM = avx512 needs AVX-512 VNNI");

// Two blocks of x: values, -8 times the sum of each four values, and the scale once for each four.
struct alignas(64) Pair {
  int8_t value[64];
  int32_t start[16];
  float scale[16];
};

static float half(const uint8_t *p) { return _cvtsh_ss(*(const uint16_t *)p); }

static Pair *laid_out(const uint8_t *x, long blocks) {
  static Pair *pairs;
  static long have;
  long count = (blocks + 1) / 2;
  if (count > have) {
    free(pairs);
    pairs = (Pair *)aligned_alloc(64, count * sizeof(Pair));
    have = count;
  }
  if (blocks % 2) memset(pairs + count - 1, 0, sizeof(Pair));
  for (long b = 0; b < blocks; b++, x += 34) {
    Pair &p = pairs[b / 2];
    int8_t *value = p.value + b % 2 * 32;
    memcpy(value, x + 2, 32);
    for (int l = 0; l < 8; l++) {
      p.start[b % 2 * 8 + l] = -8 * (value[4 * l] + value[4 * l + 1] + value[4 * l + 2] + value[4 * l + 3]);
      p.scale[b % 2 * 8 + l] = half(x);
    }
  }
  return pairs;
}

static inline float add_up(__m256 v) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

static inline __m256 one_block(const uint8_t *w, const int8_t *value, const int32_t *start, const float *scale, __m256 sum) {
  __m256i codes = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(w + 2)));
  codes = _mm256_and_si256(_mm256_srlv_epi64(codes, _mm256_setr_epi64x(0, 0, 4, 4)), _mm256_set1_epi8(15));
  __m256i pairs = _mm256_maddubs_epi16(codes, _mm256_load_si256((const __m256i *)value));
  __m256i dot = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  dot = _mm256_add_epi32(dot, _mm256_load_si256((const __m256i *)start));
  __m256 factor = _mm256_mul_ps(_mm256_load_ps(scale), _mm256_set1_ps(half(w)));
  return _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), factor, sum);
}

#if defined(__AVX512VNNI__) && defined(__AVX512BW__) && defined(__AVX512VL__)
static inline __m512 two_blocks(const uint8_t *w, const Pair &x, __m512 sum) {
  __m256i first = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(w + 2)));
  __m512i codes = _mm512_inserti64x4(_mm512_castsi256_si512(first),
                                     _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(w + 20))), 1);
  codes = _mm512_and_si512(_mm512_srlv_epi64(codes, _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4)), _mm512_set1_epi8(15));
  __m512i dot = _mm512_dpbusd_epi32(_mm512_load_si512(x.start), codes, _mm512_load_si512(x.value));
  __m256i scales = _mm256_mask_set1_epi16(_mm256_set1_epi16(*(const short *)w), 0xff00, *(const short *)(w + 18));
  return _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), _mm512_mul_ps(_mm512_cvtph_ps(scales), _mm512_load_ps(x.scale)), sum);
}
#endif

template <int R> static void rows_of(const uint8_t *w, long stride, const Pair *x, long blocks, float *y) {
  long b = 0;
  __m256 sum[R][UNROLL] = {};
#if defined(__AVX512VNNI__) && defined(__AVX512BW__) && defined(__AVX512VL__)
  if constexpr (FORM == avx512) {
    __m512 wide[R][UNROLL] = {};
    for (; b + 2 * UNROLL <= blocks; b += 2 * UNROLL)
#pragma GCC unroll 8
      for (int r = 0; r < R; r++) {
        if (PREFETCH) __builtin_prefetch(w + r * stride + b * 18 + PREFETCH);
#pragma GCC unroll 4
        for (int u = 0; u < UNROLL; u++)
          wide[r][u] = two_blocks(w + r * stride + (b + 2 * u) * 18, x[b / 2 + u], wide[r][u]);
      }
    for (int r = 0; r < R; r++)
      for (int u = 0; u < UNROLL; u++)
        sum[r][u] = _mm256_add_ps(_mm512_castps512_ps256(wide[r][u]), _mm512_extractf32x8_ps(wide[r][u], 1));
  }
#endif
  auto block = [&](int r, long at, int u) {
    const Pair &p = x[at / 2];
    int side = at % 2;
    sum[r][u] = one_block(w + r * stride + at * 18, p.value + side * 32, p.start + side * 8, p.scale + side * 8, sum[r][u]);
  };
  for (; FORM == avx2 && b + UNROLL <= blocks; b += UNROLL)
#pragma GCC unroll 8
    for (int r = 0; r < R; r++) {
      if (PREFETCH) __builtin_prefetch(w + r * stride + b * 18 + PREFETCH);
#pragma GCC unroll 4
      for (int u = 0; u < UNROLL; u++) block(r, b + u, u);
    }
  for (; b < blocks; b++)
    for (int r = 0; r < R; r++) block(r, b, 0);
  for (int r = 0; r < R; r++) {
    for (int u = 1; u < UNROLL; u++) sum[r][0] = _mm256_add_ps(sum[r][0], sum[r][u]);
    y[r] = add_up(sum[r][0]);
  }
}

static void share(const uint8_t *w, long stride, const Pair *x, long blocks, float *y, long rows) {
  long i = 0;
  for (; i + ROWS <= rows; i += ROWS) rows_of<ROWS>(w + i * stride, stride, x, blocks, y + i);
  for (; i < rows; i++) rows_of<1>(w + i * stride, stride, x, blocks, y + i);
}

extern "C" void custom_kernel(const uint8_t *w, const uint8_t *x, float *y, long rows, long cols, const long *strides) {
  const Pair *pairs = laid_out(x, cols / 32);
#if NUM_THREADS > 1
  static_assert(THREADS <= NUM_THREADS, "more THREADS than cores");
  const long equal = (rows + THREADS - 1) / THREADS, turn = CHUNK ? CHUNK : (equal + ROWS - 1) / ROWS * ROWS;
#pragma omp parallel for num_threads(THREADS) schedule(dynamic)
  for (long i = 0; i < rows; i += turn)
    share(w + i * strides[0], strides[0], pairs, cols / 32, y + i, turn < rows - i ? turn : rows - i);
#else
  share(w, strides[0], pairs, cols / 32, y, rows);
#endif
}
