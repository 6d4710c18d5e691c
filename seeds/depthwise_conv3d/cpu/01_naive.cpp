// The definition: every output by itself, from the tensors as they come.
// flags: -fopenmp if NUM_THREADS > 1
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

extern "C" void custom_kernel(const element *x, const element *f, element *y, long n, long c, long d, long h, long w, long kd,
                              long kh, long kw, const long *strides) {
#if NUM_THREADS > 1
#pragma omp parallel for num_threads(NUM_THREADS) schedule(static)
#endif
  for (long p = 0; p < n * c; ++p) {
    const element *xp = x + p * d * h * w, *fp = f + p % c * kd * kh * kw;
    element *yp = y + p * (d - kd + 1) * h * w;
    for (long z = 0; z < d - kd + 1; ++z)
      for (long r = 0; r < h; ++r)
        for (long q = 0; q < w; ++q) {
          float sum = 0;
          for (long i = 0; i < kd; ++i)
            for (long j = 0; j < kh; ++j)
              for (long k = 0; k < kw; ++k) {
                long row = r + j - kh / 2, column = q + k - kw / 2;
                if (row < 0 || row >= h || column < 0 || column >= w) continue;
                sum += wide(xp[((z + i) * h + row) * w + column]) * wide(fp[(i * kh + j) * kw + k]);
              }
          yp[(z * h + r) * w + q] = narrow(sum);
        }
  }
}
