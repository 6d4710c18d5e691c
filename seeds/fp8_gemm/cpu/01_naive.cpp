// The definition, one element of c at a time: decode by formula or table, no reuse of anything.
// flags: -fopenmp if NUM_THREADS > 1
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;

enum { arith, table };

constexpr int DECODE = table;  // tune: arith table | decode: formula for each byte, or a 256-entry table
constexpr int MR = 1;          // tune: 1 2 4 8 | tile: rows of c computed together, which share the values of b
constexpr int NR = 1;          // tune: 1 2 4 | tile: columns of c computed together, which share the values of a
constexpr int UNROLL = 1;      // tune: 1 2 4 | unroll: independent partial sums along k

static float decode(u8 x) {
  int e = x >> 3 & 15, f = x & 7;
  if (E4M3FNUZ ? x == 0x80 : (x & 0x7f) == 0x7f) return __builtin_nanf("");
  float v = (e ? 8 + f : f) * (float)(1 << (e ? e : 1)) * (E4M3FNUZ ? 0x1p-11f : 0x1p-10f);
  return x & 0x80 ? -v : v;
}

static float values[256];

static float value(u8 x) { return DECODE == table ? values[x] : decode(x); }

static u16 bf16(float v) {
  u32 u = __builtin_bit_cast(u32, v);
  if ((u & 0x7fffffff) > 0x7f800000) return 0x7fc0;
  return (u + 0x7fff + (u >> 16 & 1)) >> 16;
}

extern "C" void custom_kernel(const u8 *a, const u8 *b, const float *a_scale, const float *b_scale,
                              u16 *c, long m, long n, long k, const long *strides) {
  const long *sa = strides, *sb = sa + 2, *ss = sa + 4, *st = sa + 6, *sc = sa + 8;
  for (int x = 0; x < 256; ++x) values[x] = decode(x);
#if NUM_THREADS > 1
#pragma omp parallel for num_threads(NUM_THREADS) schedule(static)
#endif
  for (long i0 = 0; i0 < m; i0 += MR)
    for (long j0 = 0; j0 < n; j0 += NR) {
      long rows = m - i0 < MR ? m - i0 : MR, cols = n - j0 < NR ? n - j0 : NR;
      long ra[MR], rb[NR];  // past the edge the last row or column is done again
      for (int i = 0; i < MR; ++i) ra[i] = (i0 + (i < rows ? i : rows - 1)) * sa[0];
      for (int j = 0; j < NR; ++j) rb[j] = (j0 + (j < cols ? j : cols - 1)) * sb[0];
      float sum[MR][NR] = {};
      for (long kb = 0; kb < k; kb += 128) {
        float part[UNROLL][MR][NR] = {};
        for (long kk = kb; kk < kb + 128; kk += UNROLL)
          for (int u = 0; u < UNROLL; ++u) {
            float x[MR], y[NR];
            for (int i = 0; i < MR; ++i) x[i] = value(a[ra[i] + (kk + u) * sa[1]]);
            for (int j = 0; j < NR; ++j) y[j] = value(b[rb[j] + (kk + u) * sb[1]]);
            for (int i = 0; i < MR; ++i)
              for (int j = 0; j < NR; ++j) part[u][i][j] += x[i] * y[j];
          }
        for (int i = 0; i < rows; ++i)
          for (int j = 0; j < cols; ++j) {
            for (int u = 1; u < UNROLL; ++u) part[0][i][j] += part[u][i][j];
            sum[i][j] += part[0][i][j] * a_scale[(i0 + i) * ss[0] + kb / 128 * ss[1]] *
                         b_scale[(j0 + j) / 128 * st[0] + kb / 128 * st[1]];
          }
      }
      for (int i = 0; i < rows; ++i)
        for (int j = 0; j < cols; ++j) c[(i0 + i) * sc[0] + (j0 + j) * sc[1]] = bf16(sum[i][j]);
    }
}
