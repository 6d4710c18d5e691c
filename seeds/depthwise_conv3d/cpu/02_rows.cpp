// A channel becomes padded float32 planes once; tiles of rows and vectors then stay in registers over all taps.
extern "C" void *malloc(unsigned long);
extern "C" void free(void *);

constexpr int VL = 8;     // tune: 4 8 16 | vector: floats of one register
constexpr int WT = 2;     // tune: 1 2 4 5 | tile: registers along w
constexpr int HT = 1;     // tune: 1 2 3 4 | tile: rows of outputs, which share the rows that they read
constexpr int THREADS = NUM_THREADS;  // tune: NUM_THREADS 1 2 4 8 16 32 | threads: threads that share the channels
constexpr int CHUNK = 0;  // tune: 0 1 2 4 | threads: channels of a turn; 0 = equal shares | if THREADS != 1
// flags: -fopenmp if NUM_THREADS > 1
constexpr int SHARE = 0;  // tune: 0 1 | form: 1 loads each input once for all rows of a tile, 0 once for each output row

#if SIZE == 4
typedef float element;
static inline float wide(element v) { return v; }
static inline element narrow(float v) { return v; }
#elif HALF
typedef unsigned short element;
static inline float wide(element v) { _Float16 h; __builtin_memcpy(&h, &v, 2); return (float)h; }
static inline element narrow(float v) { _Float16 h = (_Float16)v; element e; __builtin_memcpy(&e, &h, 2); return e; }
#else
typedef unsigned short element;
static inline float wide(element v) { unsigned u = (unsigned)v << 16; float f; __builtin_memcpy(&f, &u, 4); return f; }
static inline element narrow(float v) {
  unsigned u;
  __builtin_memcpy(&u, &v, 4);
  return (element)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
#endif
typedef float vec __attribute__((vector_size(VL * 4)));
static inline vec load(const float *p) { vec v; __builtin_memcpy(&v, p, sizeof v); return v; }

// One tile of outputs: HT rows from `row`, WT * VL columns from `column`.
template <int KH, int KW>
static inline void tile(const float *planes, const float *taps, element *out, long rows, long columns, long w, long kd, long kh,
                        long kw, long plane, long pitch) {
  vec sum[HT][WT] = {};
  const long jn = KH ? KH : kh, kn = KW ? KW : kw;
  for (long i = 0; i < kd; ++i)
    if (SHARE) {
      for (long s = 0; s < HT + jn - 1; ++s)
        for (long k = 0; k < kn; ++k)
          for (int u = 0; u < WT; ++u) {
            vec v = load(planes + i * plane + s * pitch + k + u * VL);
            for (int t = 0; t < HT; ++t)
              if (s - t >= 0 && s - t < jn) sum[t][u] += v * taps[(i * jn + s - t) * kn + k];
          }
    } else {
      for (long j = 0; j < jn; ++j)
        for (long k = 0; k < kn; ++k)
          for (int t = 0; t < HT; ++t)
            for (int u = 0; u < WT; ++u)
              sum[t][u] += load(planes + i * plane + (j + t) * pitch + k + u * VL) * taps[(i * jn + j) * kn + k];
    }
  for (int t = 0; t < HT && t < rows; ++t)
    for (long q = 0; q < columns && q < WT * VL; ++q) out[t * w + q] = narrow(sum[t][q / VL][q % VL]);
}

template <int KH, int KW>
static void channel(const float *planes, const float *taps, element *y, long d, long h, long w, long kd, long kh, long kw, long plane,
                    long pitch) {
  for (long z = 0; z < d - kd + 1; ++z)
    for (long r = 0; r < h; r += HT)
      for (long q = 0; q < w; q += WT * VL)
        tile<KH, KW>(planes + z * plane + r * pitch + q, taps, y + (z * h + r) * w + q, h - r, w - q, w, kd, kh, kw, plane, pitch);
}

#if NUM_THREADS > 1
static void share(const element *x, const element *f, element *y, long n, long c, long d, long h, long w, long kd, long kh,
                  long kw, const long *strides) {
#else
extern "C" void custom_kernel(const element *x, const element *f, element *y, long n, long c, long d, long h, long w, long kd,
                              long kh, long kw, const long *strides) {
#endif
  const long pitch = (w + WT * VL - 1) / (WT * VL) * (WT * VL) + kw - 1, plane = (h + kh + HT) * pitch, count = d * plane + WT * VL;
  float *planes = (float *)malloc(4 * (count + kd * kh * kw)), *taps = planes + count;
  for (long e = 0; e < count; ++e) planes[e] = 0;
  for (long p = 0; p < n * c; ++p) {
    for (long e = 0; e < kd * kh * kw; ++e) taps[e] = wide(f[p % c * kd * kh * kw + e]);
    for (long z = 0; z < d; ++z)
      for (long r = 0; r < h; ++r)
        for (long q = 0; q < w; ++q)
          planes[z * plane + (r + kh / 2) * pitch + q + kw / 2] = wide(x[((p * d + z) * h + r) * w + q]);
    element *out = y + p * (d - kd + 1) * h * w;
    if (kh == 5 && kw == 5) channel<5, 5>(planes, taps, out, d, h, w, kd, kh, kw, plane, pitch);
    else if (kh == 3 && kw == 3) channel<3, 3>(planes, taps, out, d, h, w, kd, kh, kw, plane, pitch);
    else channel<0, 0>(planes, taps, out, d, h, w, kd, kh, kw, plane, pitch);
  }
  free(planes);
}

#if NUM_THREADS > 1
static_assert(THREADS <= NUM_THREADS, "more THREADS than cores");

extern "C" void custom_kernel(const element *x, const element *f, element *y, long n, long c, long d, long h, long w, long kd,
                              long kh, long kw, const long *strides) {
  const long turn = CHUNK ? CHUNK : (c + THREADS - 1) / THREADS, in = d * h * w, out = (d - kd + 1) * h * w;
#pragma omp parallel for num_threads(THREADS) schedule(dynamic) collapse(2)
  for (long i = 0; i < n; ++i)
    for (long j = 0; j < c; j += turn)
      share(x + (i * c + j) * in, f + j * kd * kh * kw, y + (i * c + j) * out, 1, turn < c - j ? turn : c - j, d, h, w, kd, kh, kw,
            strides);
}
#endif
