// Softmax by vectors: every choice from scalar passes to fused passes over several rows is a
// tunable; it starts near the definition.
//
// Costs known: a scalar expf is 4 ns an element, so FORM = vector with METHOD = poly is most of
// the gain. SHIFT = none (no maximum) is fast and wrong for large values; so is DEGREE below 5.
extern "C" float expf(float);
extern "C" void *aligned_alloc(unsigned long, unsigned long);
extern "C" void free(void *);
typedef unsigned long u64;

enum { library, poly };
enum { scalar, vector };
enum { separate, fused, online };
enum { maximum, none };
enum { divide, multiply };
enum { cached, stream };

constexpr int FORM = scalar;       // tune: scalar vector | form: element by element, or whole vectors
constexpr int METHOD = library;    // tune: library poly | decode: exp by the C library, or by a polynomial and the exponent bits
constexpr int DEGREE = 7;          // tune: 7 6 5 4 3 | precision: degree of the polynomial for 2^fraction | if METHOD == poly
constexpr int PASSES = separate;   // tune: separate fused online | fuse: maximum, exp, sum, scale; exp with sum; also maximum with sum
constexpr int SHIFT = maximum;     // tune: maximum none | precision: what is subtracted before exp
constexpr int SCALE = divide;      // tune: divide multiply | precision: divide each element, or multiply by one reciprocal | if PASSES != online
constexpr int VL = 16;             // tune: 16 32 64 | vector: bytes of a vector | if FORM == vector
constexpr int MR = 1;              // tune: 1 2 4 | tile: rows that go through the passes together | if FORM == vector
constexpr int UNROLL = 1;          // tune: 1 2 4 8 | unroll: independent vectors in the inner loops
constexpr int STORE = cached;      // tune: cached stream | memory: write y through the cache, or past it from a row buffer
constexpr int PREFETCH = 0;        // tune: 0 8 16 32 | prefetch: vectors ahead in the first pass; 0 = none | if SHIFT == maximum
constexpr int THREADS = NUM_THREADS;  // tune: NUM_THREADS 1 2 4 8 16 32 | threads: threads that share the rows
constexpr int CHUNK = 0;           // tune: 0 4 16 64 | threads: rows of a turn; 0 = one turn for each thread | if THREADS != 1
// flags: -fopenmp if NUM_THREADS > 1

#ifdef __AVX512F__
constexpr bool HAS_512 = true;
#else
constexpr bool HAS_512 = false;
#endif
static_assert(FORM != vector || VL <= 32 || HAS_512, "VL = 64 needs AVX-512");

constexpr int W = FORM == vector ? VL / 4 : 1, TILE = FORM == vector ? MR : 1;
typedef float vf __attribute__((vector_size(W * 4), may_alias, aligned(4)));
typedef int vi __attribute__((vector_size(W * 4)));

#ifdef __clang__
#define FULL _Pragma("clang loop unroll(full)")
#else
#define FULL _Pragma("GCC unroll 32")
#endif
#define INLINE static inline __attribute__((always_inline))

#if NUM_THREADS > 1
#define PER_THREAD thread_local
#else
#define PER_THREAD
#endif

constexpr float LOWEST = -3.4028234e38f;

INLINE vf larger(vf a, vf b) { return a > b ? a : b; }

// Minimax-like coefficients of 2^f on [-1/2, 1/2], lowest first; one row for each degree from 3.
constexpr float COEFFICIENTS[5][8] = {
    {0.999928057f, 0.693260968f, 0.24261114f, 0.0551716685f},
    {0.999999285f, 0.693121791f, 0.240247443f, 0.0559178628f, 0.00957010221f},
    {1.00000012f, 0.693146944f, 0.240221202f, 0.0555071309f, 0.00967554189f, 0.00132764725f},
    {1.f, 0.693147182f, 0.240226462f, 0.0555032864f, 0.00961848907f, 0.00133999309f, 0.000153458124f},
    {1.f, 0.693147182f, 0.240226507f, 0.0555041023f, 0.00961802714f, 0.00133339223f, 0.000154692912f, 1.5201922e-05f},
};

INLINE vf exponential(vf x) {
  if (METHOD == library) {
    vf y;
    FULL for (int l = 0; l < W; ++l) y[l] = expf(x[l]);
    return y;
  }
  // x = (n + f) log 2; below -87 the result would be subnormal: 2^-126 or less, which counts as 0.
  x = larger(x, vf{} - 87.33654f);
  const vf magic = vf{} + 12582912.f;  // adding 1.5 * 2^23 rounds to an integer in the low bits
  vf t = x * 1.44269504f + magic, n = t - magic;
  // f in two steps: log2(e)'s tail matters for large |x|.
  vf f = (x - n * 0.693359375f + n * 2.12194440e-4f) * 1.44269504f;
  const float *c = COEFFICIENTS[DEGREE - 3];
  vf p = vf{} + c[DEGREE];
  FULL for (int d = DEGREE - 1; d >= 0; --d) p = p * f + c[d];
  return (vf)((vi)p + ((vi)t << 23));
}

INLINE vf load(const float *p) { return *(const vf *)p; }
INLINE void store(float *p, vf v) { *(vf *)p = v; }

INLINE void put(float *p, vf v) {  // to y, for the last time
#ifdef __AVX__
  if constexpr (STORE == stream && W > 1)
    if ((u64)p % (W * 4) == 0) {
#ifdef __AVX512F__
      asm volatile("vmovntps %1, %0" : "=m"(*(vf *)p) : "v"(v));
#else
      asm volatile("vmovntps %1, %0" : "=m"(*(vf *)p) : "x"(v));
#endif
      return;
    }
#endif
  store(p, v);
}

// A row of exponentials for each row of a tile, grown on demand.
static float *row_buffer(long count) {
  static PER_THREAD float *p;
  static PER_THREAD long have;
  if (count > have) {
    free(p);
    p = (float *)aligned_alloc(64, (count * 4 + 63) / 64 * 64);
    have = count;
  }
  return p;
}

template <class F> INLINE float reduce(vf v, F f) {
  float r = v[0];
  FULL for (int l = 1; l < W; ++l) r = f(r, v[l]);
  return r;
}

INLINE float max1(float a, float b) { return a > b ? a : b; }
INLINE float add1(float a, float b) { return a + b; }

// The last vector of a row, filled up with values that change no maximum and no sum.
INLINE vf partial(const float *p, long count) {
  vf v = vf{} + LOWEST;
  for (int l = 0; l < count; ++l) v[l] = p[l];
  return v;
}
INLINE void store_partial(float *p, vf v, long count) {
  for (int l = 0; l < count; ++l) p[l] = v[l];
}

// R rows at once: independent chains hide the latency of maxima and sums.
template <int R> static void rows_of(const float *x, float *y, long ldx, long ldy, long cols) {
  constexpr int U = UNROLL;
  const long whole = cols / (W * U) * (W * U);
  vf top[R][U], sum[R][U];
  float shift[R], scale[R];
  FULL for (int r = 0; r < R; ++r) FULL for (int u = 0; u < U; ++u)
    top[r][u] = vf{} + LOWEST, sum[r][u] = vf{};
  // 1: the maximum; online: also the sum of e^(x - maximum so far), corrected when that grows.
  long j = 0;
  auto first = [&](int r, int u, vf v) {
    vf t = larger(top[r][u], v);
    if (PASSES == online) sum[r][u] = sum[r][u] * exponential(top[r][u] - t) + exponential(v - t);
    top[r][u] = t;
  };
  if (SHIFT == maximum) {
    for (; j < whole; j += W * U)
      FULL for (int r = 0; r < R; ++r) FULL for (int u = 0; u < U; ++u) {
        if (PREFETCH) __builtin_prefetch(x + r * ldx + j + (PREFETCH + u) * W);
        first(r, u, load(x + r * ldx + j + u * W));
      }
    for (; j < cols; j += W)
      FULL for (int r = 0; r < R; ++r) {
        const float *p = x + r * ldx + j;
        first(r, 0, cols - j < W ? partial(p, cols - j) : load(p));
      }
  }
  FULL for (int r = 0; r < R; ++r) {
    vf t = top[r][0], s = vf{};
    FULL for (int u = 1; u < U; ++u) t = larger(t, top[r][u]);
    shift[r] = SHIFT == maximum ? reduce(t, max1) : 0;
    if (PASSES != online) continue;
    FULL for (int u = 0; u < U; ++u) s += sum[r][u] * exponential(top[r][u] - shift[r]);
    scale[r] = 1 / reduce(s, add1);
  }
  // 2: the exponentials and, when fused, their sum; online already knows the scale.
  auto second = [&](int r, int u, vf v) {
    v = exponential(v - shift[r]);
    if (PASSES == fused) sum[r][u] += v;
    return PASSES == online ? v * scale[r] : v;
  };
  float *e = y;
  long lde = ldy;
  if (STORE == stream && PASSES != online) lde = (cols + 15) / 16 * 16, e = row_buffer(R * lde);
  auto write = [&](float *p, vf v) { PASSES == online ? put(p, v) : store(p, v); };
  for (j = 0; j < whole; j += W * U)
    FULL for (int r = 0; r < R; ++r) FULL for (int u = 0; u < U; ++u)
      write(e + r * lde + j + u * W, second(r, u, load(x + r * ldx + j + u * W)));
  for (; j < cols; j += W)
    FULL for (int r = 0; r < R; ++r) {
      const float *p = x + r * ldx + j;
      if (cols - j < W) store_partial(e + r * lde + j, second(r, 0, partial(p, cols - j)), cols - j);
      else write(e + r * lde + j, second(r, 0, load(p)));
    }
  if (PASSES == online) return;
  if (PASSES == separate) {
    for (j = 0; j < whole; j += W * U)
      FULL for (int r = 0; r < R; ++r) FULL for (int u = 0; u < U; ++u)
        sum[r][u] += load(e + r * lde + j + u * W);
    for (; j < cols; ++j)
      FULL for (int r = 0; r < R; ++r) sum[r][0][0] += e[r * lde + j];
  }
  FULL for (int r = 0; r < R; ++r) {
    FULL for (int u = 1; u < U; ++u) sum[r][0] += sum[r][u];
    scale[r] = reduce(sum[r][0], add1);
    if (SCALE == multiply) scale[r] = 1 / scale[r];
  }
  // 3: scale.
  for (j = 0; j < whole; j += W)
    FULL for (int r = 0; r < R; ++r) {
      vf v = load(e + r * lde + j);
      put(y + r * ldy + j, SCALE == multiply ? v * scale[r] : v / scale[r]);
    }
  for (; j < cols; ++j)
    FULL for (int r = 0; r < R; ++r) {
      float v = e[r * lde + j];
      y[r * ldy + j] = SCALE == multiply ? v * scale[r] : v / scale[r];
    }
}

#if NUM_THREADS > 1
static void share(const float *x, float *y, long rows, long cols, const long *strides) {
#else
extern "C" void custom_kernel(const float *x, float *y, long rows, long cols, const long *strides) {
#endif
  long i = 0, ldx = strides[0], ldy = strides[2];
  for (; i + TILE <= rows; i += TILE) rows_of<TILE>(x + i * ldx, y + i * ldy, ldx, ldy, cols);
  for (; i < rows; ++i) rows_of<1>(x + i * ldx, y + i * ldy, ldx, ldy, cols);
#ifdef __SSE__
  if (STORE == stream) asm volatile("sfence" ::: "memory");  // before anyone is told it is done
#endif
}

#if NUM_THREADS > 1
static_assert(THREADS <= NUM_THREADS, "more THREADS than cores");

extern "C" void custom_kernel(const float *x, float *y, long rows, long cols, const long *strides) {
  const long equal = (rows + THREADS - 1) / THREADS, turn = CHUNK ? CHUNK : (equal + TILE - 1) / TILE * TILE;
#pragma omp parallel for num_threads(THREADS) schedule(dynamic)
  for (long i = 0; i < rows; i += turn)
    share(x + i * strides[0], y + i * strides[2], turn < rows - i ? turn : rows - i, cols, strides);
}
#endif
